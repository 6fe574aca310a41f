"""Leaks: web pages that hold the very question they are asked to answer, or come from where benchmarks are published.

A search of the open web can find the benchmark instead of the evidence. Such pages are counted, and every score is
given twice: with all evidence, and without what leaked. Documents of the corpus are part of the set and never leak.

What a search did after it had read such a page cannot be undone: the second score leaves passages out, it does not say
what the search would have found. An answer in words therefore does not count at all once a leaky page was shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from thresher.context import Evidence
from thresher.engine.requests import Answer, RankedEvidence, SearchResult
from thresher.train.tasks.task import Task, TaskError

NGRAM = 13
"""Words in a row that no page shares with a question by chance.

Brown et al., "Language Models are Few-Shot Learners" (2020), appendix C, look for N-grams of 8 to 13 words, N by the
length of a set's examples; lm-evaluation-harness and most reports of contamination since take 13.
"""
SHORTEST = 8
"""A question of fewer words, which GPT-3's authors do not go below, is too common a sentence to be a leak by itself."""
WINDOW = 50
"""So many words after such a question one of its answers must stand."""

BLOCKED = (
    # where sets of questions are published
    "huggingface.co/datasets",
    "datasets-server.huggingface.co",
    "hf-mirror.com/datasets",
    "hf.co/datasets",
    "kaggle.com/datasets",
    "paperswithcode.com/dataset",
    "paperswithcode.com/datasets",
    # those of multi-hop and browsing questions themselves
    "hotpotqa.github.io",
    "github.com/hotpotqa",
    "github.com/StonyBrookNLP/musique",
    "github.com/Alab-NII/2wikimultihop",
    "github.com/yixuantt/MultiHop-RAG",
    "github.com/openai/simple-evals",
    "github.com/texttron/BrowseComp-Plus",
    "openaipublic.blob.core.windows.net/simple-evals",
)
"""Always blocked."""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_EMBEDDED = re.compile(r"https?:/{1,2}[^\s]+", re.IGNORECASE)
_SAME_HOST = {"raw.githubusercontent.com": "github.com", "cdn.jsdelivr.net/gh": "github.com"}


class BlockListError(TaskError):
    """A list of blocked addresses cannot be used. The message names the line and what is wrong with it."""

    code = "invalid_block_list"


class Reason(StrEnum):
    """Why a page counts as a leak."""

    ADDRESS = "blocked_address"
    QUESTION = "question"
    """It holds the question, or so long a piece of it, word by word."""
    ANSWERED = "question_and_answer"
    """It holds a short question word by word, and soon after it the answer."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A page that leaks. `matched` is the pattern of its address, or the words that it shares with the question."""

    url: str
    reason: Reason
    matched: str


@dataclass(frozen=True, slots=True)
class Leaks:
    """What the guard found in one search: how many web pages were shown, and those of them that leak."""

    web_pages: int = 0
    found: tuple[Leak, ...] = ()


class LeakGuard:
    """Finds leaks.

    Args:
        blocked: patterns beside `BLOCKED`: a host, which stands for its subdomains too, with a path or without one. A
            path stands for all below it; in host and path `*` is anything within one part. `github.com/*/answers`.
        ngram: words in a row that a page and a question must share. Of a shorter question all words count; one of
            less than `SHORTEST` leaks only where an answer follows. A Chinese character or a kana is a word.

    Raises:
        BlockListError: a pattern names no host.
        ValueError: `ngram` is not positive.
    """

    def __init__(self, blocked: Iterable[str] = (), *, ngram: int = NGRAM) -> None:
        if ngram < 1:
            raise ValueError(f"ngram must be at least 1, got {ngram}")
        self.ngram = ngram
        self.patterns = tuple(dict.fromkeys((*BLOCKED, *blocked)))
        self._blocked = [(pattern, *_parsed(pattern)) for pattern in self.patterns]

    def leak(self, task: Task, url: str, texts: Sequence[str]) -> Leak | None:
        """Whether a web page leaks a task, by its address or by one of these texts of it."""
        for host, path in _places(url):
            for pattern, blocked_host, blocked_path in self._blocked:
                if _host_matches(host, blocked_host) and _path_matches(path, blocked_path):
                    return Leak(url, Reason.ADDRESS, pattern)
        question = _words(task.question)
        if not question:
            return None
        pages = [f" {' '.join(_words(text))} " for text in texts]
        if len(question) < min(SHORTEST, self.ngram):
            return _answered(task, url, " ".join(question), pages)
        size = min(self.ngram, len(question))
        for start in range(len(question) - size + 1):
            shared = " ".join(question[start : start + size])
            if any(f" {shared} " in page for page in pages):
                return Leak(url, Reason.QUESTION, shared)
        return None

    def examine(self, task: Task, result: SearchResult) -> tuple[Leaks, SearchResult]:
        """What leaked into a search, and its result without that.

        One leaky passage takes all passages of its page along.
        """
        shown: list[Evidence | RankedEvidence] = [*result.results]
        if result.trajectory is not None:
            shown.extend(result.trajectory.evidence)
        pages: dict[str, list[Evidence | RankedEvidence]] = {}
        for passage in shown:
            if passage.source == "web":
                pages.setdefault(passage.uri, []).append(passage)
        checked = (self.leak(task, url, _stretches(passages)) for url, passages in pages.items())
        found = tuple(leak for leak in checked if leak is not None)
        if not found:
            return Leaks(len(pages)), result
        leaky = {leak.url for leak in found}

        def stays(passage: Evidence | RankedEvidence) -> bool:
            return passage.source != "web" or passage.uri not in leaky

        trajectory = result.trajectory
        if trajectory is not None:
            trajectory = trajectory.model_copy(update={"evidence": tuple(filter(stays, trajectory.evidence))})
        answer = (
            None if result.answer is None else Answer("", withheld_reason="a page that leaks the question was shown")
        )
        kept = replace(result, results=tuple(filter(stays, result.results)), trajectory=trajectory, answer=answer)
        return Leaks(len(pages), found), kept


def read_patterns(path: Path) -> tuple[str, ...]:
    """The patterns of a file: one a line, `#` begins a comment.

    Raises:
        BlockListError: the file cannot be read, or a line is no pattern.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise BlockListError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BlockListError(f"{path} is not UTF-8: {error}") from error
    patterns = []
    for number, line in enumerate(lines, 1):
        if pattern := line.partition("#")[0].strip():
            try:
                _parsed(pattern)
            except BlockListError as error:
                raise BlockListError(f"{path}:{number}: {error}") from error
            patterns.append(pattern)
    return tuple(patterns)


def _parsed(pattern: str) -> tuple[str, tuple[str, ...]]:
    """(host, parts of the path)."""
    rest = re.sub(r"^https?://", "", pattern.strip().lower())
    host, _, path = rest.partition("/")
    host = host.removeprefix("*.").removeprefix("www.")
    if not re.fullmatch(r"[\w*-]+(\.[\w*-]+)+(:\d+)?", host):
        raise BlockListError(
            f"{pattern!r} names no host: write example.org, example.org/a/path or example.org/*/a-path"
        )
    return host, _parts(path)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _places(url: str) -> list[tuple[str, tuple[str, ...]]]:
    """(host, parts of the path) of an address, and of those that stand in it: archives and proxies carry them so."""
    places = []
    rest: str | None = unquote(url)
    while rest:
        try:
            parts = urlsplit(re.sub(r"^(https?):/+", r"\1://", rest, flags=re.IGNORECASE).lower())
        except ValueError:  # no address at all
            break
        host, path = parts.netloc.rpartition("@")[2].removesuffix("."), parts.path
        for mirror, original in _SAME_HOST.items():
            if f"{host}{path}".startswith(f"{mirror}/"):
                host, path = original, f"{host}{path}".removeprefix(mirror)
        places.append((host, _parts(path)))
        inner = _EMBEDDED.search(rest, 1)
        rest = inner.group() if inner else None
    return places


def _host_matches(host: str, blocked: str) -> bool:
    if ":" not in blocked:
        host = host.partition(":")[0]
    return fnmatchcase(host, blocked) or fnmatchcase(host, f"*.{blocked}")


def _path_matches(path: Sequence[str], blocked: Sequence[str]) -> bool:
    return len(path) >= len(blocked) and all(map(fnmatchcase, path, blocked))


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _answered(task: Task, url: str, question: str, pages: Iterable[str]) -> Leak | None:
    answers = [f" {' '.join(words)} " for answer in task.answers if (words := _words(answer))]
    for page in pages:
        for after in page.split(f" {question} ")[1:]:
            near = f" {' '.join(after.split()[:WINDOW])} "
            if any(answer in near for answer in answers):
                return Leak(url, Reason.ANSWERED, question)
    return None


def _stretches(passages: Iterable[Evidence | RankedEvidence]) -> list[str]:
    """The texts of a page's passages, its title before each; those that follow each other are one, since a question
    may lie across the cut."""
    passages = list(passages)
    title = next((item.title for item in passages if item.title), "")
    ordered = sorted({(item.start, item.end, item.text) for item in passages})
    texts = [text for _, _, text in ordered[:1]]
    for (_, end, _), (start, _, text) in pairwise(ordered):
        if start == end:
            texts[-1] += text
        else:
            texts.append(text)
    return [f"{title}\n{text}" for text in texts]
