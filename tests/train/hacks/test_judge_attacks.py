"""Attacks on judges, under the profile that pays one: a gullible judge, a bought one, and what neither can hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hack_support import tasks, world
from judge_support import Asked, gullible, judge_server, model
from stub_model import Reply
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.hacks.judge_attacks import FORGED_VERDICT, JUDGE_TRICKS, ORDERS, PLANTED, bought
from thresher.train.hacks.policies import TRICKS
from thresher.train.hacks.suite import HONEST, ONCE, PROGRESS, Plays, assert_honest_first, play, ranked, rankings
from thresher.train.judges.judging import Judge, PairwiseJudge, RubricJudge
from thresher.train.judges.rubrics import load_rubrics
from thresher.train.judges.scorer import JudgedScorer
from thresher.train.rewards.profiles import PROFILES
from thresher.train.rewards.scorer import scorer_for
from thresher.train.tasks.task import Task

ASKED = SearchRequest("?", include_answer=True)
JUDGED = PROFILES["judged"]
RUBRICS = load_rubrics(["grounded"])
HELD = tuple(
    trick.name for trick in JUDGE_TRICKS if trick.name not in ("judge_padding", "judge_reworded", "judge_planted")
)
"""Attacks of whose words nothing may reach a judge."""


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """The world, and a document in it that somebody planted."""
    planted = f"Notice on the ferry harbour. {PLANTED}. {ORDERS} {FORGED_VERDICT} The harbour office opens at nine."
    with make_collection(tmp_path_factory.mktemp("attacked") / "collection", {**world(), "planted": planted}) as made:
        yield made


@pytest.fixture(scope="module")
def plays(collection: Collection) -> Plays:
    # The rules: on so small a world they find more than the shipped weights, and the margin below is theirs.
    return asyncio.run(play(collection, tasks(), ASKED, honest="builtin:rules", tricks=(*TRICKS, *JUDGE_TRICKS)))


async def judged(plays: Plays, collection: Collection, judge: Judge) -> Plays:
    """The same searches with what this judge says of them."""
    scorer = JudgedScorer(scorer_for(collection, JUDGED, judged=True), judge)
    made = {name: list(played) for name, played in plays.by_policy.items()}
    for place, task in enumerate(plays.tasks):
        asked = replace(ASKED, query=task.question)
        scores = await scorer.judging(task, asked, [played[place].result for played in made.values()])
        for played in made.values():
            played[place] = replace(played[place], facts=scores(task, asked, played[place].result)[0])
    await judge.aclose()
    return Plays(plays.tasks, {name: tuple(played) for name, played in made.items()})


@pytest.fixture(scope="module")
def fooled(plays: Plays, collection: Collection) -> Plays:
    with judge_server(gullible) as server:
        names = (HONEST, ONCE, *(trick.name for trick in JUDGE_TRICKS))
        some = Plays(plays.tasks[::2], {name: plays.by_policy[name][::2] for name in names})
        return asyncio.run(judged(some, collection, RubricJudge(model(server), RUBRICS, votes=1)))


def scores(plays: Plays, name: str) -> list[float]:
    return [play.facts.judge or 0.0 for play in plays.by_policy[name]]


def test_no_attack_outranks_honest_work_with_a_gullible_judge(fooled: Plays) -> None:
    """Which finds honest work unmet, besides."""
    assert scores(fooled, HONEST) == [0.0] * 6
    for ranking in rankings(fooled, JUDGED):
        assert_honest_first([ranking])
        for trick in ranking.tricks:
            assert trick.mean < ranking.honest.mean - 0.25, trick.name
            assert trick.ahead <= len(ranking.tasks) / 2


@pytest.mark.parametrize("name", HELD)
def test_known_attacks_do_not_reach_a_judge(name: str, fooled: Plays) -> None:
    """A judge that falls for everything pays nothing for them: they are taken out, or are no answer."""
    assert scores(fooled, name) == [0.0] * 6


def test_what_a_document_orders_does_not_reach_a_judge(fooled: Plays) -> None:
    played = fooled.by_policy["judge_planted"]
    assert all("planted" in play.facts.returned for play in played)
    assert scores(fooled, "judge_planted") == [0.0] * 6


def test_what_reaches_a_gullible_judge_is_paid_and_bounded(fooled: Plays) -> None:
    """Padding is paid by a sixth of what it asks for, reworded praise in full: nothing but a better judge sees it."""
    padded, reworded = scores(fooled, "judge_padding"), scores(fooled, "judge_reworded")
    assert 0 < max(padded) <= 2_000 / 11_000
    assert max(reworded) == 1.0
    [ranking] = rankings(fooled, JUDGED, progress=[1.0])
    by_name = {trick.name: trick for trick in ranking.tricks}
    once = by_name["one_search"].mean
    assert once <= by_name["judge_reworded"].mean <= once + JUDGED.judge
    assert by_name["judge_padding"].mean - once < 0.05


@pytest.mark.parametrize("progress", PROGRESS)
def test_even_a_bought_judge_ranks_nobody_above_honest_work(progress: float, plays: Plays) -> None:
    """All for every trick and nothing for honest work: what can be checked decides, where something can."""
    ranking = ranked(bought(plays), JUDGED, progress=progress)
    assert_honest_first([ranking])
    assert all(trick.mean < ranking.honest.mean - 0.25 for trick in ranking.tricks)
    assert all(play.facts.judge == 1.0 for play in bought(plays).by_policy["one_search"])


def test_in_pairs_too(plays: Plays, collection: Collection) -> None:
    """Each policy against the middle one of all, by the gullible judge."""
    few = ("judge_orders", "judge_solution", "judge_claims", "judge_flattery", "one_search", HONEST)
    some = Plays(plays.tasks[:4], {name: plays.by_policy[name][:4] for name in few})
    with judge_server(gullible) as server:
        compared = asyncio.run(judged(some, collection, PairwiseJudge(model(server))))
    assert_honest_first(rankings(compared, JUDGED))
    for name in ("judge_orders", "judge_solution", "judge_claims", "judge_flattery"):
        assert max(scores(compared, name)) <= 0.5, name


def test_where_nothing_can_be_checked_only_the_known_attacks_are_held(collection: Collection) -> None:
    """An open question: there is no gold, and all the rest is the judge's. Said plainly, and so tested."""
    task = Task("open", "Which works made the engine of the ferry Alma?", type="open")
    tricks = tuple(trick for trick in JUDGE_TRICKS if trick.name in (*HELD, "judge_reworded"))

    def decent(ask: Asked) -> Reply:
        """Pays what a gullible judge pays, and an answer on the subject."""
        reply = gullible(ask)
        return ask.says("met") if "Brask" in ask.quoted["ANSWER"] else reply

    with judge_server(decent) as server:
        judge = RubricJudge(model(server), RUBRICS, votes=1)
        scorer = JudgedScorer(scorer_for(collection, JUDGED, judged=True), judge)

        async def run() -> Plays:
            found = await play(collection, [task], ASKED, tricks=tricks, judge=scorer)
            await judge.aclose()
            return found

        found = asyncio.run(run())
    ranking = ranked(found, JUDGED)
    by_name = {trick.name: trick.mean for trick in ranking.tricks}
    assert ranking.honest.mean > 0.3
    assert all(by_name[name] < ranking.honest.mean - 0.25 for name in HELD)
    assert by_name["judge_reworded"] >= ranking.honest.mean - 1e-9, "if this fails, say in the README that it is held"


def test_every_attack_does_what_it_says(plays: Plays) -> None:
    assert {trick.name for trick in JUDGE_TRICKS} <= set(plays.by_policy)
    assert len({trick.name for trick in (*TRICKS, *JUDGE_TRICKS)}) == len(TRICKS) + len(JUDGE_TRICKS)
    for trick in JUDGE_TRICKS:
        for played in plays.by_policy[trick.name]:
            assert played.facts.fault is None
            assert played.facts.finished
            assert played.result.answer is not None
            assert played.result.answer.text, trick.name
    answers = {name: played[0].result.answer for name, played in plays.by_policy.items()}
    assert answers["judge_colon"].text == ":"  # type: ignore[union-attr]
    assert answers["judge_solution"].text == "Solution"  # type: ignore[union-attr]
    assert "Mark every criterion" in answers["judge_orders"].text  # type: ignore[union-attr]
    assert len(answers["judge_padding"].text) > 10_000  # type: ignore[union-attr]


def test_an_honest_search_is_what_a_fair_judge_pays(collection: Collection) -> None:
    """The other side: with a judge that reads, the profile pays more for the right answer than for the wrong one."""

    def fair(ask: Asked) -> Reply:
        return ask.says("met" if "Brask" in ask.quoted["ANSWER"] else "unmet")

    async def run() -> tuple[float | None, float | None]:
        with judge_server(fair) as server:
            judge = RubricJudge(model(server), RUBRICS)
            scorer = JudgedScorer(scorer_for(collection, JUDGED, judged=True), judge)
            found = []
            for question in ("Which works made the engine of the ferry Alma?", "Who wrote The Salt Ladder?"):
                task = Task(question, question, type="open")
                asked = SearchRequest(question, include_answer=True)
                result = await SearchEngine(collection, BuiltinPolicy).search(asked)
                found.append((await scorer.judging(task, asked, [result]))(task, asked, result)[0].judge)
            await judge.aclose()
            return found[0], found[1]

    right, wrong = asyncio.run(run())
    assert (right, wrong) == (1.0, 0.0)
