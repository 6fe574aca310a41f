"""Every test and file of the code that the pages of guarantees, limits and security name exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs" / "guarantees").glob("*.md")),
    ROOT / "docs" / "security.md",
    ROOT / "docs" / "limits.md",
]
EXAMPLE = "tests/FILE.py"

_NAMED = re.compile(r"tests/[\w./-]+\.py(?:::(\w+))?")
_CODE = re.compile(r"`((?:context|corpus|engine|train|api)/[\w/]+(?:\.py|/))`")


def named(page: Path) -> list[tuple[str, str]]:
    text = page.read_text(encoding="utf-8")
    found = [(match[0].partition("::")[0], match[1] or "") for match in _NAMED.finditer(text)]
    return [(file, function) for file, function in found if file != EXAMPLE]


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_is_named_exists(page: Path) -> None:
    missing = [
        f"{file}::{function}"
        for file, function in named(page)
        if not (ROOT / file).is_file() or (function and function not in functions(file))
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_of_the_code_that_is_named_exists(page: Path) -> None:
    places = _CODE.findall(page.read_text(encoding="utf-8"))
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "guarantees" and page.stem != "index"])
def test_every_promise_names_a_test(page: Path) -> None:
    promised = page.read_text(encoding="utf-8").partition("## What is not promised")[0]
    promises = re.split(r"^(?=\*\*)", promised, flags=re.MULTILINE)[1:]
    assert promises
    assert [promise.split("**")[1] for promise in promises if "`tests/" not in promise] == []
