from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from thresher.api.cli.progress import Bar, describe
from thresher.corpus.ingestion.progress import Progress


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(0, 1, 0, 0, 0, 0, 0, 0.0), "0/1 file, 0 passages, 0/s"),
        (
            Progress(3, 1_200, 2_000, 8_000, 30, 90, 90, 30.0, current="papers/a\x1b[2J.pdf"),
            "3/1,200 files, 90 passages, 3/s, 1:30 left, papers/a\ufffd[2J.pdf",
        ),
    ],
)
def test_progress_in_words(progress: Progress, expected: str) -> None:
    assert describe(progress) == expected


def test_the_bar_shows_what_any_operation_tells() -> None:
    shown: list[tuple[float, float, str]] = []
    bar = Bar(lambda done, total, words: shown.append((done, total, words)))
    # As it comes from a server: plain JSON.
    bar.on_event("ingest", json.loads(json.dumps(asdict(Progress(1, 2, 50, 100, 1, 3, 3, 1.5, current="a.txt")))))
    bar.on_event("documents", {"done": 1, "total": 1_200})
    bar.on_event("questions", {"done": 0, "total": 1})
    bar.on_event("search", {"type": "turn.started", "data": {}})
    assert shown == [
        (0.5, 1.0, "1/2 files, 3 passages, 2/s, 0:02 left, a.txt"),
        (1, 1_200, "1/1,200 documents"),
        (0, 1, "0/1 question"),
    ]


def test_the_bar_shows_on_a_terminal_and_leaves_stdout_alone(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("A note about tides.")
    terminal, end = pty.openpty()
    code = "from thresher.api.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "ingest", str(tmp_path / "note.txt"), "--embedder", "wordllama", "--json"],
        stdout=subprocess.PIPE,
        stderr=end,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        text=True,
    )
    os.close(end)
    shown = b""
    while True:
        try:
            read = os.read(terminal, 4_096)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not read:
            break
        shown += read
    os.close(terminal)
    stdout, _ = process.communicate()
    assert process.returncode == 0
    assert b"1/1 file, 1 passage" in shown
    assert stdout.startswith("{")
    assert "passage," not in stdout
