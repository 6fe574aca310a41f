"""The sdist and the wheel hold what they must, and nothing else."""

from __future__ import annotations

import os
import re
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest
from changelog_support import sections
from imports_support import LAYERS, ROOT

pytestmark = pytest.mark.dist

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Lies beside the code and is not installed with it: pictures for the README, and notes for readers of the source.
BESIDE = ("api/ui/screenshots/*", "*.md")
SHIPPED = ("corpus/sample/README.md", "corpus/sample/docs/*")


def of_the_package() -> set[str]:
    """Every file of the layers that belongs into the package, relative to the root."""
    found = set()
    for path in (path for layer in LAYERS for path in (ROOT / layer).rglob("*")):
        name = path.relative_to(ROOT)
        text = name.as_posix()
        beside = any(name.match(pattern) for pattern in BESIDE)
        shipped = text.startswith("corpus/sample/docs/") or any(name.match(pattern) for pattern in SHIPPED)
        if path.is_file() and "__pycache__" not in name.parts and (shipped or not beside):
            found.add(text)
    return found


def names_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    packaged = {f"thresher/{name}" for name in of_the_package()}
    names = {name for name in names_of(wheel) if ".dist-info/" not in name}
    assert names == packaged
    for needed in (
        "thresher/api/ui/index.html",
        "thresher/api/py.typed",
        "thresher/corpus/sample/queries.jsonl",
        "thresher/engine/policies/builtin/weights.json",
        "thresher/train/judges/shipped/grounded.toml",
    ):
        assert needed in names


def test_the_wheel_has_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_the_sdist_has_the_sources_and_no_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {str(PurePosixPath(*PurePosixPath(each.name).parts[1:])) for each in archive if each.isfile()}
    own = {"LICENSE", "PYPI.md", "CHANGELOG.md", "MANIFEST.in", "pyproject.toml"}
    written = {"PKG-INFO", "setup.cfg"} | {name for name in names if name.startswith("thresher.egg-info/")}
    assert own <= names
    # README.md is found by its name, whether it is asked for or not.
    assert names - own - written - {"README.md"} == of_the_package()


def test_what_the_index_shows(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Name"] == "thresher"
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    described = str(metadata.get_payload())
    assert described.startswith("# Thresher")
    links = re.findall(r"\]\(([^)]*)\)", described)
    assert [link for link in links if not link.startswith("https://")] == []  # a package index resolves no other
    extras = set(metadata.get_all("Provides-Extra", []))
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", described, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    assert named == extras - {"bench", "clients", "dev", "docs", "release"}


def test_the_tag_is_the_version() -> None:
    """In the release workflow: `THRESHER_TEST_TAG` is what was tagged, and its changes are written down and dated."""
    tag = os.environ.get("THRESHER_TEST_TAG")
    if not tag:
        pytest.skip("THRESHER_TEST_TAG is not set: no release")
    version = PROJECT["version"]
    assert tag == f"v{version}"
    newest = next(section for section in sections() if section.name != "Unreleased")
    assert newest.name == version
    assert newest.date
    assert not any(section.text for section in sections() if section.name == "Unreleased")
