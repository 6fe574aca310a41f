"""The packages that docs/extend shows declare what their modules hold, in groups that are looked into.

That the pages' commands and programs run is `test_pages.py`'s, which installs these packages.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from thresher.corpus.plugins import Group

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "extend").glob("*.md"))

_FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def files(page: Path) -> dict[str, str]:
    """The files that a page has its reader save, by name."""
    return dict(_FILE.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_package_declares_is_in_its_module(page: Path) -> None:
    shown = files(page)
    points = tomllib.loads(shown["harbour/pyproject.toml"])["project"]["entry-points"]
    module: dict[str, Any] = {"__name__": "harbour"}
    exec(compile(shown["harbour/harbour.py"], f"{page.name}: harbour.py", "exec"), module)
    for group, named in points.items():
        assert Group(group)
        for value in named.values():
            package, _, attribute = value.partition(":")
            assert package == "harbour"
            assert callable(module[attribute])


def test_every_group_is_explained_and_has_an_example_or_a_section() -> None:
    index = (ROOT / "docs" / "extend" / "index.md").read_text(encoding="utf-8")
    assert [group for group in Group if f"`{group}`" not in index] == []
