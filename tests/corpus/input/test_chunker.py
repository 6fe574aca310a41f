from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.corpus.chunker import MAX_TOKENS, TARGET_TOKENS, chunk_text, estimate_tokens, load_chunker
from thresher.corpus.documents import Span

WORDS = [
    "word",
    "Sentence end. ",
    "漢字",
    "。",
    "かな",
    "한국어",
    "👨‍👩‍👧",
    "é",
    "e\u0301",
    "Привет ",
    "สวัสดี",
    "नमस्ते",
    "# Heading\n",
]
ODD = [
    "\n",
    "\n\n",
    "\r\n",
    "\f",
    " ",
    "\t",
    "\u2003",
    "\u200b",
    "\x00",
    "\ud800",
    "x" * 40,
    "12345678901234",
    "a|b",
    "---",
]
PIECES = st.sampled_from(WORDS + ODD)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=200).map("".join),
    st.text(max_size=400),
    st.builds(lambda piece, count: piece * count, PIECES, st.integers(0, 2000)),
)
SIZES = st.tuples(st.integers(16, 60), st.integers(0, 60)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def check(text: str, spans: list[Span], maximum: int) -> None:
    """The chunker's promises: in order, no overlap, nothing but whitespace between, no blank edge, none too large."""
    end = 0
    for span in spans:
        assert 0 <= end <= span.start < span.end <= len(text)
        assert not text[end : span.start].strip()
        passage = text[span.start : span.end]
        assert passage == passage.strip()
        assert estimate_tokens(passage) <= maximum
        end = span.end
    assert not text[end:].strip()


@given(TEXTS, SIZES)
def test_promises_hold_for_any_text(text: str, sizes: tuple[int, int]) -> None:
    target, maximum = sizes
    spans = chunk_text(text, target_tokens=target, max_tokens=maximum)
    check(text, spans, maximum)
    assert bool(spans) == bool(text.strip())


@given(TEXTS)
def test_chunking_a_chunk_gives_the_chunk(text: str) -> None:
    for span in chunk_text(text, target_tokens=30, max_tokens=40):
        passage = text[span.start : span.end]
        assert chunk_text(passage, target_tokens=30, max_tokens=40) == [Span(0, len(passage))]


def test_short_text_is_one_chunk_without_its_margins() -> None:
    text = "  # Title\n\nOne paragraph.\n\nAnother.\n"
    assert chunk_text(text) == [Span(2, len(text) - 1)]


@pytest.mark.parametrize("text", ["", " \n\t\u3000\f "])
def test_blank_text_has_no_chunk(text: str) -> None:
    assert chunk_text(text) == []


@pytest.mark.parametrize(
    "line", ["a" * 2_000_000, "word " * 400_000, "字" * 700_000, "👩‍🚀" * 300_000, "#" * 1_000_000]
)
def test_a_huge_line_is_cut(line: str) -> None:
    spans = chunk_text(line)
    check(line, spans, MAX_TOKENS)
    assert len(spans) > 1000


def test_cjk_counts_by_character() -> None:
    assert estimate_tokens("漢字かな交じり文") == 8
    spans = chunk_text("検索エンジンは文書を探す。" * 200)
    assert len(spans) > 2600 / MAX_TOKENS
    assert all(span.end - span.start <= MAX_TOKENS for span in spans)


def test_cjk_is_cut_at_sentence_ends() -> None:
    text = "検索エンジンは文書を探す。" * 200
    assert all(text[span.end - 1] == "。" for span in chunk_text(text))


def test_headings_start_chunks() -> None:
    section = "# Part {}\n\n" + "Some sentence that says a thing. " * 22
    text = "\n\n".join(section.format(number) for number in range(8))
    spans = chunk_text(text)
    assert len(spans) == 8
    assert all(text[span.start :].startswith(f"# Part {number}") for number, span in enumerate(spans))


def test_pages_start_chunks() -> None:
    text = "\f".join(f"Page {number}. " + "More of the page. " * 40 for number in range(5))
    assert [text[span.start : span.start + 6] for span in chunk_text(text)] == [f"Page {number}" for number in range(5)]


def test_paragraphs_are_preferred_to_sentences_and_sentences_to_words() -> None:
    paragraph = "The quick brown fox jumps over the lazy dog again. " * 12
    paragraphs = "\n\n".join(paragraph.strip() for _ in range(10))
    assert all(paragraphs[span.end : span.end + 2] in ("\n\n", "") for span in chunk_text(paragraphs))
    assert all((paragraph * 10)[span.end - 1] == "." for span in chunk_text(paragraph * 10))


def test_words_are_not_cut_where_there_are_spaces() -> None:
    text = "unpunctuated " * 2000
    assert all(text[span.start : span.end].endswith("unpunctuated") for span in chunk_text(text))


def test_graphemes_stay_whole_in_a_hard_cut() -> None:
    family = "👨‍👩‍👧"
    text = "ab" + family * 1000
    assert all((span.start - 2) % len(family) == 0 for span in chunk_text(text)[1:])


def test_no_crumbs_at_the_end() -> None:
    text = "A sentence of eight words stands right here. " * 29  # a little over the maximum
    assert MAX_TOKENS < estimate_tokens(text) < MAX_TOKENS + 100
    sizes = [estimate_tokens(text[span.start : span.end]) for span in chunk_text(text)]
    assert len(sizes) == 2
    assert min(sizes) > TARGET_TOKENS / 2


def test_a_chunk_carries_no_desert_of_blanks() -> None:
    text = "left" + " " * 100_000 + "right"
    assert chunk_text(text) == [Span(0, 4), Span(100_004, 100_009)]


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        chunk_text("text", target_tokens=100, max_tokens=50)


def test_the_default_chunker_cuts_as_it_always_did(sample_docs: Path) -> None:
    """Collections say `structure-1`; another cut needs another name, or documents would change without a reindex."""
    digest = hashlib.sha256()
    chunker = pickle.loads(pickle.dumps(load_chunker("structure-1")))
    for path in sorted(p for p in sample_docs.rglob("*") if p.suffix in (".txt", ".md")):
        for text in (path.read_text(), path.read_text() * 5):
            spans = chunker(text)
            assert spans == chunk_text(text)
            digest.update(json.dumps([(span.start, span.end) for span in spans]).encode())
    assert digest.hexdigest() == "9937529ef32e9aaa7365477a25d6f5eaf6f8f04c6281372941b6fa63810f5eab"


def test_another_target_makes_passages_of_about_that_size() -> None:
    text = "\n\n".join(f"Sentence {i} says something of no importance. " * 12 for i in range(60))
    for target in (16, 100, 400):
        chunker = load_chunker(f"structure-1:{target}")
        sizes = [estimate_tokens(text[span.start : span.end]) for span in chunker(text)]
        assert max(sizes) <= target * 1.28 + 1
        assert 0.5 * target <= sum(sizes) / len(sizes) <= 1.28 * target
        assert chunker.version == f"structure-1:{target}"
