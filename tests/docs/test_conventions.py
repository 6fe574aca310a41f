"""What holds of all pages, without running them: quick, so that a wrong flag is found at once."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib

import pytest
import yaml
from documented import invocations, problem, shown_in, span_problem
from not_run import entries
from pages import ROOT, Block, Page, all_pages
from running import key_of

PAGES = all_pages()
LANGUAGES = {"console", "python", "toml", "json", "jsonl", "yaml", "csv", "text", "html", "markdown", "diff", ""}
MOST_NOT_RUN = 12
COMMANDS = ("thresher", "pip", "python", "make", "curl", "docker", "vllm", "git", "export", "cd", "ollama", "pytest")
"""What begins a line that a reader would type."""


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> Page:
    return Page.read(request.param)


def test_the_pages_are_found() -> None:
    assert {"README.md", "docs/index.md", "benchmarks/README.md", "tests/README.md"} <= set(PAGES)


def test_what_a_reader_types_is_a_console_block(page: Page) -> None:
    wrong = []
    for block in page.blocks:
        lines = block.text.split("\n")
        if block.language not in LANGUAGES | {"indented"}:
            wrong.append(f"{page.path}:{block.line}: a block of {block.language}; commands are `console`")
        if block.language in ("console", "python"):
            continue
        typed = [n for n, line in enumerate(lines) if line.startswith("$ ")]
        if block.language in ("indented", ""):
            typed += [n for n, line in enumerate(lines) if line.split(" ")[0] in COMMANDS]
        wrong += [f"{page.path}:{block.line + n}: a command outside of a console block: {lines[n]}" for n in typed]
    assert not wrong, "\n".join(wrong)


def test_data_can_be_read(page: Page) -> None:
    wrong = []
    for block in page.blocks:
        try:
            parse(block)
        except (ValueError, yaml.YAMLError, csv.Error, SyntaxError) as error:
            wrong.append(f"{page.path}:{block.line}: {block.language}: {error}")
    assert not wrong, "\n".join(wrong)


def parse(block: Block) -> None:
    """Read a block as what it says it is. Raises where it is not."""
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "jsonl":
        for line in block.text.splitlines():
            json.loads(line)
    elif block.language == "yaml":
        yaml.safe_load(block.text)
    elif block.language == "python":
        compile(block.text, "page", "exec")
    elif block.language == "csv":
        widths = {len(row) for row in csv.reader(io.StringIO(block.content), strict=True)}
        if len(widths) != 1:
            raise ValueError(f"rows of {sorted(widths)} cells")


def test_commands_have_an_end(page: Page) -> None:
    assert page.steps is not None


def test_thresher_knows_the_commands_that_are_shown(page: Page) -> None:
    wrong = [f"{page.path}:{line}: {text}\n  {said}" for line, text, said in shown_in(page) if said]
    assert not wrong, "\n".join(wrong)


def test_extras_exist(page: Page) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"(?:thresher|pip install [^\n`]*\.)\[([\w,-]+)\]", page.source)
    assert {extra for names in named for extra in names.split(",")} <= set(declared)


def test_what_is_not_run_still_stands_on_its_page() -> None:
    stale = [
        f"{entry.page}: {entry.command}"
        for entry in entries()
        if entry.command not in map(key_of, Page.read(entry.page).steps)
    ]
    assert not stale
    assert all(entry.reason for entry in entries())
    assert len(entries()) <= MOST_NOT_RUN


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("thresher search 'x' --effort low", None),
        ("thresher search x --efort low", "No such option"),
        ("thresher serch x", "no command 'serch'"),
        ("thresher ls && thresher trace shw last", "no command 'shw'"),
        ("ID=$(thresher keys list --jsn | jq -r .id)", "No such option"),
        ('curl -s "localhost/$(thresher status --nothing)"', "No such option"),
        ("THRESHER_HOME=x thresher search a b", "takes no more arguments"),
        ("thresher search", "wants"),
        ("thresher trace export last --html trace.html > out.txt 2>&1", None),
        ("thresher serve --port", "requires an argument"),
        ("docker compose exec thresher thresher ingest --nonsense /documents", "No such option"),
        ("thresher eval corpus/sample --limit 3 &", None),
    ],
)
def test_a_wrong_command_is_found(command: str, said: str | None) -> None:
    problems = [found for arguments in invocations(command) if (found := problem(arguments))]
    assert bool(problems) == bool(said), problems
    assert said is None or re.search(said, problems[0])


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ("thresher ingest ORIGINS… [-c NAME] [--embedder SPEC]", None),
        ("thresher keys create|list|revoke", None),
        ("thresher keys create|lst", "no command 'lst'"),
        ('thresher search "…" --web brave', None),
        ('thresher search "…" --wbe brave', "no option --wbe"),
        ("thresher frobnicate", "no command 'frobnicate'"),
        ("thresher --help", None),
    ],
)
def test_a_wrong_span_is_found(span: str, said: str | None) -> None:
    found = span_problem(span)
    assert bool(found) == bool(said), found
    assert said is None or said in str(found)
