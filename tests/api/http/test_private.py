"""What clients are told is clean of the server's own paths and addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from search_support import QUESTION, frames, look, serving

from thresher.api.errors import explain_to_client
from thresher.api.private import ADDRESS, for_client
from thresher.corpus.collection import Collection
from thresher.corpus.errors import EmbedderError
from thresher.corpus.paths import home
from thresher.engine.errors import EngineError
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, View


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/v1", "http://10.1.2.3/v1", "http://[::1]:80/x", "http://vllm:8000", "https://a.svc"]
)
def test_addresses_of_the_servers_network_are_left_out(url: str) -> None:
    assert for_client(f"{url} does not answer ({url}), wait") == f"{ADDRESS} does not answer ({ADDRESS}), wait"


@pytest.mark.parametrize(
    "text", ["https://example.org/a.html was read", "no path: a/b, ~/x", "1 < 2", "http:// is none"]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert for_client(text) == text


def test_the_home_is_called_by_its_name(thresher_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert for_client(f"see {home()}/collections/a") == "see THRESHER_HOME/collections/a"
    assert for_client(f"see {home()}.") == "see THRESHER_HOME."
    assert for_client(f"{home()}-other/a") == f"{home()}-other/a"
    link = tmp_path / "link"
    link.symlink_to(thresher_home)
    monkeypatch.setenv("THRESHER_HOME", str(link))
    assert for_client(f"{link}/a and {thresher_home.resolve()}/b") == "THRESHER_HOME/a and THRESHER_HOME/b"


def test_errors_are_told_clean_and_logged_whole(thresher_home: Path) -> None:
    problem, log = explain_to_client(EmbedderError(f"http://vllm:8000/v1 refused {home()}/x"))
    assert (problem.message, log) == (f"{ADDRESS} refused THRESHER_HOME/x", True)
    assert explain_to_client(EmbedderError("it is down"))[1] is False


async def test_a_search_tells_no_path_and_no_address(harbour: str, thresher_home: Path) -> None:
    def breaks(view: View) -> Decision:
        raise EngineError(f"http://vllm:8000/v1 has no {home()}/model")

    def policy(_: Collection) -> Any:
        return ScriptedPolicy([look, breaks])

    async with serving(policy) as (http, _):
        body = (await http.post("/v1/search", json={"query": QUESTION})).json()
        async with http.stream("POST", "/v1/search", json={"query": QUESTION, "stream": True}) as response:
            told = [frame async for frame in frames(response)]
        kept = (await http.get(f"/v1/searches/{body['id']}")).json()
    assert any(f"{ADDRESS} has no THRESHER_HOME/model" in warning for warning in body["warnings"])
    for seen in (body, told, kept):
        assert "vllm" not in str(seen)
        assert str(thresher_home) not in str(seen)
