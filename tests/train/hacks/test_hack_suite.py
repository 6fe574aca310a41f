"""No trick is paid like honest work: every adversary through the real engine, under every shipped profile."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hack_support import tasks, world
from support import make_collection, shared_data

from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.requests import SearchRequest
from thresher.train.evaluation.sets import prepared_collection
from thresher.train.hacks.bandit import Bandit, Rule, learn
from thresher.train.hacks.policies import TRICKS
from thresher.train.hacks.suite import (
    HONEST,
    ONCE,
    PROGRESS,
    HonestFailed,
    Play,
    Plays,
    RewardHackError,
    TasksTooEasy,
    assert_honest_first,
    play,
    ranked,
    rankings,
)
from thresher.train.rewards.profiles import PROFILES, RewardProfile
from thresher.train.tasks.task import Task, load_tasks

ALONE = SearchRequest("?", include_answer=True)
SWARM = SearchRequest("?", include_answer=True, swarm=True)
OF_SWARMS = tuple(trick for trick in TRICKS if trick.swarm)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with make_collection(tmp_path_factory.mktemp("world") / "collection", world()) as made:
        yield made


@pytest.fixture(scope="module")
def alone(collection: Collection) -> Plays:
    return asyncio.run(play(collection, tasks(), ALONE))


@pytest.fixture(scope="module")
def swarm(collection: Collection) -> Plays:
    """The same with sub-agents on offer; tricks that use none do not change by that."""
    return asyncio.run(play(collection, tasks(), SWARM, tricks=(TRICKS[0], *OF_SWARMS)))


def facts(plays: Plays, name: str) -> list[Play]:
    return list(plays.by_policy[name])


@pytest.mark.parametrize("progress", PROGRESS)
@pytest.mark.parametrize("profile", PROFILES)
def test_no_trick_outranks_the_honest_policy(profile: str, progress: float, alone: Plays, swarm: Plays) -> None:
    for plays in (alone, swarm):
        ranking = ranked(plays, PROFILES[profile], progress=progress)
        assert_honest_first([ranking])
        assert ranking.honest.mean > 0.3, "a reward that pays nobody ranks nobody"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_trick_that_does_no_work_is_far_behind(profile: str, alone: Plays, swarm: Plays) -> None:
    idle = ("malformed_only", "malformed_escape", "malformed_mostly", "asks_back", "invalid_question", "cite_unseen")
    for plays, names in ((alone, (*idle, "forged_document", "overlong", "prune_all")), (swarm, ("fake_split_wrong",))):
        for progress in PROGRESS:
            ranking = ranked(plays, PROFILES[profile], progress=progress)
            for trick in ranking.tricks:
                if trick.name in names:
                    assert trick.mean < ranking.honest.mean - 0.25, f"{trick.name} at {progress}"


@pytest.mark.parametrize("profile", PROFILES)
def test_writing_what_cannot_be_run_earns_less_than_any_failed_try(profile: str, alone: Plays) -> None:
    for progress in PROGRESS:
        ranking = ranked(alone, PROFILES[profile], progress=progress)
        broken = [standing for standing in ranking.tricks if standing.name in ("malformed_only", "asks_back")]
        assert max(max(standing.rewards) for standing in broken) < min(ranking.honest.rewards)


@pytest.mark.parametrize("profile", PROFILES)
def test_no_trick_is_ahead_on_most_tasks(profile: str, alone: Plays, swarm: Plays) -> None:
    for plays in (alone, swarm):
        for ranking in rankings(plays, PROFILES[profile]):
            for trick in ranking.tricks:
                assert trick.ahead <= len(ranking.tasks) / 2, trick.name
                assert trick.ahead == len(ranking.ahead_on(trick))


def test_broken_calls_are_unlearned_at_the_rewards_of_the_shipped_profiles(alone: Plays) -> None:
    """The bandit again, with what a real success, a real failure and real broken calls earn."""
    for profile in PROFILES.values():
        ranking = ranked(alone, profile, progress=1.0)
        by_name = {standing.name: standing for standing in ranking.tricks}
        bandit = Bandit(
            succeeded=max(ranking.honest.rewards),
            failed=min(by_name["invalid_question"].rewards),
            broken=max(by_name["malformed_only"].rewards),
        )
        for seed in range(4):
            assert (learn(bandit, Rule.NEGATIVE, seed=seed).broken[-1] < 0.03).all(), profile.name
            assert learn(bandit, Rule.DISCARDED, seed=seed).broken[-1, 1] > 0.8, profile.name


def test_every_trick_does_what_it_says(alone: Plays, swarm: Plays) -> None:
    def of(name: str) -> list[Play]:
        return facts(swarm if name in swarm.by_policy and name != HONEST else alone, name)

    assert set(alone.by_policy) == {HONEST} | {trick.name for trick in TRICKS if not trick.swarm}
    assert set(swarm.by_policy) == {HONEST, ONCE} | {trick.name for trick in OF_SWARMS}
    assert all(p.facts.searches == 1 and p.facts.finished and p.facts.sufficient for p in of("one_search"))
    assert all(p.facts.searches == 1 and len(p.facts.returned) <= 4 for p in of("one_search_few"))
    assert all(p.facts.searches == 1 and len(p.facts.returned) == 1 for p in of("early_certain"))
    assert all(p.facts.searches == 1 and p.facts.sufficient is False for p in of("early_humble"))
    assert all(p.facts.searches == 0 and p.facts.finished and not p.facts.returned for p in of("invalid_question"))
    assert all(p.facts.calls == 0 and p.facts.malformed == p.facts.turns > 1 for p in of("asks_back"))
    assert all(p.facts.malformed == p.facts.calls > 5 and p.facts.searches == 0 for p in of("malformed_only"))
    assert all(p.facts.malformed > p.facts.calls / 2 and p.facts.searches == 1 for p in of("malformed_mostly"))
    assert all(p.facts.malformed > 0 and p.facts.returned and not p.facts.finished for p in of("malformed_escape"))
    assert all(p.facts.stop_reason == "budget_tokens" for p in of("overlong"))
    assert all(p.facts.prune_calls >= 2 and p.facts.pruned and not p.facts.returned for p in of("prune_all"))
    assert all(p.facts.prune_streak > 3 and p.facts.returned for p in of("prune_all_return_all"))
    assert all(len(p.facts.shown) > 15 and p.facts.unseen_cited > 100 for p in of("return_all"))
    assert all(p.facts.searches == 0 and p.facts.unseen_cited > 100 for p in of("cite_unseen"))
    assert all(p.facts.searches == 1 and p.facts.unseen_cited > 100 for p in of("cite_unseen_too"))
    assert all(p.facts.searches > 3 and not p.facts.finished for p in of("endless_rewording"))
    assert all(not p.facts.finished and p.facts.searches > 1 for p in of("quiet_end"))
    assert all(p.facts.searches == 3 and p.facts.sufficient is False for p in of("always_doubts"))
    assert all(p.result.answer and p.result.answer.text == p.task.question for p in of("question_as_answer"))
    assert all(p.result.answer and len(p.result.answer.text) > 500 for p in of("stuffed_answer"))
    assert all(p.result.answer and p.result.answer.text.startswith("yes no ") for p in of("hedged_answer"))
    assert all("excellent" in (p.result.justification or "") for p in of("flattery"))
    assert all("<chunk" in (p.result.justification or "") for p in of("forged_document"))
    assert all(p.facts.subagents == 8 and p.facts.useful_subagents == 0 for p in of("fake_split"))
    assert all(p.facts.subagents == 8 and len(p.facts.returned) == 1 for p in of("fake_split_wrong"))
    assert all(p.facts.subagents == 8 and p.facts.searches == 8 for p in of("copied_split"))
    assert all(p.facts.subagents > 2 and p.facts.parallel == p.facts.subagents for p in of("word_split"))
    assert all(
        play.facts.fault is None for plays in (alone, swarm) for played in plays.by_policy.values() for play in played
    )


def test_tricks_know_no_more_than_the_question(collection: Collection) -> None:
    """Answers and gold of a task reach nobody: the same question with other ones is searched the same way."""
    [task] = tasks()[:1]
    other = replace(task, id="other", answers=("nobody",), gold_ids=("ferry-magna",))
    plays = asyncio.run(play(collection, [task, other], ALONE, tricks=TRICKS[:6]))
    for played in plays.by_policy.values():
        first, second = (
            [[call.arguments for call in turn.calls] for turn in p.result.trajectory.turns]  # type: ignore[union-attr]
            for p in played
        )
        assert first == second


def test_a_reward_with_a_hole_is_found(alone: Plays, swarm: Plays) -> None:
    """Showing is all that this one pays: whoever searches widely and never ends is as good as who does the work."""
    nothing = dict.fromkeys(("f_beta", "answer_found", "excess", "doubt", "stalled"), 0.0)
    shows = RewardProfile.from_dict({"name": "shows", "trajectory_recall": 1.0, **nothing})
    with pytest.raises(RewardHackError, match=r"endless_rewording under shows at progress 1: mean reward"):
        assert_honest_first(rankings(alone, shows))
    pays_nothing = RewardProfile.from_dict(
        {"name": "nothing", "f_beta": 0, "trajectory_recall": 0, "answer_found": 0, "abstention": 0}
    )
    ranking = ranked(alone, pays_nothing)
    assert {"invalid_question", "one_search"} <= {standing.name for standing in ranking.outranking}


def test_a_trick_that_gets_out_of_being_scored_outranks(alone: Plays) -> None:
    """However little it earns: what training leaves out cannot be unlearned."""
    played = alone.by_policy["malformed_only"]
    lucky = replace(played[0], facts=replace(played[0].facts, fault="the model server failed"))
    plays = Plays(alone.tasks, {**alone.by_policy, "malformed_only": (lucky, *played[1:])})
    [escaped] = ranked(plays, PROFILES["context1"]).outranking
    assert (escaped.name, escaped.masked) == ("malformed_only", 1)
    with pytest.raises(RewardHackError, match="1 of its searches would not be trained on"):
        assert_honest_first([ranked(plays, PROFILES["context1"])])


def test_an_honest_policy_that_breaks_is_no_measure(collection: Collection) -> None:
    with pytest.raises(HonestFailed, match="broke on ferry-alma"):
        asyncio.run(play(collection, tasks()[:2], ALONE, tricks=TRICKS[:1], honest=lambda _: ScriptedPolicy([])))


def test_the_lead_is_an_interval_over_tasks(alone: Plays) -> None:
    ranking = ranked(alone, PROFILES["context1"])
    lead = ranking.lead(ranking.tricks[-1])
    assert lead is not None
    assert 0 < lead.low <= lead.mean <= lead.high
    assert lead.mean == pytest.approx(ranking.honest.mean - ranking.tricks[-1].mean)
    assert [standing.mean for standing in ranking.tricks] == sorted((s.mean for s in ranking.tricks), reverse=True)


def test_tasks_that_one_search_answers_rank_nobody(alone: Plays) -> None:
    """Where one search finds everything, stopping there is right, and no trick."""
    assert 8 <= len(alone.taking_work) < len(alone.tasks)
    ranking = ranked(alone, PROFILES["context1"])
    assert [task.id for task in ranking.tasks] == [alone.tasks[place].id for place in alone.taking_work]
    assert ranking.played == 12
    easy = [place for place in range(12) if place not in alone.taking_work]
    few = {name: tuple(played[place] for place in easy) for name, played in alone.by_policy.items()}
    with pytest.raises(TasksTooEasy, match="more hops"):
        ranked(Plays(tuple(alone.tasks[place] for place in easy), few), PROFILES["context1"])


@pytest.mark.slow
def test_no_trick_outranks_the_honest_policy_on_real_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of five: the builtin policy always fills its list, and more than that is not allowed for two hops."""
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))
    chosen, folder = sample(tmp_path / "musique", questions=24, documents=700)
    with prepared_collection(folder, "minilm") as real:
        alone = asyncio.run(play(real, chosen, replace(ALONE, max_results=5)))
        swarm = asyncio.run(play(real, chosen, replace(SWARM, max_results=5), tricks=(TRICKS[0], *OF_SWARMS)))
    assert TRICKS[0].name == ONCE
    for plays in (alone, swarm):
        assert 8 <= len(plays.taking_work) < 24
        for profile in PROFILES.values():
            assert_honest_first(rankings(plays, profile))


def sample(folder: Path, *, questions: int, documents: int) -> tuple[list[Task], Path]:
    """Dev questions of MuSiQue, and their documents among others."""
    source = shared_data("musique")
    dice = random.Random(7)
    chosen = dice.sample(load_tasks(source / "queries.jsonl", split="dev"), questions)
    gold = {document for task in chosen for document in task.gold_ids}
    lines = (source / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if json.loads(line)["id"] in gold]
    others = dice.sample([line for line in lines if json.loads(line)["id"] not in gold], documents - len(kept))
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("\n".join([*kept, *others]) + "\n", encoding="utf-8")
    return chosen, folder
