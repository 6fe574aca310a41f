"""What imports what, read from the source: for the tests of layers, of packages and of dependencies."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("context", "corpus", "engine", "train", "api")
_NAMED = re.compile(rf"\bthresher\.(?:{'|'.join(LAYERS)})\b(?:\.\w+)*")


@dataclass(frozen=True)
class Use:
    """A module that a file names, and where: `how` is "import", "string", or "computed" (no name can be read)."""

    line: int
    module: str
    how: str = "import"


def sources(*folders: str) -> list[Path]:
    """The Python files of `folders` (by default of all layers), sorted."""
    found = [path for folder in folders or LAYERS for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def packages(*layers: str) -> list[str]:
    """Every package of `layers` as it is imported: each folder that holds Python files."""
    folders = {path.parent.relative_to(ROOT) for path in sources(*layers)}
    return sorted(".".join(("thresher", *folder.parts)) for folder in folders)


def module_of(path: Path) -> str:
    """The name that the file at `path` is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("thresher", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def uses(source: str) -> Iterator[Use]:
    """All modules that `source` names: by import statements wherever they stand, and in strings.

    Strings count, since `import_module("thresher.api")`, `[python, "-m", "thresher.api"]` and `python -c "import
    thresher.api"` import as well; docstrings do not. A relative import is given with its dots, for a test to refuse.
    """
    tree = ast.parse(source)
    documentation = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as constant):
                documentation.add(id(constant))
            case ast.Import(names=names):
                yield from (Use(node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = "." * level + (module or "")
                yield Use(node.lineno, base)
                yield from (Use(node.lineno, f"{base.rstrip('.') or base}.{alias.name}") for alias in names)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if name in (
                "import_module",
                "__import__",
            ):
                if not _begins_with_a_name(first):
                    yield Use(node.lineno, ast.unparse(first), "computed")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield from (Use(node.lineno, found.group(), "string") for found in _NAMED.finditer(node.value))


@cache
def uses_in(path: Path) -> tuple[Use, ...]:
    """`uses` of the file at `path`, which is read once."""
    return tuple(uses(path.read_text(encoding="utf-8")))


def _begins_with_a_name(argument: ast.expr) -> bool:
    """Whether what is imported can be read: a string, or one that begins with a string or with `__name__`."""
    start = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
    match start:
        case ast.Constant(value=str()):
            return True
        case ast.FormattedValue(value=ast.Name(id="__name__" | "__package__")):
            return True
    return False


def package_graph(*layers: str) -> dict[str, set[str]]:
    """Package -> the packages that its modules import from, without itself, what it is in and what is in it.

    The modules of a package lie both below and above those of its sub-packages (`corpus/documents.py` below
    `corpus/record`, `corpus/collection.py` above), so that only packages beside each other are compared.
    """
    known = set(packages(*layers))
    modules = {module_of(path) for path in sources(*layers)}
    graph: dict[str, set[str]] = {package: set() for package in known}
    for path in sources(*layers):
        home = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
        for use in uses_in(path):
            if use.how == "import" and use.module in modules:
                there = use.module if use.module in known else use.module.rpartition(".")[0]
                if not (f"{home}.".startswith(f"{there}.") or f"{there}.".startswith(f"{home}.")):
                    graph[home].add(there)
    return graph


def a_cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Some cycle of `graph`, from a node around to the same node; empty where there is none."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node not in done:
            for following in sorted(graph.get(node, ())):
                if found := walk(following, [*path, node]):
                    return found
            done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, []))), [])
