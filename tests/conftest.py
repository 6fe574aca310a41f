"""Shared by all suites: no network, no settings from outside, a data directory of one's own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports the libraries that read them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# pytest-xdist gives its workers the width of a terminal that is not theirs; what commands print would be cut to it.
os.environ.pop("COLUMNS", None)
# What a user has configured must not reach fixtures of a wider scope than a test either.
for _name in list(os.environ):
    if _name.startswith(("THRESHER_", "OPENAI_")) and not _name.startswith("THRESHER_TEST_"):
        del os.environ[_name]

# A busy machine is no failure, and no fixture here keeps what an example did.
settings.register_profile(
    "thresher",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.load_profile("thresher")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without credentials, all the tests that need Chroma Cloud are one skipped test, which says how many they are."""
    from remote_support import CREDENTIALS

    clouded = [item for item in items if item.get_closest_marker("cloud")]
    if clouded and (missing := [name for name in CREDENTIALS if not os.environ.get(name)]):
        reason = f"{len(clouded)} tests in Chroma Cloud itself need credentials: {', '.join(missing)} not set"
        clouded[0].add_marker(pytest.mark.skip(reason=reason))
        config.hook.pytest_deselected(items=clouded[1:])
        items[:] = [item for item in items if item not in set(clouded[1:])]


@pytest.fixture(scope="session", autouse=True)
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A short path for sockets, since test directories have too long ones; what killed servers leave goes with it.

    Fails when processes that the tests started are still there at the end.
    """
    with tempfile.TemporaryDirectory(prefix="thresher-tests-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield
        marks = (folder.encode(), os.fsencode(tmp_path_factory.getbasetemp()) + b"/")
        deadline = time.monotonic() + 20
        while (left := processes(marks)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, f"still running: {left}"


def processes(marks: tuple[bytes, ...]) -> list[str]:
    """Command lines of other processes that have one of `marks` in their arguments or their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            shown = command.replace(b"\0", b" ").decode(errors="replace")
            helper = b"multiprocessing.resource_tracker" in command  # ends with us
            if command and entry.name != str(os.getpid()) and not helper:
                text = command + (entry / "environ").read_bytes()
                found += [f"{entry.name} {shown}"] if any(mark in text for mark in marks) else []
    return found


@pytest.fixture(autouse=True)
def thresher_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty THRESHER_HOME, so that no test sees or touches the user's own, nor the user's settings."""
    for variable in list(os.environ):
        if variable.startswith(("THRESHER_", "OPENAI_")) and not variable.startswith("THRESHER_TEST_"):
            monkeypatch.delenv(variable)
    home = tmp_path / "thresher-home"
    monkeypatch.setenv("THRESHER_HOME", str(home))
    return home


@pytest.fixture
def sample_docs() -> Path:
    """The packaged sample corpus: a folder of documents."""
    return Path(str(files("thresher.corpus"))) / "sample" / "docs"
