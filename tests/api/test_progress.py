from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from thresher.api.cli.progress import describe
from thresher.corpus.progress import Progress


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
