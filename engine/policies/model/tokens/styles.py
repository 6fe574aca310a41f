"""How a model is spoken to in tokens: a format of messages, a frame around chunks, and how its search may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from thresher.context.framing import frame_chunk
from thresher.context.render import ChunkFrame
from thresher.engine.errors import InvalidRequest
from thresher.engine.policies.model.tokens.rendering import Format, Ids
from thresher.engine.policies.model.tokens.replies import FinalCall, Reply
from thresher.engine.policy import ToolSpec

STYLES = ("context1", "harmony", "chatml", "context1+chatml")
"""Names of styles: a format, `context1` standing for harmony with the published profile's frame and final answers."""
_HARMONY_MODELS = ("gpt-oss", "gpt_oss")
_CONTEXT1_MODELS = ("context-1", "context1")


class ReadReply(Protocol):
    """Takes a reply apart; see `thresher.engine.policies.model.tokens.replies`."""

    def __call__(
        self, output: Sequence[int], tools: Sequence[ToolSpec], *, cut: bool, final_call: FinalCall | None
    ) -> Reply:
        """The parts of what was sampled behind `Format.generation`."""


@dataclass(frozen=True, slots=True)
class Style:
    """Everything that is the same for all searches with one model.

    Attributes:
        stops: token ids at which sampling stops.
        read: takes a reply apart.
        final_call: reads a final text that ends a search; None where only a call of `finish` does.
    """

    name: str
    format: Format
    stops: Ids
    read: ReadReply
    frame: ChunkFrame = frame_chunk
    final_call: FinalCall | None = None


def style_for(model: str, name: str | None = None, tokenizer: str | Path | None = None) -> Style:
    """The style of a model.

    Args:
        model: its name, or its folder.
        name: one of `STYLES`; None goes by the model's name: gpt-oss and Context-1 speak harmony, all others ChatML.
        tokenizer: folder with its `tokenizer.json`, for ChatML; None looks in `model`, and in the local hub cache.

    Raises:
        InvalidRequest: there is no such style, or no tokenizer for it.
    """
    lower = model.lower()
    if name is None and any(part in lower for part in _CONTEXT1_MODELS):
        name = "context1"
    elif name is None:
        name = "harmony" if any(part in lower for part in _HARMONY_MODELS) else "chatml"
    if name not in STYLES:
        raise InvalidRequest(f"there is no model profile {name!r}; choose one of: {', '.join(STYLES)}", param="profile")
    return _chatml(model, name, tokenizer) if "chatml" in name else _harmony(name)


def _context1(name: str) -> dict[str, Any]:
    if "context1" not in name:
        return {}
    from thresher.engine.profiles.context1 import frame_document, parse_final

    return {"frame": frame_document, "final_call": parse_final}


def _harmony(name: str) -> Style:
    from thresher.engine.policies.model.tokens.harmony import HarmonyFormat
    from thresher.engine.policies.model.tokens.harmony_replies import read_reply

    layout = HarmonyFormat(parallel=name == "context1")
    return Style(name, layout, layout.stops, partial(read_reply, layout), **_context1(name))


def _chatml(model: str, name: str, tokenizer: str | Path | None) -> Style:
    from thresher.engine.policies.model.tokens.chatml import ChatMLFormat
    from thresher.engine.policies.model.tokens.encoding import hub_codec

    layout = ChatMLFormat(hub_codec(_folder(model, tokenizer)))
    return Style(name, layout, layout.stops, layout.read, **_context1(name))


def _folder(model: str, tokenizer: str | Path | None) -> Path:
    """The folder that holds a model's tokenizer, without asking a network."""
    for place in (tokenizer, model):
        if place and (Path(place) / "tokenizer.json").is_file():
            return Path(place).resolve()
    if tokenizer is None:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            cached = try_to_load_from_cache(model, "tokenizer.json")
        except HFValidationError:
            cached = None
        if isinstance(cached, str):
            return Path(cached).parent
    raise InvalidRequest(
        f"the tokenizer of {model!r} is not on this machine: name the folder that holds its tokenizer.json, or use the "
        "`chat` policy, which needs none",
        param="policy",
    )
