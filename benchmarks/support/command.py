"""The command line that all scripts share: `--quick`, `--json`, and what they say before they measure."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from support.machine import machine, told

_STARTED = time.perf_counter()


def parser(documentation: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's own docstring."""
    made = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="a small run: does it work? Its figures mean little")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    return made


def parse(
    made: argparse.ArgumentParser, arguments: list[str] | None = None, quick: dict[str, Any] | None = None
) -> argparse.Namespace:
    """Parse the command line; with `--quick` the defaults in `quick` hold."""
    given = sys.argv[1:] if arguments is None else arguments
    if "--quick" in given:
        made.set_defaults(**(quick or {}))
    return made.parse_args(given)


def begin(options: argparse.Namespace) -> dict[str, Any]:
    """Say the machine and the parameters; the head of what `leave` writes.

    Nothing may be fetched, and BLAS must not compete with itself.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    head = {"benchmark": Path(sys.argv[0]).stem, "machine": machine(), "parameters": parameters(options)}
    print(told(head["machine"]))
    print(" · ".join(f"{name} {value}" for name, value in head["parameters"].items()) + "\n", flush=True)
    return head


def parameters(options: argparse.Namespace) -> dict[str, Any]:
    """The options, as JSON can hold them."""
    return {name: _plain(value) for name, value in vars(options).items() if name != "json"}


def leave(options: argparse.Namespace, head: dict[str, Any], figures: dict[str, Any]) -> None:
    """Write `--json`, if asked: the head, the seconds of the whole script, and the figures."""
    seconds = round(time.perf_counter() - _STARTED, 1)
    print(f"\n{seconds:.0f} s in all", flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        told_all = {**head, "seconds": seconds, **figures}
        options.json.write_text(json.dumps(told_all, indent=1) + "\n", encoding="utf-8")


def print_table(heads: list[str], rows: list[list[Any]]) -> None:
    """A Markdown table."""
    for cells in (heads, ["---"] * len(heads), *rows):
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, float, bool, str, type(None))) else str(value)
