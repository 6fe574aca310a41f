"""Plugin packages that tests install: a project folder becomes one in a folder of `PYTHONPATH`, as pip would do it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path


def install(project: Path, site: Path) -> None:
    """Copy a project's modules into `site`, and write the metadata by which its entry points are found.

    Processes that have `site` in `PYTHONPATH` find it from their next start on.
    """
    declared = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for module in project.glob("*.py"):
        shutil.copy(module, site)
    metadata = site / f"{declared['name'].replace('-', '_')}-{declared['version']}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    lines = f"Metadata-Version: 2.1\nName: {declared['name']}\nVersion: {declared['version']}\n"
    (metadata / "METADATA").write_text(lines, encoding="utf-8")
    groups = declared.get("entry-points", {})
    text = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in groups.items()
    )
    (metadata / "entry_points.txt").write_text(text, encoding="utf-8")
