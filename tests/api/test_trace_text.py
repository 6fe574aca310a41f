"""A trace in a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from trace_support import QUESTION, searched

from thresher.api.cli.trace_text import BAR, print_trajectory
from thresher.api.tracing import Prices
from thresher.context import Citation
from thresher.engine.requests import Answer
from thresher.engine.trajectory import Trajectory


def shown(
    trajectory: Trajectory, answer: Answer | None = None, *, prices: Prices | None = None, encoding: str = "utf-8"
) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(file=stream, width=160, highlight=False, markup=False, emoji=False, soft_wrap=True)
    print_trajectory(console, trajectory, answer, prices=prices)
    stream.seek(0)
    return stream.read()


def usual(folder: Path) -> Trajectory:
    trajectory = searched(folder).trajectory
    assert trajectory is not None
    return trajectory


def test_every_turn_tells_what_was_asked_shown_edited_and_paid(tmp_path: Path) -> None:
    trajectory = usual(tmp_path)
    text = shown(trajectory, prices=Prices(1.0, 2.0, currency="EUR"))
    assert QUESTION in text
    assert 'search_corpus "Brask works founder"' in text
    assert re.search(r"receipt: prune; removed c\d+.*tokens freed", text)
    assert "recovered: the name had a prefix" in text
    assert "2,000 prompt tokens, 1,500 of them in the server's cache, 40 written" in text
    assert "2 retries" in text
    assert re.search(r"0\.\d+ EUR", text)
    assert re.search(r"✗ c\d+ +corran", text)
    assert re.search(r"★ +1\. c\d+ +brask\.md", text)
    assert "EUR" not in shown(trajectory)


def test_the_bar_is_as_long_as_the_budget_and_marks_its_limits(tmp_path: Path) -> None:
    trajectory = usual(tmp_path)
    bars = [line.strip() for line in shown(trajectory).splitlines() if re.fullmatch(r" +[▓▒█▚░·│]+", line)]
    assert len(bars) == len(trajectory.turns)
    for bar in bars:
        assert len(bar) == BAR
        assert (bar[BAR // 2], bar[BAR * 3 // 4]) == ("│", "│")
        assert bar.startswith("▓")
    legend = re.search(
        r"instructions ([\d,]+),.* passages ([\d,]+).*limits: soft 16,384, hard 24,576", shown(trajectory)
    )
    assert legend is not None


def test_a_terminal_without_unicode_gets_letters(tmp_path: Path) -> None:
    text = shown(usual(tmp_path), encoding="ascii")
    assert re.search(r"^  i[ip#n.e|]{39}$", text, re.MULTILINE)
    assert re.search(r"^    x c\d+", text, re.MULTILINE)


def test_agents_are_indented_below_the_search(tmp_path: Path) -> None:
    trajectory = usual(tmp_path)
    inner = trajectory.model_copy(update={"id": f"{trajectory.id}/alpha/beta", "question": "Which yard\nwas it?"})
    agent = trajectory.model_copy(update={"id": f"{trajectory.id}/alpha", "subagents": (inner,)})
    lines = shown(trajectory.model_copy(update={"subagents": (agent,)})).splitlines()
    assert lines[-1].endswith(", those of agents that ran at once added up")
    assert "    agent alpha" in lines
    assert "        agent beta" in [line.replace("alpha/", "") for line in lines]
    at = next(n for n, line in enumerate(lines) if line.strip() == "agent beta")
    assert lines[at + 1 : at + 3] == ["        Q: Which yard", "        was it?"]
    assert sum(line.startswith("        turn ") for line in lines) == 4
    assert sum(line.startswith("turn ") for line in lines) == 4


def test_the_answer_is_shown_with_what_carries_it(tmp_path: Path) -> None:
    trajectory = usual(tmp_path)
    source = next(e for e in trajectory.evidence if "Edda Brask" in e.text)
    start = source.start + source.text.index("Edda")
    cited = Citation(source.id, source.document_id, source.uri, start, start + 10, "Edda Brask")
    forged = Citation(source.id, source.document_id, source.uri, start, start + 10, "Otto Brask")
    text = shown(trajectory, Answer("It was\x1b[2J Edda Brask.", (cited, forged)))
    assert "answer: It was\ufffd[2J Edda Brask." in text
    assert f"[{source.id}] » Edda Brask\n" in text
    assert f"[{source.id}] » Otto Brask  (not found in the passage)" in text
    assert "no answer: nobody knows" in shown(trajectory, Answer("", withheld_reason="nobody knows"))
