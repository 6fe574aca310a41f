from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from door_support import doors


class Door(NamedTuple):
    """The server's base URL, and a key of another tenant than that of `KEY`."""

    url: str
    foreign_key: str


@pytest.fixture(scope="module", autouse=True)
def thresher_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of the module's server, in place of one for each test."""
    home = tmp_path_factory.mktemp("doors") / "thresher-home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THRESHER_HOME", str(home))
        for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.delenv(proxy, raising=False)
        yield home


@pytest.fixture(scope="module")
def door(thresher_home: Path) -> Iterator[Door]:
    with doors() as (url, foreign_key):
        yield Door(url, foreign_key)
