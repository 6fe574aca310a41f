"""Evidence that a model names in its words, where it should have called `finish`."""

from __future__ import annotations

import re
from collections.abc import Iterable


def named_ids(text: str, ids: Iterable[str]) -> list[str]:
    """Those of `ids` that stand in `text` by themselves, in the order of their first mention.

    An id that is a part of another one, or of a longer word, is not named by it: `sea-gull.md_0` is not `gull.md_0`,
    nor is `c12` `c1`.
    """
    known = sorted(ids, key=len, reverse=True)  # where one begins another, the longer one is meant
    if not known:
        return []
    found = re.finditer(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, known))})(?![\w-])", text)
    return list(dict.fromkeys(match.group() for match in found))
