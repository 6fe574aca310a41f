"""`pip install` without a network: what is asked for must exist.

Extras are those of pyproject.toml, and other packages must be ones that it names. A folder of the page's own is really
installed, for this page alone, so that its entry points are found.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

CLONE = Path(os.environ["STAND_IN_CLONE"])
SITE = os.environ["STAND_IN_SITE"]


def main(arguments: list[str]) -> None:
    if arguments[:1] != ["install"]:
        sys.exit(f"this stand-in knows pip install, not pip {' '.join(arguments)}")
    project = tomllib.loads((CLONE / "pyproject.toml").read_text("utf-8"))["project"]
    for word in arguments[1:]:
        if word in ("-e", "--editable", "-U", "--upgrade", "-q", "--quiet"):
            continue
        if word.startswith("-"):
            sys.exit(f"this stand-in does not know pip install {word}")
        else:
            install(word, project)


def install(word: str, project: dict) -> None:
    path, _, extras = word.partition("[")
    folder = Path(path)
    if path in (".", "./", "thresher") or (folder.is_dir() and folder.resolve() == CLONE.resolve()):
        check_extras({extra.strip() for extra in extras.rstrip("]").split(",") if extra.strip()}, project)
    elif folder.is_dir():
        target = ("--target", SITE, "--no-index", "--no-deps", "--no-build-isolation", "--quiet")
        subprocess.run([sys.executable, "-m", "pip", "install", "--upgrade", *target, path], check=True)
    else:
        try:
            requirement = Requirement(word)
        except InvalidRequirement as error:
            sys.exit(f"{word} is no requirement: {error}")
        groups = project["optional-dependencies"].values()
        declared = [*project["dependencies"], *(line for group in groups for line in group)]
        known = {canonicalize_name(Requirement(line).name) for line in declared}
        if requirement.name == project["name"]:
            check_extras(set(requirement.extras), project)
        elif canonicalize_name(requirement.name) not in known:
            sys.exit(f"{word} is not in pyproject.toml")


def check_extras(extras: set[str], project: dict) -> None:
    if unknown := extras - set(project["optional-dependencies"]):
        sys.exit(f"pyproject.toml has no extra {', '.join(sorted(unknown))}")


if __name__ == "__main__":
    main(sys.argv[1:])
