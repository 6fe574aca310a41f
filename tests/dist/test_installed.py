"""The wheel, installed by pip into an environment that holds nothing else, does what its description says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import httpx
import pytest
from imports_support import ROOT

pytestmark = pytest.mark.dist

FOLDER = Path(os.environ.get("THRESHER_TEST_DIST_VENV") or ROOT / ".venv-dist")
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Installed:
    """The environment, and a folder away from the sources to run things in."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "THRESHER_"))}
        self.environment = kept | {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "THRESHER_HOME": str(home / "thresher-home"),
        }

    def run(self, *command: str) -> str:
        """What the command prints on stdout. It fails the test where its status is not 0."""
        done = subprocess.run(
            command, cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-3_000:]}{done.stderr[-3_000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    venv.create(FOLDER, clear=True, with_pip=True)
    subprocess.run([FOLDER / "bin" / "python", *PIP, "install", str(wheel)], cwd=FOLDER, check=True, timeout=1_800)
    return Installed(FOLDER, tmp_path_factory.mktemp("installed"))


def test_it_is_the_wheel_that_runs(installed: Installed) -> None:
    code = "import thresher.api, thresher.train; print(thresher.api.__file__); print(thresher.train.__file__)"
    places = [Path(line) for line in installed.run("python", "-c", code).splitlines()]
    assert len(places) == 2
    assert all(place.is_relative_to(installed.folder) for place in places)
    assert installed.run("thresher", "--version").split()[-1] == VERSION


def test_its_dependencies_go_together(installed: Installed) -> None:
    installed.run("python", "-m", "pip", "check")


def test_doctor_finds_nothing_wrong(installed: Installed) -> None:
    told = json.loads(installed.run("thresher", "doctor", "--json"))
    assert told["ok"], [check for check in told["checks"] if not check["ok"]]


def test_the_demo_finds_what_it_asks_for(installed: Installed) -> None:
    told = installed.run("thresher", "demo")
    assert "expected answer" in told
    assert "MISSED" not in told


def test_the_description_holds(installed: Installed, sample_docs: Path) -> None:
    """Every command and program of PYPI.md, in order; `pip install` was done above, with the wheel."""
    notes = installed.home / "notes"
    shutil.copytree(sample_docs / "vessels", notes, dirs_exist_ok=True)
    shutil.copytree(sample_docs / "people", notes, dirs_exist_ok=True)
    printed = []
    for kind, text in BLOCK.findall((ROOT / "PYPI.md").read_text(encoding="utf-8")):
        if kind == "python":
            printed.append(installed.run("python", "-c", text))
            continue
        commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
        assert commands
        for command in commands:
            if not command.startswith("pip install thresher"):
                printed.append(installed.run("bash", "-c", command))
    assert len(printed) == 5
    assert all("Petrel" in text for text in printed[2:])  # the search, its trace, and the program


def test_the_server_starts(installed: Installed) -> None:
    """What it serves is package data as well: the page and its scripts."""
    command = [str(installed.folder / "bin" / "thresher"), "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=installed.home, env=installed.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:  # one JSON document, and no more until it ends
                lines.append(line)
                if line == "}\n":
                    break
            url = json.loads("".join(lines))["url"]
            for path in ("/healthz", "/openapi.json", "/ui", "/ui/app.js"):
                answer = httpx.get(url + path, follow_redirects=True, timeout=60)
                assert (path, answer.status_code) == (path, 200)
                assert answer.content
        finally:
            process.terminate()


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(sdist)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {each.filename: each.CRC for each in one.infolist()} == {
            each.filename: each.CRC for each in other.infolist()
        }
