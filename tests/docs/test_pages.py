"""Each page is run from top to bottom, as a reader would."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from not_run import entries
from pages import Page, Program, Saved, all_pages
from running import PageFailed, Runner, name_of

pytestmark = pytest.mark.docs
ELSEWHERE = {"PYPI.md"}  # by tests/dist/test_installed.py, in an environment that has the wheel and nothing else
RUNNABLE = [path for path in all_pages() if path not in ELSEWHERE and Page.read(path).steps]
NEEDED = {
    "thresher train sft": "trl",
    "thresher train rl": "trl",
    "thresher train plot": "matplotlib",
    "thresher mcp": "mcp",
    "integrations.langchain": "langchain_core",
    "integrations.llama_index": "llama_index",
}
"""Commands and modules of ours that need an extra, with a package of it."""


@pytest.mark.parametrize("path", RUNNABLE)
def test_page(path: str, tmp_path: Path) -> None:
    page = Page.read(path)
    if missing := sorted({name for name in packages(page) if find_spec(name) is None}):
        pytest.skip(f"{path} needs {', '.join(missing)}: set EXTRAS=dev,clients,train,docs")
    not_run = [entry.command for entry in entries() if entry.page == path]
    try:
        done = Runner(page, tmp_path, not_run=not_run).run()
    except PageFailed as failed:
        pytest.fail(str(failed), pytrace=False)
    slowest = sorted(done, key=lambda step: -step.seconds)[:3]
    for step in slowest:
        print(f"{step.seconds:6.1f} s  {path}:{step.step.line}: {name_of(step.step)[:90]}")


def packages(page: Page) -> Iterator[str]:
    """The packages that programs and commands of a page need, but for modules that the page itself makes."""
    own = {part for step in page.steps if isinstance(step, Saved) for part in Path(step.file).with_suffix("").parts}
    for step in page.steps:
        text = step.content if isinstance(step, Saved) else step.text
        yield from (package for used, package in NEEDED.items() if used in text)
        if isinstance(step, Program) or (isinstance(step, Saved) and step.file.endswith(".py")):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Import):
                    yield from ({alias.name.split(".")[0] for alias in node.names} - own)
                elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                    yield from ({node.module.split(".")[0]} - own)


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("docs/tutorials/fine-tuning.md", {"trl", "torch"}),
        ("docs/tutorials/mcp.md", {"mcp"}),
        ("docs/reference/server/doors.md", {"openai", "cohere"}),
        ("docs/reference/server/clients.md", {"langchain_core", "llama_index"}),
    ],
)
def test_what_a_page_needs_is_seen(path: str, needed: set[str]) -> None:
    assert needed <= set(packages(Page.read(path)))
