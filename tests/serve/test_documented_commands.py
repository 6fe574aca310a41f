"""The `vllm serve` lines of README.md and docs/ are ones that vLLM's own parser takes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from vllm_support import serve_python

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
from pages import Page, all_pages

pytestmark = pytest.mark.serve

# As `vllm serve` itself does it.
PARSE = """\
import json, sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
command = ServeSubcommand()
parser = FlexibleArgumentParser(prog="vllm")
command.subparser_init(parser.add_subparsers())
for line in json.load(sys.stdin):
    command.validate(parser.parse_args(line))
    print("these are taken")
"""


def documented() -> list[list[str]]:
    """The arguments of vllm, of each line that starts one."""
    found = []
    for page in map(Page.read, all_pages()):
        for command in page.commands:
            text = command.text.replace("\\\n", " ")
            if served := re.search(r"(?:^|\s)vllm (serve .*?)\s*&?\s*$", text, re.DOTALL):
                found.append(shlex.split(served[1], comments=True))
    return found


def test_vllm_takes_the_documented_commands() -> None:
    lines = documented()
    assert lines
    told = subprocess.run(
        [str(serve_python()), "-c", PARSE],
        input=json.dumps([*lines, ["serve", "model", "--nobody-has-this"]]),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.stdout.count("these are taken") == len(lines), f"{lines}\n{told.stderr[-3000:]}"
    assert told.returncode == 2  # of the last one, which it does not take
    assert "--nobody-has-this" in told.stderr
