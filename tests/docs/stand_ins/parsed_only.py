"""Runs a script as far as its arguments are parsed: what is wrong with them fails, and all else is left out."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

parse = argparse.ArgumentParser.parse_args


def parse_and_end(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
    parse(parser, *given, **named)
    print(f"{sys.argv[0]}: the arguments are as it takes them")
    raise SystemExit(0)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    argparse.ArgumentParser.parse_args = parse_and_end  # type: ignore[assignment,method-assign]
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(f"{sys.argv[0]} did not parse its arguments")
