"""What several commands share: options and settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.opening import Opener
    from thresher.api.policies import PolicyChoice
    from thresher.api.web import WebChoice

CollectionOption = Annotated[
    str | None, typer.Option("--collection", "-c", metavar="NAME", help="Collection to use (default: default).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
EmbedderOption = Annotated[
    str | None,
    typer.Option("--embedder", metavar="SPEC", help="minilm, wordllama, st:NAME_OR_PATH or openai:MODEL@BASE_URL."),
]
ChunkerOption = Annotated[
    str | None, typer.Option("--chunker", metavar="SPEC", help="structure-1, or structure-1:TOKENS for other sizes.")
]

_HOW_TO_SEARCH: Mapping[str, Any] = {
    "effort": Annotated[
        str | None, typer.Option("--effort", metavar="EFFORT", help="minimal (one search), low, medium or high.")
    ],
    "policy": Annotated[
        str | None,
        typer.Option("--policy", metavar="SPEC", help="What decides: builtin, chat:MODEL, tokens:MODEL or hf:PATH."),
    ],
    "model_url": Annotated[
        str | None, typer.Option("--model-url", metavar="URL", help="The model's server, as http://localhost:8000/v1.")
    ],
    "profile": Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Words and limits: thresher, context1 or small.")
    ],
    "strategy": Annotated[
        str | None,
        typer.Option(
            "--strategy", metavar="HOW", help="Keep the context small by prune, fold, mask-old, discard-all or none."
        ),
    ],
    "rollouts": Annotated[
        int | None, typer.Option("--rollouts", metavar="N", help="Search N times, 1 to 16, and fuse the results.")
    ],
    "swarm": Annotated[bool | None, typer.Option("--swarm/--no-swarm", help="Hand sub-questions to sub-agents.")],
    "answer": Annotated[
        bool | None, typer.Option("--answer/--no-answer", help="Write an answer whose citations are checked.")
    ],
    "max_results": Annotated[int | None, typer.Option("--max-results", help="Passages at most, 1 to 100.")],
}
_HOW_TO_RANK: Mapping[str, Any] = {
    "fusion": Annotated[
        str | None, typer.Option("--fusion", metavar="HOW", help="Fuse by rrf (default), tuned or convex:ALPHA.")
    ],
    "near_duplicates": Annotated[
        str | None,
        typer.Option("--near-duplicates", metavar="on|off|SHARE", help="Collapse passages that say the same."),
    ],
    "reranker": Annotated[
        str | None,
        typer.Option("--reranker", metavar="SPEC", help="st:NAME_OR_PATH, pylate:NAME_OR_PATH or endpoint:MODEL@URL."),
    ],
}
_WHERE_TO_SEARCH: Mapping[str, Any] = {
    "sources": Annotated[
        str | None, typer.Option("--sources", metavar="WHERE", help="Search the corpus (default), web or corpus,web.")
    ],
    "web_providers": Annotated[
        str | None,
        typer.Option("--web", metavar="SPECS", help="Who searches the web: brave, tavily, exa, serper, duckduckgo, …"),
    ],
}
SEARCH_FLAGS: Mapping[str, Any] = {**_HOW_TO_SEARCH, **_HOW_TO_RANK, **_WHERE_TO_SEARCH}
"""Flags of every command that searches, by the setting that each of them sets."""

Flags = dict[str, Any]
"""What the flags of `with_flags` were given as, by setting; None where one was not given."""


def with_flags(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags of `SEARCH_FLAGS` (without `names`: all of them), so that they are declared once.

    The command has a parameter `flags: Flags` where they belong.
    """
    chosen = {name: SEARCH_FLAGS[name] for name in names or SEARCH_FLAGS}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = []
        for parameter in own:
            if parameter.name == "flags":
                parameters += [
                    inspect.Parameter(name, parameter.kind, default=None, annotation=annotation)
                    for name, annotation in chosen.items()
                ]
            else:
                parameters.append(parameter)

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            flags = {name: arguments.pop(name) for name in chosen}
            command(**arguments, flags=flags)

        del run.__wrapped__  # typer looks through it, at the annotations of the command proper
        signature = inspect.Signature(parameters)
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def with_web_sources(flags: Flags) -> Flags:
    """Whoever names a provider by flag wants the web searched."""
    wanted = flags["web_providers"] and flags["sources"] is None
    return {**flags, "sources": "corpus,web"} if wanted else flags


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
    if kind in ("st", "pylate", "hf") and colon and os.path.isdir(os.path.expanduser(place)):
        return f"{kind}:{os.path.realpath(os.path.expanduser(place))}"
    return spec


def absolute_policy(choice: PolicyChoice) -> PolicyChoice:
    """The same policy, with the folder that it may name (`hf:./model`) told so that it means the same elsewhere."""
    from dataclasses import replace

    return replace(choice, spec=absolute_spec(choice.spec))


def absolute_web(choice: WebChoice) -> WebChoice:
    """The same web, with the folders that it may name told so that they mean the same elsewhere."""
    from dataclasses import replace

    def spec(text: str) -> str:
        kind, colon, place = text.partition(":")
        return f"{kind}:{absolute(place)}" if kind == "local" and colon else text

    return replace(
        choice,
        providers=tuple(spec(provider) for provider in choice.providers),
        record=choice.record and absolute(choice.record),
        replay=choice.replay and absolute(choice.replay),
    )


def refuse_existing(file: Path, overwrite: bool) -> None:
    """Refuse to write over a file, unless that is wanted.

    Raises:
        UsageError: it exists.
    """
    from thresher.api.errors import UsageError

    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists; name another file, or add --overwrite")
