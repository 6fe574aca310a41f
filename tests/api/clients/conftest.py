from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_support import live_server


@pytest.fixture
def harbour_url(harbour: str) -> Iterator[str]:
    """A server of the collection `harbour`, with the built-in policy."""
    with live_server() as url:
        yield url
