"""The layer rule: a layer imports only from the layers below it, and heavy packages load only where needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator

import pytest
from imports_support import LAYERS, ROOT, Use, a_cycle, package_graph, sources, uses, uses_in

BELOW: dict[str, set[str]] = {
    "context": set(),
    "corpus": set(),
    "engine": {"context", "corpus"},
    "train": {"context", "corpus", "engine"},
    "api": {"context", "corpus", "engine", "train"},
}
HEAVY = ("torch", "chromadb", "sentence_transformers", "tantivy", "transformers", "trl", "vllm", "fastapi", "pypdfium2")

# Imports that close a cycle between packages of one layer. One may be taken out of this list; none is added to it.
CLOSING = {
    ("thresher.train.rewards", "thresher.train.rollouts"),
    ("thresher.train.rollouts", "thresher.train.judges"),
    ("thresher.train.tasks", "thresher.train.rewards"),
    ("thresher.train.tasks", "thresher.train.rollouts"),
    ("thresher.train.monitoring", "thresher.train.sft"),
    ("thresher.train.monitoring", "thresher.train.trainer"),
    ("thresher.api.service.collecting", "thresher.api.service.searching"),
}

# Where a module is imported by a name that is not written there.
COMPUTED = {"api/integrations/passages.py"}  # the clients' own packages, which are extras


def scripts(folder: str) -> set[str]:
    """The names under which modules of `folder`, `tests` or `benchmarks`, are imported where it is on the path."""
    return {path.stem for path in (ROOT / folder).glob("*.py")} | {
        path.name for path in (ROOT / folder).iterdir() if (path / "__init__.py").is_file()
    }


def forbidden(used: Iterable[Use], layer: str, beside: set[str]) -> Iterator[str]:
    """What a module of `layer` must not name of `used`; `beside` are the names of test and benchmark modules."""
    for use in used:
        top, _, rest = use.module.partition(".")
        where = f"line {use.line}: {use.module}"
        if use.how == "computed":
            yield f"{where} is imported by a name that cannot be read here"
        elif use.module.startswith("."):
            yield f"{where} is a relative import; write thresher.<layer> out"
        elif use.module == "thresher":
            continue  # of `from thresher import x`, which is looked at as thresher.x
        elif top == "thresher":
            target = rest.split(".")[0]
            if target != layer and target not in BELOW[layer]:
                yield f"{where} is not below {layer}"
        elif top in LAYERS or top in ("tests", "benchmarks") or top in beside:
            yield f"{where} is not of this package when it is installed"


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_downward(layer: str) -> None:
    files = sources(layer)
    assert files
    beside = scripts("tests") | scripts("benchmarks")
    wrong = {str(path.relative_to(ROOT)): list(forbidden(uses_in(path), layer, beside)) for path in files}
    for name in COMPUTED:
        wrong[name] = [line for line in wrong.get(name, []) if "cannot be read" not in line]
    assert {name: lines for name, lines in wrong.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import thresher.api",
        "import thresher.api.config as settings",
        "from thresher import api",
        "from thresher.api import config",
        "from thresher.api.config import Settings",
        "def late():\n    from thresher.api.config import Settings",
        "try:\n    import thresher.train\nexcept ImportError:\n    pass",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thresher.api.config import Settings",
        "import importlib\nimportlib.import_module('thresher.api.config')",
        "from importlib import import_module\nimport_module(f'thresher.api.{name}')",
        "__import__('thresher.api')",
        "import importlib\nimportlib.import_module(name)",
        "import importlib\nimportlib.import_module('thresher.' + name)",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'thresher.api.cli'])",
        "CODE = 'import sys; from thresher.api import config'",
        "from .. import api",
        "from ..api import config",
        "import api",
        "from tests import support",
        "import support",
        "from benchmarks import load",
    ],
)
def test_the_rule_cannot_be_evaded(source: str) -> None:
    assert list(forbidden(uses(source), "corpus", {"support", "load"}))


@pytest.mark.parametrize(
    "source",
    [
        '"""Used by thresher.api."""\nimport thresher.corpus.errors',
        "from importlib import import_module\nimport_module(f'{__name__}.{name}')",
        "from importlib import import_module\nimport_module('thresher.corpus.errors')",
        "import apiclient, httpx",
    ],
)
def test_what_is_below_may_be_named(source: str) -> None:
    assert list(forbidden(uses(source), "corpus", {"support", "load"})) == []


@pytest.mark.parametrize(("folder", "other"), [("tests", "benchmarks"), ("benchmarks", "tests")])
def test_tests_and_benchmarks_do_not_import_each_other(folder: str, other: str) -> None:
    """Tests run benchmarks as their readers do: as scripts."""
    names = (scripts(other) | {other}) - scripts(folder) - {"http"}
    for path in sources(folder):
        for use in uses_in(path):
            top = use.module.partition(".")[0]
            own = (path.parent / f"{top}.py").is_file() or (path.parent / top).is_dir()
            assert own or top not in names, f"{path.relative_to(ROOT)}, line {use.line}: {use.module} is of {other}"


def test_packages_beside_each_other_have_no_cycle() -> None:
    graph = package_graph()
    for importer, imported in CLOSING:
        assert imported in graph[importer], f"{importer} no longer imports {imported}: take the pair out of CLOSING"
        graph[importer].remove(imported)
    assert a_cycle(graph) == []


def test_a_cycle_is_found() -> None:
    assert a_cycle({"a": ["b"], "b": ["c", "d"], "c": [], "d": ["b"]}) == ["b", "d", "b"]
    assert a_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) == []


def test_context_is_pure() -> None:
    allowed = {"__future__", "collections", "dataclasses", "enum", "hashlib", "json", "re", "typing", "thresher"}
    for path in sources("context"):
        found = {use.module.split(".")[0] for use in uses_in(path)}
        assert found <= allowed, path


@pytest.mark.parametrize(
    "module", ["thresher.context", "thresher.corpus", "thresher.engine", "thresher.api.cli", "thresher.api.client"]
)
def test_importing_a_face_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
