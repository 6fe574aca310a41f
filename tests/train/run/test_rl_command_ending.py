"""`thresher train rl` ends with a warning where nothing was trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from face_support import Outcome

pytest.importorskip("trl")
pytest.importorskip("peft")


def test_a_run_that_trained_nothing_ends_with_a_warning(
    tiny: Path, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model with random weights writes no call that can be run, so all its searches earn the same."""
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))
    sets = (
        "search.max_turns=1",
        "search.max_tokens=4096",
        "rollouts.group_size=2",
        "rollouts.groups_per_step=1",
        "rollouts.refill=1.0",
        "sampling.max_reply_tokens=8",
        "lora.rank=4",
        "evaluation.limit=0",
    )
    words = [part for word in sets for part in ("--set", word)]
    shown = Outcome(
        *("train", "rl", tasks, "-m", tiny, "-o", tmp_path / "run", "--steps", 1, "--embedder", "wordllama", *words)
    )
    assert shown.code == 0, shown.err
    assert "2 of 2 groups constant" in shown.err, "the refilled one was told of, too"
    said = " ".join(shown.err.split())
    assert "warning: nothing was trained: none of 1 steps changed the weights" in said
    assert "thresher train doctor" in said
