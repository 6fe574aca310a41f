"""The page of runs: it loads nothing, and nothing that stands in a run can become markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from runs_support import checkpoint, exported, rl_run

from thresher.api.runs.looking import Looking
from thresher.api.runs.page import runs_page
from thresher.train.loop.releases import Kind, Release, decide

PLANTED = "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=2>"
NOW = 2_000_000_000.0


class Read(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements are nested"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, *names: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.elements if tag in names]


def page_of(*places: Path, home: Path, **options: Any) -> str:
    looking = Looking(places, home)
    return runs_page(looking.shown(looking.runs()), NOW, **options)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run in whose every text something is planted."""
    runs = tmp_path / "runs"
    folder = rl_run(runs / PLANTED.replace("/", "_"), "prune_all", search={"profile": PLANTED})
    table = json.loads((folder / "settings.json").read_text())
    table[PLANTED] = {PLANTED: PLANTED}
    (folder / "settings.json").write_text(json.dumps(table))
    step = {
        "step": 40,
        "terms": {PLANTED: 1.5},
        "stop_reasons": {PLANTED: 1.0},
        "gradient_share": {"1": 0.4, "2-3": 0.6},
    }
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps(step) + "\n" + json.dumps({**step, "step": 41, PLANTED: 3}) + "\n")
    (folder / "failure.json").write_text(json.dumps({"error": PLANTED, "message": PLANTED}))
    with (folder / "evaluations.jsonl").open("a") as file:
        file.write(json.dumps({"label": PLANTED, "step": 41, "version": 1, "questions": 3, "precision": 0.5}) + "\n")
    rl_run(runs / "other", "healthy")
    decide(tmp_path / "releases", Kind.ADOPTED, who=PLANTED, release=Release(id="c", policy="builtin"))
    release = Release(id=PLANTED, policy=f"hf:{folder.resolve() / 'model'}")
    decide(
        tmp_path / "releases",
        Kind.PROPOSED,
        who=PLANTED,
        release=release,
        reasons=[PLANTED],
        figures={PLANTED: PLANTED},
    )
    return runs


def test_nothing_that_stands_in_a_run_becomes_markup(hostile: Path, tmp_path: Path) -> None:
    page = page_of(hostile, home=tmp_path)
    read = Read(page)
    assert read.open == []
    assert read.named("img") == []
    [script] = read.named("script")
    assert script == {}
    for _, attrs in read.elements:
        assert not [name for name in attrs if name.startswith("on") or name == "style"], attrs
    text = "".join(read.texts)
    assert text.count("<script>window.hacked=1") >= 12, "it is shown as what it is"
    assert page.count("<script") == 1


def test_the_page_loads_nothing_and_may_not(hostile: Path, tmp_path: Path) -> None:
    page = page_of(hostile, home=tmp_path)
    read = Read(page)
    assert read.named("link", "iframe", "object", "embed", "base", "form", "image", "use") == []
    for _, attrs in read.elements:
        assert "src" not in attrs
        assert (attrs.get("href") or "#").startswith("#")
    assert not re.search(r"@import|url\(", page)
    [policy] = [
        attrs["content"] for attrs in read.named("meta") if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for element in ("style", "script"):
        [content] = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


def test_every_term_and_figure_has_its_chart(hostile: Path, tmp_path: Path) -> None:
    read = Read(page_of(hostile / "other", home=tmp_path))
    labels = [attrs["aria-label"] or "" for attrs in read.named("svg")]
    for name in ("reward/mean", "f beta", "trajectory recall", "answer found", "malformed rate", "entropy", "searches"):
        assert [label for label in labels if label.startswith(f"{name}: from ")], name
    assert "Terms that were 0 throughout: abstention," in "".join(read.texts)


def test_alarms_evaluations_and_checkpoints_lie_on_the_line_of_steps(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run", "prune_all")
    read = Read(page_of(folder, home=tmp_path))
    [line] = [attrs for attrs in read.named("svg") if (attrs["aria-label"] or "").startswith("Steps 0 to 39")]
    assert "prune_all" in (line["aria-label"] or "")
    kinds = [attrs.get("class") for attrs in read.named("circle", "g")]
    assert (kinds.count("evaluated"), kinds.count("kept")) == (3, 2)
    assert kinds.count("alarm on") >= 1
    bars = [text for text in read.texts if text.startswith("prune_all at step 23")]
    assert len(bars) == 2, "as the title of its bar, and in the list"


def test_runs_are_drawn_into_each_other(hostile: Path, tmp_path: Path) -> None:
    rl_run(hostile / "third", "one_search_stop")
    read = Read(page_of(hostile, home=tmp_path))
    buttons = [attrs["data-run"] for attrs in read.named("button") if "data-run" in attrs]
    assert buttons == ["r0", "r1", "r2"]
    assert {attrs.get("data-of") for attrs in read.named("g")} >= set(buttons)
    assert [attrs for attrs in read.named("section") if attrs.get("id") == "compare"]
    alone = Read(page_of(hostile / "other", home=tmp_path))
    assert not [attrs for attrs in alone.named("section") if attrs.get("id") == "compare"]


def test_the_gradient_share_is_stacked(hostile: Path, tmp_path: Path) -> None:
    read = Read(page_of(hostile, home=tmp_path))
    assert "share, last: 1 segments 40%, 2-3 segments 60%" in [attrs["aria-label"] for attrs in read.named("svg")]


@pytest.mark.parametrize("name", ["settings.json", "log.jsonl", "evaluations.jsonl"])
def test_half_a_run_has_a_page_that_says_what_is_missing(tmp_path: Path, name: str) -> None:
    folder = rl_run(tmp_path / "run")
    (folder / name).unlink()
    text = "".join(Read(page_of(folder, home=tmp_path)).texts)
    assert (f"Missing: there is no {name}" in text) == (name != "evaluations.jsonl")
    assert "run" in text


def test_numbers_that_are_none_break_no_chart(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run")
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"step": 40, "loss": "NaN", "grad_norm": "Infinity", "reward": {"mean": 1e308, "std": 0}}\n')
        log.write('{"step": 41, "loss": 1e308, "reward": {"mean": -1e308}, "gradient_share": {"1": "NaN"}}\n')
    page = page_of(folder, home=tmp_path)
    read = Read(page)
    for _, attrs in read.elements:
        for key in ("points", "x", "y", "cx", "cy", "width", "height"):
            assert not re.search("nan|inf", attrs.get(key) or "", re.IGNORECASE), attrs


def test_a_finished_run_and_its_checkpoints_are_told(tmp_path: Path) -> None:
    folder = exported(rl_run(tmp_path / "run"))
    checkpoint(folder, 39)
    text = "".join(Read(page_of(folder, home=tmp_path)).texts)
    assert "step 10, step 20, step 39" in text
    assert "finished" in text
