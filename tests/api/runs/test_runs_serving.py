"""The page of runs on a port: always as things are, for this machine alone."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import PATIENCE_S, started
from runs_support import append_step, real_groups, rl_run, write_steps
from support import make_collection
from trace_support import TEXTS


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    rl_run(folder / "plain")
    rolled = rl_run(folder / "rolled")
    (rolled / "log.jsonl").unlink()
    with make_collection(folder / "collection", TEXTS) as collection:
        write_steps(rolled, [(1, real_groups(collection, 2))])
    return folder


@pytest.fixture(scope="module")
def url(runs: Path) -> Iterator[str]:
    with started("runs", runs, "--serve", "--follow") as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        [found] = re.findall(r"http://127\.0\.0\.1:\d+", said)
        yield found
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, err) == (130, "")


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, timeout=PATIENCE_S, **options)


def test_each_look_shows_runs_as_they_are(url: str, runs: Path) -> None:
    first = get(url)
    assert first.status_code == 200
    assert first.headers["cache-control"] == "no-store"
    assert "39 of 39" in first.text
    assert '<meta http-equiv="refresh" content="15">' in first.text
    append_step(runs / "plain", 17)
    assert "17 of 39" in get(url).text


def test_rollouts_are_one_click_away(url: str) -> None:
    links = re.findall(r'href="(rollouts/[^"]+)"', get(url).text)
    assert len(links) == 4
    page = get(f"{url}/{links[0]}")
    assert page.status_code == 200
    assert "<title>Trace: Who founded the works" in page.text
    key = links[0].split("/")[1]
    for place in (f"rollouts/{key}/99", f"rollouts/{'0' * 16}/1", f"rollouts/{key}/x", "rollouts/..%2f..%2fetc/1", "x"):
        assert get(f"{url}/{place}").status_code == 404, place


def test_another_name_for_this_machine_is_refused(url: str) -> None:
    assert get(url, headers={"Host": "evil.example"}).status_code == 400
    assert get(url, headers={"Host": "localhost:80"}).status_code == 200


def test_nothing_can_be_sent(url: str) -> None:
    assert httpx.post(url, content=b"{}", timeout=PATIENCE_S).status_code == 405
