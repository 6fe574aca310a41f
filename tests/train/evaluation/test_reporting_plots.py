"""Pictures of an evaluation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from reporting_support import BASELINE, evaluation, many, one_set, sample, summary

from thresher.train.evaluation.reporting.plots import PlotError, draw, pareto_front


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def comments(file: Path) -> set[str]:
    """What is written in a picture: matplotlib notes each text as a comment beside its outlines."""
    return {comment.text.strip() for comment in etree.parse(file).iter(etree.Comment)}


def test_front_of_what_nothing_beats() -> None:
    assert pareto_front([(3, 0.9), (1, 0.5), (2, 0.4), (3, 0.8), (4, 0.9), (0.5, 0.1)]) == (
        [0.5, 1, 3],
        [0.1, 0.5, 0.9],
    )
    assert pareto_front([(1, 0.5), (1, 0.7)]) == ([1], [0.7])


class TestWithMatplotlib:
    @pytest.fixture(autouse=True)
    def _matplotlib(self) -> None:
        pytest.importorskip("matplotlib")

    def test_all_that_the_data_have(self, tmp_path: Path) -> None:
        files = draw(sample(), tmp_path / "new" / "folder")
        assert names(files) == [
            "recall-context.svg",
            "recall-seconds.svg",
            "differences.svg",
            "abstention.svg",
            "hops.svg",
        ]
        context, seconds, differences, abstention, hops = map(comments, files)
        assert {"musique (n = 4)", "chunk_eval (n = 4)", "Overall (n = 4)", "rules", BASELINE} <= context
        assert {"recall@10 (%)", "span recall (%)", "peak context (tokens)"} <= context
        assert "seconds a question (median, log scale)" in seconds
        assert {"recall@10, points over one-search", "span recall, points over one-search"} <= differences
        assert "musique (n = 3 without gold)" in abstention
        assert {"precision", "recall", "F1", "rules"} <= abstention
        assert BASELINE not in abstention
        assert {"gold of the step found (%)", "all steps so far found (%)", "1", "2"} <= hops
        assert not any("chunk_eval" in said for said in abstention | hops)

    def test_the_same_data_make_the_same_bytes(self, tmp_path: Path) -> None:
        first, second = draw(sample(), tmp_path / "1"), draw(sample(), tmp_path / "2")
        assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
        assert len(first) == 5

    def test_settings_of_the_user_change_nothing_and_stay(self, tmp_path: Path) -> None:
        import matplotlib

        plain = draw(many(2), tmp_path / "1")
        with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "black", "svg.hashsalt": "other"}):
            before = dict(matplotlib.rcParams)
            own = draw(many(2), tmp_path / "2")
            assert dict(matplotlib.rcParams) == before
        assert [file.read_bytes() for file in plain] == [file.read_bytes() for file in own]

    def test_a_picture_loads_nothing(self, tmp_path: Path) -> None:
        for file in draw(sample(), tmp_path):
            for element in etree.parse(file).iter(etree.Element):
                for name, value in element.attrib.items():
                    assert not name.endswith("href") or value.startswith("#")
                    assert "url(" not in value.replace("url(#", "")

    @pytest.mark.parametrize("number", [0, 1, 10])
    def test_any_number_of_systems(self, tmp_path: Path, number: int) -> None:
        files = draw(many(number), tmp_path)
        assert names(files) == ["recall-context.svg", "recall-seconds.svg", *(["differences.svg"] if number else [])]
        assert {f"system-{place}" for place in range(number)} <= comments(files[0])

    @pytest.mark.parametrize(
        "data",
        [
            {"object": "evaluation"},
            evaluation([]),
            evaluation([one_set("nothing", {BASELINE: summary(), "rules": summary()})]),
        ],
    )
    def test_nothing_to_draw(self, tmp_path: Path, data: dict[str, Any]) -> None:
        assert draw(data, tmp_path / "none") == []
        assert not (tmp_path / "none").exists()

    def test_sets_without_gold_show_abstention_alone(self, tmp_path: Path) -> None:
        figures = summary(abstention_recall=0.5)  # nothing was called insufficient wrongly, or at all
        data = evaluation([one_set("open", {BASELINE: summary(), "rules": figures}, with_gold=0, without_gold=4)])
        assert names(draw(data, tmp_path)) == ["abstention.svg"]

    @pytest.mark.parametrize("name", ["$\\frac{", "_hidden", "<b>&", "a\nb\x00", "\ud800"])
    def test_names_are_drawn_as_they_are(self, tmp_path: Path, name: str) -> None:
        figures = summary(recall_10=0.5, seconds_median=1.0, peak_context_tokens=10.0)
        files = draw(evaluation([one_set(name, {BASELINE: figures, name: figures})]), tmp_path)
        assert len(files) == 2
        assert all(etree.parse(file).getroot().tag.endswith("svg") for file in files)
        if name == "_hidden":
            assert name in comments(files[0])


def test_without_matplotlib_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r"pip install 'thresher\[plots\]'"):
        draw(sample(), tmp_path)
