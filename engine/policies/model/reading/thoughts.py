"""Telling what a model thought from what it said, where its server did not."""

from __future__ import annotations

import re

_OPEN = re.compile(r"\s*(?:<(think|thinking|thought|reasoning)>|\[THINK\])", re.IGNORECASE)
_CLOSE = re.compile(r"(?:</(?:think|thinking|thought|reasoning)>|\[/THINK\])", re.IGNORECASE)
_ANALYSIS = re.compile(
    r"(?:<\|start\|>)?(?:assistant)?<\|channel\|>analysis<\|message\|>(.*?)(?:<\|end\|>|(?=<\|start\|>)|$)", re.DOTALL
)
_FINAL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>(?:final|commentary)<\|message\|>|<\|(?:end|return|im_end|eot_id)\|>|</s>"
)


def split_thoughts(text: str) -> tuple[str, str]:
    """(thoughts, words) of a reply: `<think>` tags and harmony's analysis channel are thoughts.

    An opening tag may be missing, since some templates put it into the prompt; a closing one is missing in a reply
    that was cut while it thought.
    """
    if "<|channel|>analysis<|message|>" in text:
        thoughts = "\n".join(match.strip() for match in _ANALYSIS.findall(text))
        return thoughts, _FINAL.sub("", _ANALYSIS.sub("", text)).strip()
    opening, closing = _OPEN.match(text), _CLOSE.search(text)
    if closing is not None:
        start = opening.end() if opening is not None else 0
        return text[start : closing.start()].strip(), text[closing.end() :].strip()
    if opening is not None:
        return text[opening.end() :].strip(), ""
    return "", _FINAL.sub("", text).strip()


def with_thoughts(thoughts: str, words: str) -> str:
    """Both as one text, from which `split_thoughts` makes the two again."""
    if not thoughts:
        return words
    return f"<think>\n{_CLOSE.sub('', thoughts)}\n</think>\n{words}"
