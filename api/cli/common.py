"""What several commands share: options and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.opening import Opener

CollectionOption = Annotated[
    str | None, typer.Option("--collection", "-c", metavar="NAME", help="Collection to use (default: default).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
EffortOption = Annotated[
    str | None, typer.Option("--effort", metavar="EFFORT", help="minimal (one search), low, medium or high.")
]
PolicyOption = Annotated[str | None, typer.Option("--policy", metavar="POLICY", help="What decides the next turn.")]
EmbedderOption = Annotated[
    str | None,
    typer.Option("--embedder", metavar="SPEC", help="minilm, wordllama, st:NAME_OR_PATH or openai:MODEL@BASE_URL."),
]
ChunkerOption = Annotated[
    str | None, typer.Option("--chunker", metavar="SPEC", help="structure-1, or structure-1:TOKENS for other sizes.")
]
FusionOption = Annotated[
    str | None, typer.Option("--fusion", metavar="HOW", help="Fuse by rrf (default), tuned or convex:ALPHA.")
]
NearDuplicatesOption = Annotated[
    str | None, typer.Option("--near-duplicates", metavar="on|off|SHARE", help="Collapse passages that say the same.")
]
RerankerOption = Annotated[
    str | None,
    typer.Option("--reranker", metavar="SPEC", help="st:NAME_OR_PATH, pylate:NAME_OR_PATH or endpoint:MODEL@URL."),
]
NameArgument = Annotated[str | None, typer.Argument(metavar="[COLLECTION]", help="The same as -c.", show_default=False)]


def settings(ctx: typer.Context, **flags: Any) -> Settings:
    """The settings of this call; flags that are None count as not given."""
    from thresher.api.config import load_settings

    config = ctx.find_root().obj
    return load_settings(flags, config=config if isinstance(config, Path) else None).settings


def opener(chosen: Settings) -> Opener:
    """How this call opens collections."""
    from thresher.api.opening import Opener

    return Opener(chosen.chroma_spec(serving=False))


def making(chosen: Settings, *, embedder: str | None, chunker: str | None) -> dict[str, Any]:
    """The fields of a `WriteRequest`; `embedder` and `chunker` are the flags, None where they were not given."""
    return {
        "embedder": None if embedder is None else absolute_spec(embedder),
        "chunker": chunker and chosen.chunker,
        "default_embedder": absolute_spec(chosen.embedder),
        "default_chunker": chosen.chunker,
    }


def absolute(path: str | Path) -> str:
    """A path that means the same in another working directory. Symbolic links are left to whoever opens it."""
    import os

    return os.path.join(os.getcwd(), os.path.expanduser(path))


def absolute_spec(spec: str) -> str:
    """A spec that may name a folder (`st:./model`), so that it means the same in another working directory."""
    import os

    kind, colon, place = spec.partition(":")
    if kind in ("st", "pylate") and colon and os.path.isdir(os.path.expanduser(place)):
        return f"{kind}:{os.path.realpath(os.path.expanduser(place))}"
    return spec
