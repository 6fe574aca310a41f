"""What pyproject.toml, CONTRIBUTING.md and CHANGELOG.md say of the package is what is in the folders."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from changelog_support import sections
from imports_support import LAYERS, ROOT, packages, sources, uses_in

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Imported, and brought by a package that is declared: the one that it is a part of, or is always installed with.
BROUGHT = {
    "httpcore": "httpx",
    "huggingface-hub": "sentence-transformers",
    "mcp-types": "mcp",
    "pydantic-core": "pydantic",
    "starlette": "fastapi",
    "transformers": "sentence-transformers",
}
# Packages of data alone.
DATA = {"thresher.corpus.sample"}
# Used where whoever runs Thresher has installed them; no extra brings them.
ONES_OWN = {"opentelemetry", "wandb"}


def declared() -> set[str]:
    """The names of all distributions that the package or one of its extras asks for."""
    project = PYPROJECT["project"]
    asked = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    return {normalised(re.split(r"[\[<>=!~; ]", each)[0]) for each in asked}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_is_installed() -> None:
    """setuptools leaves out, without a word, a folder that is not listed."""
    assert PYPROJECT["tool"]["setuptools"]["packages"] == sorted([*packages(), *DATA])
    for layer in LAYERS:
        assert (ROOT / layer / "py.typed").is_file()


def test_every_package_says_what_it_is() -> None:
    for name in packages():
        folder = ROOT.joinpath(*name.split(".")[1:])
        assert (folder / "__init__.py").read_text(encoding="utf-8").startswith('"""'), f"{folder} has no docstring"


def test_what_is_imported_is_declared() -> None:
    known, installed = declared(), packages_distributions()
    for path in sources():
        for use in uses_in(path):
            top = use.module.partition(".")[0]
            if use.how != "import" or top in sys.stdlib_module_names or top in {"thresher", *ONES_OWN}:
                continue
            names = {normalised(name) for name in installed.get(top, ())}
            if names:  # else of an extra that is not installed here
                names |= {BROUGHT[name] for name in names & BROUGHT.keys()}
                assert names & known, (
                    f"{path.relative_to(ROOT)}, line {use.line}: {top} is in no dependency and no extra"
                )


def test_contributing_names_every_package() -> None:
    """A row for each package of a layer; the row of a package names those inside it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `((?:context|corpus|engine|train|api)/[^`]*)` \| (.*) \|$", text, re.MULTILINE))
    folders = {name.removeprefix("thresher.").replace(".", "/") + "/" for name in {*packages(), *DATA}}
    assert set(rows) == {folder for folder in folders if folder.count("/") <= 2}
    for folder in folders - set(rows):
        above = next(row for row in rows if row.count("/") == 2 and folder.startswith(row))
        assert f"`{folder.removeprefix(above)}`" in rows[above], f"the row of {above} does not name {folder}"
    for above, said in rows.items():
        for inside in re.findall(r"`([a-z0-9_/]+/)`", said):
            assert above + inside in folders, f"the row of {above} names {inside}, which is not there"


def test_contributing_names_the_suites() -> None:
    """Each target that is named exists, and each target that runs tests is named."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^\$ make ([a-z-]+)", text, re.MULTILINE))
    assert named <= targets
    suites = {target for target in targets if target.startswith("test")} | {"lint", "typecheck", "unit", "docs", "dist"}
    assert suites <= named
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    stages = set(re.findall(r"^(?:stage|tests) ([a-z-]+)$", ci, re.MULTILINE))
    assert stages <= targets
    assert {"test", "test-slow", "docs", "test-docs", "test-browser", "test-serve", "test-dist"} <= stages


def test_the_version_is_of_what_comes_next_or_of_what_was_released() -> None:
    """Two states of the code never carry one version: what was released under it has no unreleased changes on top."""
    version = PYPROJECT["project"]["version"]
    changes = sections()
    assert changes[0].name == "Unreleased"
    released = [section for section in changes[1:] if section.date]
    assert released == changes[1:], "a released version has a date"
    if any(section.name == version for section in released):
        assert released[0].name == version
        assert changes[0].text == "", f"{version} is released: raise `version` in pyproject.toml"
