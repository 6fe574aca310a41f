"""How to read a report, in a few plain lines: only on what it holds."""

from __future__ import annotations

from thresher.train.evaluation.reporting.figures import known
from thresher.train.evaluation.reporting.reading import Data, Part, baseline, overall, parts
from thresher.train.evaluation.reporting.tables import by_hop


def facts(data: Data) -> list[tuple[str, str]]:
    """When, where and with what it was measured: names and values."""
    machine = data.get("machine") or {}
    cpus = machine.get("cpus")
    told = [
        f"{cpus} CPU{'' if cpus == 1 else 's'}" if cpus else "",
        str(machine.get("platform") or ""),
        f"Python {machine['python']}" if machine.get("python") else "",
    ]
    at_once = int(known(data.get("at_once")) or 1)
    named = [
        ("version", f"thresher {data['version']}" if data.get("version") else ""),
        ("machine", ", ".join(part for part in told if part)),
        ("embedder", str(data.get("embedder") or "")),
        ("ranking", str(data.get("ranking") or "")),
        ("results", f"at most {data['max_results']} passages" if data.get("max_results") else ""),
        ("baseline", baseline(data)),
        ("questions at once", f"{at_once:,}; seconds are those of a loaded machine" if at_once > 1 else ""),
        ("settings", ", ".join(f"{key} {value}" for key, value in (data.get("settings") or {}).items() if value)),
    ]
    return [(name, value) for name, value in named if value]


def remarks(part: Part) -> list[str]:
    """What whoever reads the figures of a set should know."""
    said = [f"Warning: {warning}." for warning in part.data.get("warnings") or ()]
    missing, excerpts = (int(known(part.data.get(key)) or 0) for key in ("excerpts_not_located", "excerpts"))
    if missing:
        said.append(
            f"{missing:,} of {excerpts:,} excerpts stand in no document of the index; their questions are not scored "
            "by excerpt."
        )
    return said


def how_to_read(data: Data) -> list[str]:
    """What the figures mean, one line each, with the sources of the methods."""
    sets = parts(data)
    first = baseline(data)
    lines = [
        f"Every system answered the same questions on the same index. {first} is what all others are compared with. "
        "Figures depend on the documents that a set comes with: compare systems within a set.",
    ]
    if any(part.has("recall_10") for part in sets):
        lines.append(
            "recall@k is the share of a question's gold documents among the first k documents returned; all gold@10 "
            "the share of questions with all of them among the first 10; nDCG@10 also counts their places (Järvelin "
            "and Kekäläinen 2002). Answer found: one of the answers occurs in a returned passage. Questions without "
            "gold are left out of these."
        )
    if any(part.differences for part in sets):
        lines.append(
            "Differences are paired by question. Intervals are 95 % percentile intervals of the bootstrap (Efron and "
            "Tibshirani 1993). They are not corrected for their number: where nothing differs, about one in twenty "
            "still leaves zero outside."
        )
    if overall(data) is not None:
        lines.append(
            "Overall is the mean over the sets that have the figure, each counted once however many questions it has; "
            "its intervals resample the questions of each set by themselves (stratified). Counts are sums."
        )
    if any(part.has("span_recall") for part in sets):
        lines.append(
            "Excerpts are compared with the returned passages by character, after Smith and Troynikov 2024 (they count "
            "tokens): recall is the share of the excerpts that was returned, precision the share of what was returned "
            "that lies in an excerpt, IoU what is in both over what is in either."
        )
    if any(part.has("abstention_recall") for part in sets):
        lines.append(
            "Abstention: precision is the share of the questions called insufficient that have no gold, recall the "
            "share of the questions without gold that were called insufficient, F1 their harmonic mean."
        )
    if any(by_hop(summary.get("hop_recall")) for part in sets for summary in part.summaries.values()):
        lines.append(
            "Recall by hop: the share of tasks whose gold document of that step of the decomposition is among the "
            "first 10; a chain is found if those of all steps so far are."
        )
    lines.append(
        "Peak context is the largest prompt of a search in tokens; prompt tokens are those of all its turns. Seconds "
        "are of this machine; × one search is the median over questions of the time over that of "
        f"{first} on the same question in the same run, and carries over better."
    )
    return lines
