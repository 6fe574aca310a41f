"""The layer rule: a layer imports only from the layers below it, and heavy packages load only where needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BELOW = {
    "context": set(),
    "corpus": set(),
    "engine": {"context", "corpus"},
    "train": {"context", "corpus", "engine"},
    "api": {"context", "corpus", "engine", "train"},
}
HEAVY = ("torch", "chromadb", "sentence_transformers", "tantivy", "transformers", "trl", "vllm", "fastapi", "pypdfium2")


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write thresher.<layer> out"
            found.add(node.module or "")
            if node.module == "thresher":
                found.update(f"thresher.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("layer", BELOW)
def test_imports_point_downward(layer: str) -> None:
    files = list((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        for module in imported_modules(path):
            if module.startswith("thresher."):
                target = module.split(".")[1]
                assert target == layer or target in BELOW[layer], f"{path} imports {module}"


def test_context_is_pure() -> None:
    allowed = {"__future__", "collections", "dataclasses", "enum", "hashlib", "json", "re", "typing", "thresher"}
    for path in (ROOT / "context").rglob("*.py"):
        assert {module.split(".")[0] for module in imported_modules(path)} <= allowed, path


@pytest.mark.parametrize(
    "module", ["thresher.context", "thresher.corpus", "thresher.engine", "thresher.api.cli", "thresher.api.client"]
)
def test_importing_a_face_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
