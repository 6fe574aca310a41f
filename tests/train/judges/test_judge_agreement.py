"""Is a judge fit to reward: figures by hand, and the command over searches that are really run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from face_support import Outcome
from hack_support import tasks, world
from hypothesis import given
from hypothesis import strategies as st
from judge_support import Asked, asked, judge_server
from stub_model import Reply, serve_model
from support import make_collection

from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.judges.agreement import (
    Agreement,
    Case,
    Fitness,
    Preference,
    agreement,
    cohens_kappa,
    pearson,
    spearman,
)
from thresher.train.judges.stats import JudgeStats
from thresher.train.rewards.scorer import scorer_for
from thresher.train.rollouts.recording import RolloutLog
from thresher.train.rollouts.single import roll_group


def made(cases: Sequence[Case], preferences: Sequence[Preference] = (), **counts: int) -> Agreement:
    return agreement("chat:judge", ["grounded"], cases, preferences, JudgeStats(**counts), JudgeStats())


def cases(
    right: int, wrong: int, *, score_right: float = 0.9, score_wrong: float = 0.1, controls: int = 20
) -> list[Case]:
    found = [Case(f"r{n}", True, 1.5 + n / 100, score_right) for n in range(right)]
    found += [Case(f"w{n}", False, 0.5 - n / 100, score_wrong) for n in range(wrong)]
    return found + [Case(f"c{n}", False, None, score_wrong, control=True) for n in range(controls)]


def test_kappa_by_hand() -> None:
    """20 of both yes, 15 of both no, 10 and 5 of one alone: po = 0.7, pe = 0.5 (Cohen's own kind of table)."""
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    assert cohens_kappa(pairs) == pytest.approx(0.4)
    assert cohens_kappa([(True, True), (False, False)]) == 1.0
    assert cohens_kappa([(True, False), (False, True)]) == -1.0
    assert cohens_kappa([(True, True)] * 5) is None
    assert cohens_kappa([]) is None


def test_correlations_by_hand() -> None:
    assert pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [1, 10, 100, 90]) == pytest.approx(0.8)
    assert spearman([1, 1, 2, 2], [5, 5, 9, 9]) == pytest.approx(1.0)
    assert pearson([1, 1, 1], [1, 2, 3]) is None
    assert pearson([1, 2], [1, 2]) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_kappa_is_symmetric_and_bounded(pairs: list[tuple[bool, bool]]) -> None:
    kappa = cohens_kappa(pairs)
    turned = cohens_kappa([(other, one) for one, other in pairs])
    assert kappa == pytest.approx(turned) if kappa is not None else turned is None
    assert kappa is None or -1.0 - 1e-9 <= kappa <= 1.0 + 1e-9


def test_a_judge_that_agrees_is_fit() -> None:
    found = made(cases(20, 20), [Preference("a", "first")], votes=180, replies=180, decisions=480, disagreed=10)
    assert found.fitness is Fitness.FIT
    assert found.warnings == ()
    assert (found.accuracy, found.kappa, found.controls_passed) == (1.0, 1.0, 0.0)
    assert (found.labelled, found.right, found.controls, found.pairs_right) == (40, 20, 20, 1.0)
    assert found.spearman == pytest.approx(0.867, abs=0.001)
    assert (found.score_right, found.score_wrong) == (pytest.approx(0.9), pytest.approx(0.1))


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (made(cases(20, 20, score_wrong=0.9)), "passes 100% of the results that belong to another question"),
        (made(cases(20, 20, score_right=0.1, score_wrong=0.9)), "kappa with what can be checked is -"),
        (made(cases(20, 20, score_right=0.7, score_wrong=0.7)), "gives everything the same score"),
        (made([Case("a", True, 1.0, None), Case("b", False, 0.0, None)]), "no score at all"),
        (made(cases(20, 20), replies=100, unparsable=30), "30% of its replies are no verdict"),
    ],
)
def test_a_judge_that_would_reward_what_is_wrong_is_unfit(found: Agreement, word: str) -> None:
    assert found.fitness is Fitness.UNFIT
    assert any(word in warning for warning in found.warnings), found.warnings


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (made(cases(5, 5)), "10 searches could be checked; below 30"),
        (made(cases(40, 0)), "all its searches are right"),
        (made(cases(20, 20), decisions=10, disagreed=4), "votes differ on 40%"),
        (made(cases(20, 20), replies=100, unparsable=5), "5% of its replies"),
        (made([*cases(20, 20), *[Case("n", None, 1.0, None)] * 10]), "10 of 70 searches have no score"),
    ],
)
def test_what_gives_reason_to_look_is_said(found: Agreement, word: str) -> None:
    assert found.fitness is Fitness.WARNINGS
    assert any(word in warning for warning in found.warnings), found.warnings


def test_position_bias_is_said() -> None:
    pairs = JudgeStats(comparisons=10, inconsistent=6, first=18, second=2)
    found = agreement("j", ["grounded"], cases(20, 20), [], JudgeStats(), pairs)
    assert (found.position_bias, found.first_place) == (0.6, 0.9)
    assert any("60% of the pairs come out otherwise" in warning for warning in found.warnings)


# --- the command


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))
    folder = tmp_path / "harbours"
    folder.mkdir()
    documents = [{"id": name, "title": name, "text": text} for name, text in world().items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(task.record()) + "\n" for task in tasks()[::2]))
    return folder


def run(*arguments: object) -> Outcome:
    return Outcome("train", "judge", *arguments, "--embedder", "wordllama")


def reads(ask: Asked) -> Reply:
    """A judge that knows the answers: met where one of them stands in what is shown."""
    known = {task.question: task.answers for task in tasks()}
    answers = known.get(ask.quoted["QUESTION"], ("blue",))  # it is asked about the sky before all else

    def right(where: str) -> bool:
        shown = " ".join(text for name, text in ask.quoted.items() if name.startswith(where) and "PASSAGE" in name)
        return any(answer in shown for answer in answers)

    if not ask.pair:
        return ask.says("met" if right("PASSAGE") else "unmet")
    first, second = right("FIRST"), right("SECOND")
    return ask.says("tie" if first == second else "first" if first else "second")


def test_the_command_tells_a_judge_that_reads_from_one_that_does_not(questions: Path, tmp_path: Path) -> None:
    with judge_server(reads) as server:
        shown = run(questions, "--model", f"chat:small@{server.url}", "--rubric", "evidence", "--json")
        assert shown.code == 0, shown.err
        found = shown.json
        assert (found["object"], found["labelled"], found["controls"]) == ("judge_agreement", 6, 6)
        assert (found["accuracy"], found["kappa"], found["controls_passed"]) == (1.0, 1.0, 0.0)
        assert (found["position_bias"], found["unparsable"], found["disagreement"]) == (0.0, 0.0, 0.0)
        assert found["pairs_right"] == 1.0
        assert found["fitness"] == "fit with warnings"
        assert found["prompt_tokens"] > 0
        assert {len(ask.keys) for ask in asked(server)} == {1, 2}
    with judge_server(lambda ask: ask.says("first" if ask.pair else "met")) as server:
        kept = tmp_path / "votes.jsonl"
        shown = run(questions, "--model", f"chat:small@{server.url}", "--rubric", "evidence", "--keep", kept)
        assert shown.code == 1
        assert "the judge is unfit" in shown.out
        assert "- it passes 100% of the results that belong to another question" in shown.out
        assert "position bias" in shown.out
        assert len(kept.read_text().splitlines()) > 10


def test_recorded_searches_are_judged_by_what_they_returned(questions: Path, tmp_path: Path) -> None:
    import asyncio

    path = tmp_path / "rollouts.jsonl"
    with make_collection(tmp_path / "collection", world()) as collection, RolloutLog(path) as log:
        engine = SearchEngine(collection, "builtin")
        for number, task in enumerate(tasks()[::4]):
            own = scorer_for(collection, "context1")
            log.append(asyncio.run(roll_group(engine, SearchRequest("?"), own, task, size=1, number=number)))
    with judge_server(reads) as server:
        model = f"chat:small@{server.url}"
        shown = run(questions, "--model", model, "--recorded", path, "--no-pairs", "--json")
        assert shown.code == 0, shown.err
        assert (shown.json["labelled"], shown.json["accuracy"], shown.json["pairs"]) == (3, 1.0, 0)
        wanting = run(questions, "--model", model, "--recorded", path, "--rubric", "grounded")
        assert wanting.code == 2
        assert "recorded searches hold no answers in words, which grounded judges" in wanting.err


def test_what_cannot_be_tried_is_said(questions: Path) -> None:
    with serve_model(always=Reply(status=401, error="no such key")) as server:
        model = f"chat:small@{server.url}"
        refused = run(questions, "--model", model, "--rubric", "evidence", "--limit", 1)
        assert refused.code != 0
        assert "the judge cannot be asked" in refused.err
        even = run(questions, "--model", model, "--votes", 2)
        assert even.code == 2
        assert "must be odd" in even.err
        unknown = run(questions, "--model", model, "--rubric", "nice")
        assert unknown.code != 0
        assert "there is no rubric 'nice'" in unknown.err


def test_nothing_is_searched_before_the_judge_answers(questions: Path) -> None:
    refusing = Reply(status=401, error="no such key")
    with serve_model(always=refusing) as judge, serve_model(always=Reply("nothing")) as policy:
        asks = ("--model", f"chat:small@{judge.url}", "--policy", "chat:own", "--model-url", policy.url)
        refused = run(questions, *asks, "--rubric", "evidence", "--limit", 1)
    assert "the judge cannot be asked" in refused.err
    assert len(judge.requests) == 1
    assert policy.requests == []
