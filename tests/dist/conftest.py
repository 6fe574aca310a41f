"""What `make dist` has built."""

from __future__ import annotations

from pathlib import Path

import pytest
from imports_support import ROOT


def built(pattern: str) -> Path:
    found = sorted((ROOT / "dist").glob(pattern))
    assert len(found) == 1, f"dist/ has {len(found)} files {pattern}; run: make dist"
    return found[0]


@pytest.fixture(scope="session")
def wheel() -> Path:
    return built("*.whl")


@pytest.fixture(scope="session")
def sdist() -> Path:
    return built("*.tar.gz")
