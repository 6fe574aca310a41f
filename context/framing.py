"""Frames around chunks and notes that no document text can forge.

A chunk is shown as

    <chunk id="c7" doc="people/ada.md" title="Ada Marsh" tokens="112">
    …the document's own words…
    </chunk>

Before framing, every control string inside foreign text (the frame's own tags, and the special tokens that chat
templates reserve) gets a backslash after its first character: `<chunk` becomes `<\\chunk`. Text that already holds
`<\\chunk` gets one backslash more, so the escape is reversible and the frame can be parsed back to the exact text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from thresher.context.blocks import ChunkHeader

CONTROL_STRINGS = (
    "<chunk",
    "</chunk",
    "<note",
    "</note",
    "<|",  # ChatML, harmony and Llama 3 special tokens
    "<｜",  # DeepSeek writes them with a full-width bar
    "<s>",
    "</s>",
    "<bos>",
    "<eos>",
    "<think",
    "</think",
    "<tool_call",
    "</tool_call",
    "<tool_response",
    "</tool_response",
    "<start_of_turn",
    "<end_of_turn",
    "[SYSTEM_PROMPT]",
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
)
"""Strings that must never appear in the prompt because a document said so (matched without regard to case)."""

_LEADS = sorted({control[0] for control in CONTROL_STRINGS})
_PATTERN = "|".join(
    f"(?:{re.escape(lead)}(?=\\\\*(?:"
    + "|".join(re.escape(control[1:]) for control in CONTROL_STRINGS if control[0] == lead)
    + ")))"
    for lead in _LEADS
)
_ESCAPE = re.compile(_PATTERN, re.IGNORECASE)
_UNESCAPE = re.compile(f"({'|'.join(re.escape(lead) for lead in _LEADS)})\\\\", re.IGNORECASE)
_CHUNK = re.compile(
    r'<chunk id="(?P<id>[^"\n]*)" doc=(?P<doc>"(?:[^"\\\n]|\\.)*") title=(?P<title>"(?:[^"\\\n]|\\.)*")'
    r' tokens="(?P<tokens>\d+)"(?P<seen> seen="before")?>\n(?P<text>.*?)\n</chunk>\n',
    re.DOTALL,
)


def escape(text: str) -> str:
    """Make foreign text harmless; `unescape` gives it back exactly."""
    return _ESCAPE.sub(lambda match: match.group(0) + "\\", text)


def unescape(text: str) -> str:
    """Inverse of `escape`."""
    return _UNESCAPE.sub(lambda match: match.group(1) if _ESCAPE.match(text, match.start()) else match.group(0), text)


def _attribute(value: str) -> str:
    return escape(json.dumps(value, ensure_ascii=False))


def frame_chunk(evidence_id: str, header: ChunkHeader, text: str, text_tokens: int) -> str:
    """The piece of prompt for one chunk. `text_tokens` tells the policy what pruning it would free, roughly."""
    seen = ' seen="before"' if header.seen_before else ""
    return (
        f'<chunk id="{evidence_id}" doc={_attribute(header.document_id)} title={_attribute(header.title)}'
        f' tokens="{text_tokens}"{seen}>\n{escape(text)}\n</chunk>\n'
    )


def frame_note(note_id: str, evidence_ids: tuple[str, ...], text: str) -> str:
    """The piece of prompt for a note that replaced folded blocks and points at their evidence."""
    return f'<note id="{note_id}" evidence="{" ".join(evidence_ids)}">\n{escape(text)}\n</note>\n'


@dataclass(frozen=True, slots=True)
class ParsedChunk:
    """A chunk frame read back from a prompt."""

    id: str
    header: ChunkHeader
    text: str


def parse_chunks(rendered: str) -> list[ParsedChunk]:
    """Read every chunk frame out of rendered text: the exact inverse of `frame_chunk`, whatever the texts hold."""
    return [
        ParsedChunk(
            id=match["id"],
            header=ChunkHeader(
                document_id=json.loads(unescape(match["doc"])),
                title=json.loads(unescape(match["title"])),
                seen_before=match["seen"] is not None,
            ),
            text=unescape(match["text"]),
        )
        for match in _CHUNK.finditer(rendered)
    ]
