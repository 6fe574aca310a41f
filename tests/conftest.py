"""Shared by all suites: no network, no settings from outside, a data directory of one's own."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import pytest

# Before anything imports the libraries that read them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def thresher_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty THRESHER_HOME, so that no test sees or touches the user's own, nor the user's settings."""
    for variable in list(os.environ):
        if variable.startswith("THRESHER_") and variable != "THRESHER_TEST_DATA":
            monkeypatch.delenv(variable)
    home = tmp_path / "thresher-home"
    monkeypatch.setenv("THRESHER_HOME", str(home))
    return home


@pytest.fixture
def sample_docs() -> Path:
    """The packaged sample corpus: a folder of documents."""
    return Path(str(files("thresher.corpus"))) / "sample" / "docs"
