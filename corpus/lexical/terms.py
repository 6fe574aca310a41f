"""From text to terms, the same for every lexical index: what is indexed must be what a query asks for."""

from __future__ import annotations

from typing import Any

import tantivy

from thresher.corpus.lexical.analyzer import BIGRAMS, STEMMED, TITLE, indexed_grams, queried_grams, split_scripts
from thresher.corpus.lexical.base import Passage

TITLE_BOOST = 0.5
"""A title's words count in the text field too; half as much again for standing in the title is worth 3 points of
recall@10 on MuSiQue passages (0.553 → 0.586 at 0.6; 1.0 gives some of it back)."""

_MAX_TERM_BYTES = 60
# A query is a question, not a document; more distinct terms than this only cost time.
_MAX_QUERY_TERMS = 256


def make_analyzer() -> Any:
    """tantivy's analyzer for scripts written with spaces."""
    return (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(_MAX_TERM_BYTES))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )


def query_terms(analyzer: Any, query: str) -> list[tuple[str, str]]:
    """The (field, term) pairs of a query, each once, in order."""
    spaced, runs = split_scripts(query)
    terms = [(STEMMED, term) for term in analyzer.analyze(spaced)]
    terms += [(BIGRAMS, gram) for gram in queried_grams(runs)]
    return list(dict.fromkeys(terms))[:_MAX_QUERY_TERMS]


def passage_fields(passage: Passage) -> tuple[str, str, list[str]]:
    """What a passage is indexed by: (spaced text with the title, spaced title, grams of unspaced text)."""
    # An empty line between them: a title does not run on into the text.
    spaced, runs = split_scripts(f"{passage.title}\n\n{passage.text}")
    return spaced, split_scripts(passage.title)[0], indexed_grams(runs)


def passage_terms(analyzer: Any, passage: Passage) -> dict[str, list[str]]:
    """The terms of a passage by field, as often as they occur."""
    spaced, title, grams = passage_fields(passage)
    return {STEMMED: analyzer.analyze(spaced), TITLE: analyzer.analyze(title), BIGRAMS: grams}
