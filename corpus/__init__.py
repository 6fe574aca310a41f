"""The corpus: documents in, ranked passages out. It knows documents, not agents.

The names below are loaded on first use, so that `import thresher.corpus` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection as Collection
    from thresher.corpus.documents import (
        Chunk as Chunk,
    )
    from thresher.corpus.documents import (
        Document as Document,
    )
    from thresher.corpus.documents import (
        Hit as Hit,
    )
    from thresher.corpus.documents import (
        PreparedDocument as PreparedDocument,
    )
    from thresher.corpus.documents import (
        Source as Source,
    )
    from thresher.corpus.documents import (
        Span as Span,
    )
    from thresher.corpus.documents import (
        Status as Status,
    )
    from thresher.corpus.filters import Filter as Filter
    from thresher.corpus.filters import parse_filter as parse_filter

_HOMES = {
    "Collection": "collection",
    "Chunk": "documents",
    "Document": "documents",
    "Hit": "documents",
    "PreparedDocument": "documents",
    "Source": "documents",
    "Span": "documents",
    "Status": "documents",
    "Filter": "filters",
    "parse_filter": "filters",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
