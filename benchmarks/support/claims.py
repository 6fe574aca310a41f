"""The claims: how `run.py` runs each script, and what it reads in the figures that the script leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.findings import Finding, Verdict, beside, gain, goal, told

Measured = dict[str, Any]

REAL_SETS = ("musique", "hotpotqa", "multihop_rag_partial", "mtrag_un", "enron_mini")
SCALE_GOALS = ((100_000, 10.0), (1_000_000, 25.0))
"""Largest p95 of a search in milliseconds, up to so many passages."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A script, its arguments in a full run (`data`: folder of sets; `work`: folder for what it builds), its findings.

    Attributes:
        needs: folders of `data` without which a full run is not possible.
    """

    script: str
    arguments: Callable[[Path, Path], list[str]]
    read: Callable[[Measured], Iterator[Finding]]
    needs: tuple[str, ...] = ()


def _nothing(data: Path, work: Path) -> list[str]:
    return []


def _sets(*names: str) -> Callable[[Path, Path], list[str]]:
    return lambda data, work: [str(data / name) for name in names]


def _texts(data: Path, work: Path) -> list[str]:
    return ["--texts", str(data), "--keep", str(work / "scale")]


def read_scale(measured: Measured) -> Iterator[Finding]:
    """Search beside bare systems; the goal that holds for the size."""
    for chunks, size in measured["sizes"].items():
        at = f"at {int(chunks):,} passages"
        ours = size["searching"]["search"]["p95"]
        most = next((bound for largest, bound in SCALE_GOALS if int(chunks) <= largest), SCALE_GOALS[-1][1])
        yield goal(f"hybrid search, p95 ms, {at}", ours, most=most)
        names = {
            "chroma": "bare Chroma",
            "tantivy": "bare tantivy",
            "bm25s": "bm25s",
            "own_chroma": "Chroma alone, our directory, 100 deep",
            "own_tantivy": "tantivy alone, our directory, 100 deep",
            "brute": "numpy over all vectors",
        }
        for key, name in names.items():
            if "search" in size.get(key, {}):
                yield beside(f"hybrid search, p95 ms, {at}", ours, size[key]["search"]["p95"], name)
        filtered = "search, filter keeps 5 %"
        if filtered in size.get("chroma", {}):
            own, theirs = size["searching"][filtered]["p95"], size["chroma"][filtered]["p95"]
            yield beside(f"with a filter that keeps 5 %, p95 ms, {at}", own, theirs, "bare Chroma's own filter")
        if "build_rate" in size.get("chroma", {}):
            own = size["build"][-1]["chunks"] / sum(step["seconds"] for step in size["build"])
            theirs = size["chroma"]["build_rate"]
            what = f"passages written a second, {at}"
            yield beside(what, own, theirs, "bare Chroma", less_is_better=False, form="{:.0f}")
            if "build_rate" in size.get("tantivy", {}):
                theirs = size["tantivy"]["build_rate"]
                yield beside(what, own, theirs, "bare tantivy", less_is_better=False, form="{:.0f}")
        if "opening" in size and "chroma" in size and "bytes_per_chunk" in size["chroma"]:
            own = sum(size["opening"]["bytes_per_chunk"].values())
            yield beside(f"bytes on disk a passage, {at}", own, size["chroma"]["bytes_per_chunk"], "bare Chroma")
        yield told(f"recall@10 of the dense ranking against brute force, {at}", f"{size['searching']['recall']:.3f}")


def read_grep(measured: Measured) -> Iterator[Finding]:
    """By how common matches are."""
    at = f"at {measured['chunks']:,} passages"
    kinds = measured["kinds"]
    for kind in ("absent", "phrase", "word", "common", "scan", "all with a literal"):
        if kind in kinds:
            row = kinds[kind]
            name = "google-re2 over text in memory"
            yield beside(f"grep, {kind}, p95 ms, {at}", row["ours"]["p95"], row["scan"]["p95"], name)


def read_ingestion(measured: Measured) -> Iterator[Finding]:
    """The share of the embedder's own rate."""
    for own in measured["pipelines"]:
        what = f"ingestion with {own['embedder']}, share of the embedder's own rate"
        yield goal(what, own["share"], least=0.85, form="{:.0%}")


def read_agent(measured: Measured) -> Iterator[Finding]:
    """Each system against one search, set by set."""
    for own in measured["sets"]:
        for name, differences in own["differences"].items():
            if name == "one-search":
                continue
            what = f"{name}, {own['name']} ({own['with_gold']} questions), recall@10"
            yield gain(what, differences.get("recall_10"), "one search")
            ratio = own["systems"][name]["summary"].get("seconds_ratio")
            if ratio:
                yield Finding(
                    f"{name}, {own['name']}, seconds of one search",
                    f"× {ratio:.1f}",
                    Verdict.LOSES if ratio > 1 else Verdict.AHEAD,
                    beside="one search",
                )


def read_builtin(measured: Measured) -> Iterator[Finding]:
    """Learned choices against the rules."""
    for own in measured["sets"]:
        for metric in ("recall@5", "recall@10"):
            what = f"builtin:learned, {own['set']} ({own['with_gold']} questions), {metric}"
            yield gain(what, own["gain"][metric], "builtin:rules")


def read_fusion(measured: Measured) -> Iterator[Finding]:
    """nDCG and recall of a learned fusion, and what collapsing costs."""
    for own in measured["sets"]:
        for metric, digits in (("ndcg@10", 1), ("recall@10", 1)):
            what = f"learned fusion, {own['set']} ({own['tested_on']} questions), {metric}"
            yield gain(what, own["metrics"][metric]["gain"], "fusion by rank", digits=digits)
        yield gain(f"near-duplicates collapsed, {own['set']}, recall@10", own["collapsing"], "not collapsed")


def read_reranker(measured: Measured) -> Iterator[Finding]:
    """The trained reranker against one search."""
    for own in measured["sets"]:
        what = f"reranker trained here, {own['set']} ({own['questions']} questions), nDCG@10"
        yield gain(what, own["metrics"]["ndcg@10"]["gain"], "one search")
        ours, plain = own["seconds_reranked"], own["seconds_plain"]
        yield beside(f"seconds of a reranked search, {own['set']}", ours, plain, "one search", form="{:.3f}")


def read_edits(measured: Measured) -> Iterator[Finding]:
    """Prefill by timing of prunes."""
    base = measured["timings"]["immediate"]
    for name in ("priced", "when forced"):
        row = measured["timings"][name]
        what = f"prefill tokens a search, prunes {name}"
        yield beside(what, row["computed"], base["computed"], "at once", form="{:,.0f}")
        what = f"longest context on average, prunes {name}"
        yield beside(what, row["peak"], base["peak"], "at once", form="{:,.0f}")


def read_segments(measured: Measured) -> Iterator[Finding]:
    """Tokens of segments against one row a turn, and against the bound."""
    for name, sums in measured["ways"].items():
        per = max(1, sums["searches"])
        what = f"trained tokens a search in segments, {name}"
        ours = sums["merged"] / per
        yield beside(what, ours, sums["per_turn"] / per, "one row a turn", form="{:,.0f}")
        yield told(
            f"of these, left if a group shared all its prefixes, {name}", f"{sums['group_trie'] / sums['merged']:.0%}"
        )


def read_swarm(measured: Measured) -> Iterator[Finding]:
    """The swarm and best of n against the single search."""
    for own in measured["sets"]:
        ways = {record["way"]: record for record in own["ways"]}
        single = ways["single, medium"]
        for name in ("swarm, medium", "best of 3, medium"):
            if name not in ways:
                continue
            row, at = ways[name], f"{name}, {own['set']} ({own['questions']} questions)"
            yield gain(f"{at}, recall@10", row.get("interval"), "a single search")
            yield beside(f"{at}, tokens", row["tokens"], single["tokens"], "a single search", form="{:,.0f}")
            yield beside(f"{at}, critical steps", row["critical steps"], single["critical steps"], "a single search")


def read_rollouts(measured: Measured) -> Iterator[Finding]:
    """Speed-up of asynchronous rollouts."""
    for own in measured["ways"]:
        if own["staleness bound"]:
            what = f"asynchronous rollouts ({own['tail']}, training {own['train']:g} of a step), times as fast"
            yield goal(what, own["speedup"]["mean"], least=2.0, form="{:.2f}")


def read_load(measured: Measured) -> Iterator[Finding]:
    """CPU time a turn, and its growth."""
    for tools in ("real", "instant"):
        what = f"harness CPU a turn, ms, {measured[tools]['searches']} searches at once, {tools} tools"
        yield goal(what, measured[tools]["own_ms_per_turn"], most=5.0)
    row = measured["growing"]
    bound = row["late_tokens"] / row["early_tokens"]
    yield goal("a late turn over an early one, no more than its tokens grow", row["ratio"], most=bound, form="{:.2f}")


def read_http(measured: Measured) -> Iterator[Finding]:
    """Rates beside bare uvicorn and beside the engine alone."""
    for row in measured["rows"]:
        clients = f"{row['clients']} client{'s' if row['clients'] > 1 else ''}"
        what = f"searches a second over HTTP, effort minimal, {clients}"
        ours = row["minimal"]["per_s"]
        yield beside(what, ours, row["bare"]["per_s"], "bare uvicorn, same bytes", less_is_better=False)
        yield beside(what, ours, row["engine"]["per_s"], "the engine without HTTP", less_is_better=False)
        yield told(f"p50 and p95 ms, {clients}", f"{row['minimal']['p50_ms']} and {row['minimal']['p95_ms']}")


def read_leak(measured: Measured) -> Iterator[Finding]:
    """What has grown."""
    first, last = measured["seen"][0], measured["seen"][-1]
    count = round(last["requests"] - first["requests"])
    figure = "; ".join(measured["leaks"]) or f"{last['rss_mb'] - first['rss_mb']:+.1f} MB of {first['rss_mb']:.0f}"
    verdict = Verdict.MISSED if measured["leaks"] else Verdict.MET
    yield Finding(f"growth of the server over {count:,} requests", figure, verdict, goal="nothing above its bound")


def read_canary(measured: Measured) -> Iterator[Finding]:
    """False promotions, and true ones."""
    for name, rates in measured["cases"].items():
        share = rates["promoted"] / measured["runs"]
        if name.startswith(("equal", "worse")):
            yield goal(f"canaries promoted, {name}", share, most=0.05, form="{:.1%}")
        else:
            yield told(f"canaries promoted, {name}", f"{share:.1%}")


def read_extraction(measured: Measured) -> Iterator[Finding]:
    """Quality on made pages, and the slowest page."""
    ours = measured["made"]["ours"]["all"]
    for name in measured["systems"][1:]:
        theirs = measured["made"][name]["all"]
        for metric in ("recall", "precision"):
            what = f"main text of {ours['pages']} made pages, {metric}"
            yield beside(what, ours[metric], theirs[metric], name, less_is_better=False, form="{:.1%}")
        yield beside("ms a page, median", ours["ms_median"], theirs["ms_median"], name, form="{:.1f}")
    for case, row in measured["hostile"].items():
        if "ended" in row["ours"]:
            yield Finding(f"a page made to be slow: {case}", str(row["ours"]["ended"]), Verdict.MISSED, goal="it ends")
    slow = [row["ours"]["seconds"] for row in measured["hostile"].values() if "seconds" in row["ours"]]
    if slow:
        yield told("the slowest of the pages made to be slow, CPU seconds", f"{max(slow):.1f}")


def read_citations(measured: Measured) -> Iterator[Finding]:
    """Exactness of quotes."""
    for own in measured["sets"]:
        what = f"exact citations, {own['set']} ({own['citations']} in {own['answers']} answers)"
        if own["citations"]:
            yield goal(what, own["exact"] / own["citations"], least=1.0, form="{:.2%}")
        right = f"{own['right']} of {own['answers']}; {own['withheld']} of {own['questions']} withheld"
        yield told(f"answers that hold a right answer word for word, {own['set']}", right)


def read_startup(measured: Measured) -> Iterator[Finding]:
    """Time of `thresher --help`."""
    yield goal("thresher --help, median ms", measured["commands"]["thresher --help"]["p50"], most=500)


def _reranker(data: Path, work: Path) -> list[str]:
    sets = [str(data / name) for name in ("musique", "hotpotqa", "multihop_rag_partial", "mtrag_un")]
    return [*sets, "-o", str(work / "reranker"), "--held-out", str(data / "enron_mini")]


def _swarm(data: Path, work: Path) -> list[str]:
    return [str(data / "hotpotqa"), "--parts"]


CLAIMS = (
    Claim("scale", _texts, read_scale, needs=("musique",)),
    Claim("grep", _texts, read_grep, needs=("musique",)),
    Claim("ingestion", lambda data, work: ["--texts", str(data)], read_ingestion, needs=("musique",)),
    Claim("agent", _sets(*REAL_SETS), read_agent, needs=REAL_SETS),
    Claim("builtin", _sets(*REAL_SETS), read_builtin, needs=REAL_SETS),
    Claim("fusion", _sets(*REAL_SETS[:4]), read_fusion, needs=REAL_SETS[:4]),
    Claim("train_reranker", _reranker, read_reranker, needs=REAL_SETS),
    Claim("citations", _sets("musique"), read_citations, needs=("musique",)),
    Claim("swarm", _swarm, read_swarm, needs=("hotpotqa",)),
    Claim("edits", _sets("musique"), read_edits, needs=("musique",)),
    Claim("segments", _sets("musique"), read_segments, needs=("musique",)),
    Claim("rollouts", _nothing, read_rollouts),
    Claim("canary", _nothing, read_canary),
    Claim("load", _nothing, read_load),
    Claim("http_load", _nothing, read_http),
    Claim("http_leak", _nothing, read_leak),
    Claim("extraction", _sets("messy"), read_extraction, needs=("messy",)),
    Claim("startup", _nothing, read_startup),
)
