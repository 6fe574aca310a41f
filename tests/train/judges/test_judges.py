"""Judges over real HTTP: votes, faults, the cache, scores by rubric and in pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_support import TEXTS, Asked, Rule, asked, gullible, judge_server, judging, material, model
from stub_model import Reply, serve_model

from thresher.train.errors import TrainError
from thresher.train.hacks.judge_attacks import ORDERS
from thresher.train.judges.choice import JudgeChoice
from thresher.train.judges.errors import JudgeError, JudgeUnavailable, RubricError
from thresher.train.judges.judging import Comparison, PairwiseJudge, RubricJudge
from thresher.train.judges.making import make_judge
from thresher.train.judges.prompts import LEVELS, Asking
from thresher.train.judges.rubrics import Criterion, Rubric, load_rubric, load_rubrics, shipped_rubrics
from thresher.train.judges.votes import VoteCache

RUBRIC = Rubric(
    name="r", criteria=(Criterion(id="one", text="It is so."), Criterion(id="two", text="And so on.", weight=3))
)
SEEN = Rubric(name="seen", sees=("passages",), criteria=(Criterion(id="there", text="It is there."),))


def always(*words: str, **by_key: str) -> Rule:
    return lambda ask: ask.says(*words, **by_key)


def by_vote(*words: str | None) -> Rule:
    """Each request its own word, in order; None is no verdict, twice."""
    left = [word for word in words for _ in range(1 if word else 2)]
    return lambda ask: Reply("I cannot say.") if (word := left.pop(0)) is None else ask.says(word)


async def score(
    rule: Rule, *rubrics: Rubric, votes: int = 3, answer: str | None = None
) -> tuple[float | None, RubricJudge]:
    with judge_server(rule) as server:
        judge = RubricJudge(model(server, concurrency=1), rubrics or (RUBRIC,), votes=votes)
        [found] = await judge.judge([material() if answer is None else material(answer)])
        await judge.aclose()
        return found.score, judge


async def test_a_score_is_the_share_of_what_is_met_by_weight() -> None:
    found, judge = await score(always(one="met", two="unmet"))
    assert found == pytest.approx(0.25)
    assert (judge.stats.votes, judge.stats.replies, judge.stats.judged) == (3, 3, 1)
    assert (await score(always(one="unmet", two="partly")))[0] == pytest.approx(0.375)
    assert (await score(always("met"), RUBRIC, SEEN))[0] == 1.0


async def test_votes_are_asked_at_a_temperature_with_seeds_and_orders_of_their_own() -> None:
    with judge_server(always("met")) as server:
        judge = RubricJudge(model(server), (SEEN,), votes=3)
        await judge.judge([material("", *[f"Text {n} of them." for n in range(6)])])
        await judge.aclose()
    assert len(server.bodies) == 3
    assert len({body["seed"] for body in server.bodies}) == 3
    assert {body["temperature"] for body in server.bodies} == {0.7}
    assert len({tuple(ask.quoted.values()) for ask in asked(server)}) == 3
    assert len({ask.code for ask in asked(server)}) == 3
    schema = server.bodies[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["code"]["enum"] == [asked(server)[0].code]


async def test_two_of_three_decide_and_the_third_is_told() -> None:
    found, judge = await score(by_vote("met", "unmet", "met"))
    assert found == 1.0
    assert (judge.stats.disagreed, judge.stats.decisions, judge.stats.disagreement) == (2, 2, 1.0)


async def test_what_is_no_verdict_is_asked_again_once_and_then_no_vote() -> None:
    found, judge = await score(by_vote("met", None, "met"))
    assert found == 1.0
    assert (judge.stats.votes, judge.stats.no_votes, judge.stats.replies, judge.stats.unparsable) == (3, 1, 4, 2)
    mended = iter([Reply("hm"), None, None, None])

    def second_time(ask: Asked) -> Reply:
        return next(mended) or ask.says("met")

    found, judge = await score(second_time)
    assert found == 1.0
    assert (judge.stats.no_votes, judge.stats.replies, judge.stats.unparsable) == (0, 4, 1)


@pytest.mark.parametrize("votes", [("met", None, None), ("met", "unmet", None), ("met", "partly", "unmet")])
async def test_without_a_majority_there_is_no_score(votes: tuple[str | None, ...]) -> None:
    found, judge = await score(by_vote(*votes))
    assert found is None
    assert (judge.stats.unscored, judge.stats.undecided, judge.stats.judged) == (1, 2, 0)


async def test_a_criterion_without_a_majority_is_no_free_point() -> None:
    """Of two criteria one is met and on the other no two votes agree: half, not all."""
    words = iter(LEVELS)

    def rule(ask: Asked) -> Reply:
        return ask.says(one=next(words), two="met")

    found, judge = await score(rule)
    assert found == pytest.approx(0.75)
    assert judge.stats.undecided == 1


@pytest.mark.parametrize("answer", ["", ":", "Solution", "Let's think step by step", ORDERS])
async def test_an_answer_without_content_is_unmet_unasked(answer: str) -> None:
    found, judge = await score(always("met"), answer=answer)
    assert found == 0.0
    assert (judge.stats.unasked, judge.stats.replies) == (2, 0)
    found, judge = await score(always("met"), RUBRIC, SEEN, answer=answer)
    assert found == 0.5, "passages can be judged without one"


async def test_a_long_answer_is_paid_in_proportion() -> None:
    found, _ = await score(always("met"), answer="Edda Corvin founded the works. " * 200)
    assert found == pytest.approx(2_000 / 6_200)


async def test_searches_that_look_the_same_are_asked_about_once() -> None:
    with judge_server(always("met")) as server:
        judge = RubricJudge(model(server), (RUBRIC,), votes=3)
        found = await judge.judge([material(), material(), material("Corvin")])
        await judge.aclose()
    assert [each.score for each in found] == [1.0, 1.0, 1.0]
    assert len(server.bodies) == 6


async def test_votes_are_kept_by_content_and_a_resumed_run_does_not_ask_twice(tmp_path: Path) -> None:
    path = tmp_path / "votes.jsonl"
    with judge_server(always(one="met")) as server:
        for _ in range(2):
            judge = RubricJudge(model(server, VoteCache(path)), (RUBRIC,), votes=3)
            [found] = await judge.judge([material()])
            await judge.aclose()
            assert found.score == 0.25
        assert len(server.bodies) == 3
        assert (judge.stats.cached, judge.stats.replies, judge.stats.votes) == (3, 0, 3)
        with path.open("ab") as file:
            file.write(b'{"key": "torn')
        sharper = RUBRIC.model_copy(update={"criteria": (Criterion(id="one", text="It is just so."),)})
        for rubric, more in ((RUBRIC, 0), (sharper, 3)):
            judge = RubricJudge(model(server, VoteCache(path)), (rubric,), votes=3)
            before = len(server.bodies)
            await judge.judge([material()])
            await judge.aclose()
            assert len(server.bodies) - before == more
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["rubric"], line["vote"]["verdicts"]["one"]) for line in lines] == [("r", "met")] * 6


async def test_a_file_of_votes_has_one_writer(tmp_path: Path) -> None:
    held = VoteCache(tmp_path / "votes.jsonl")
    with pytest.raises(JudgeError, match="another process writes"):
        VoteCache(tmp_path / "votes.jsonl")
    held.close()
    VoteCache(tmp_path / "votes.jsonl").close()


# --- faults of the infrastructure, and what is none


async def test_a_passing_fault_is_tried_again_and_is_no_vote() -> None:
    with serve_model(Reply(status=503, error="busy"), always=judging(always("met"))) as server:
        judge = RubricJudge(model(server, concurrency=1), (RUBRIC,), votes=1)
        [found] = await judge.judge([material()])
        await judge.aclose()
    assert found.score == 1.0
    assert (judge.stats.replies, judge.stats.unparsable) == (1, 0)


@pytest.mark.parametrize(
    ("reply", "passing"),
    [
        (Reply(status=503, error="busy"), True),
        (Reply(raw=b"<html>"), True),
        (Reply(raw=b'{"object": "other"}'), True),
        (Reply(status=401, error="no such key"), False),
        (Reply(status=404, error="no such model"), False),
    ],
)
async def test_a_judge_that_cannot_be_asked_is_a_fault_and_no_zero(reply: Reply, passing: bool) -> None:
    with serve_model(always=reply) as server:
        judge = RubricJudge(model(server), (RUBRIC,))
        with pytest.raises(JudgeUnavailable) as raised:
            await judge.judge([material()])
        assert raised.value.passing is passing
        with pytest.raises(JudgeUnavailable):
            await judge.check()
        await judge.aclose()


async def test_a_server_that_is_not_there() -> None:
    with judge_server(always("met")) as server:
        pass
    judge = RubricJudge(model(server), (RUBRIC,))
    with pytest.raises(JudgeUnavailable, match="cannot be reached") as raised:
        await judge.check()
    assert raised.value.passing
    await judge.aclose()


async def test_what_a_content_filter_refuses_is_no_vote_and_no_way_out() -> None:
    refusal = Reply(status=400, error="the content was flagged by our policy")
    with serve_model(always=refusal) as server:
        judge = RubricJudge(model(server), (RUBRIC,), votes=3)
        [found] = await judge.judge([material()])
        assert found.score is None
        assert (judge.stats.refused, judge.stats.no_votes, judge.stats.unscored) == (3, 3, 1)
        with pytest.raises(JudgeUnavailable, match="refuses a plain question"):
            await judge.check()
        await judge.aclose()


async def test_a_small_context_is_given_less_of_the_passages() -> None:
    def cramped(body: dict[str, Any]) -> Reply:
        size = sum(len(message["content"]) for message in body["messages"])
        if size > 4_500:
            text = (
                "This model's maximum context length is 1000 tokens. However, your prompt contains 2000 input tokens."
            )
            return Reply(status=400, error=text)
        return Asked.of(body).says("met")

    long = material("Corvin", "Corvin founded it. " * 100, "The ferry has an engine. " * 100)
    with serve_model(always=cramped) as server:
        judge = RubricJudge(model(server), (RUBRIC,), votes=1)
        [found] = await judge.judge([long])
        assert found.score == 1.0
        assert 2 <= len(server.bodies) <= 4
        await judge.aclose()
    with serve_model(always=Reply(status=400, error="maximum context length is 100 tokens")) as server:
        judge = RubricJudge(model(server), (RUBRIC,), votes=1)
        with pytest.raises(JudgeUnavailable, match="context is too small"):
            await judge.judge([long])
        await judge.aclose()


async def test_servers_without_schemas_and_seeds() -> None:
    def plain(body: dict[str, Any]) -> Reply:
        if "response_format" in body:
            return Reply(status=400, error="response_format is not supported")
        if "seed" in body:
            return Reply(status=400, error="unsupported parameter: seed")
        return Asked.of({**body, "seed": 0}).says("met")

    with serve_model(always=plain) as server:
        judge = RubricJudge(model(server, concurrency=1), (RUBRIC,), votes=3)
        [found] = await judge.judge([material()])
        await judge.aclose()
    assert found.score == 1.0
    assert len(server.bodies) == 5, "each thing is refused once"


# --- in pairs


async def compared(rule: Rule, *answers: str, votes: int = 1) -> tuple[Comparison, PairwiseJudge]:
    one, other = answers or ("Edda Corvin founded it.", "The works made an engine.")
    with judge_server(rule) as server:
        judge = PairwiseJudge(model(server), votes=votes)
        found = await judge.compare(material(one), material(other))
        await judge.aclose()
        return found, judge


def likes(word: str) -> Rule:
    """Prefers the answer with a word in it."""

    def rule(ask: Asked) -> Reply:
        first, second = word in ask.quoted["FIRST ANSWER"], word in ask.quoted["SECOND ANSWER"]
        return ask.says("tie" if first == second else "first" if first else "second")

    return rule


async def test_a_win_counts_if_both_orders_agree() -> None:
    assert (await compared(likes("Corvin")))[0] == Comparison("first", True)
    assert (await compared(likes("engine")))[0] == Comparison("second", True)
    found, judge = await compared(always("tie"))
    assert found == Comparison("tie", True)
    assert judge.stats.position_bias == 0.0


@pytest.mark.parametrize("place", ["first", "second"])
async def test_a_judge_that_likes_a_place_decides_nothing(place: str) -> None:
    found, judge = await compared(always(place))
    assert found == Comparison("tie", False)
    assert (judge.stats.position_bias, getattr(judge.stats, place)) == (1.0, 2)


async def test_a_pair_without_majorities_pays_neither() -> None:
    with judge_server(lambda ask: Reply("hm")) as server:
        for against in ("all", "reference"):
            judge = PairwiseJudge(model(server), against=against)
            found = await judge.judge([material("Corvin"), material("an engine")])
            assert [each.score for each in found] == [None, None]
            assert judge.stats.unscored == 2
            await judge.aclose()


async def test_what_looks_the_same_or_says_nothing_is_not_asked_about() -> None:
    def never(ask: Asked) -> Reply:
        raise AssertionError("nobody had to ask")

    assert (await compared(never, "Corvin", "Corvin"))[0].word == "tie"
    found, judge = await compared(never, "Solution", "Corvin")
    assert found.word == "second"
    assert judge.stats.unasked == 1


RANKED = ("It was Corvin, Corvin, Corvin.", "It was Corvin, Corvin.", "It was Corvin.")


def counts(ask: Asked) -> Reply:
    first, second = (ask.quoted[f"{name} ANSWER"].count("Corvin") for name in ("FIRST", "SECOND"))
    return ask.says("tie" if first == second else "first" if first > second else "second")


async def test_a_round_robin_is_a_win_rate() -> None:
    with judge_server(counts) as server:
        judge = PairwiseJudge(model(server, concurrency=1), against="all")
        found = await judge.judge([material(answer) for answer in (*RANKED, RANKED[1])])
        await judge.aclose()
    assert [each.score for each in found] == pytest.approx([1.0, 0.5, 0.0, 0.5])
    assert len(server.bodies) == 6, "three pairs that look different, in two orders"


async def test_a_reference_is_the_middle_of_the_scale() -> None:
    with judge_server(counts) as server:
        judge = PairwiseJudge(model(server), against="reference")
        found = await judge.judge([material(answer) for answer in RANKED], reference=1)
        alone = await judge.judge([material(RANKED[0])])
        none = await judge.judge([])
        await judge.aclose()
    assert [each.score for each in found] == [1.0, 0.5, 0.0]
    assert len(server.bodies) == 4
    assert [each.score for each in alone] == [None]
    assert none == []


@settings(max_examples=4, deadline=None)
@given(st.lists(st.sampled_from(["Corvin", "the founder", "Brask", "an engine", "Solution"]), min_size=2, max_size=5))
async def test_scores_of_a_round_robin_add_up(answers: list[str]) -> None:
    with judge_server(counts) as server:
        judge = PairwiseJudge(model(server), against="all")
        found = [each.score for each in await judge.judge([material(answer) for answer in answers])]
        await judge.aclose()
    assert all(score is not None and 0 <= score <= 1 for score in found)
    assert sum(score for score in found if score is not None) == pytest.approx(len(answers) / 2)


async def test_orders_in_an_answer_do_not_win_a_pair() -> None:
    found, _ = await compared(gullible, f"Edda Corvin founded it. {ORDERS}", "Edda Corvin founded the works.")
    assert found.word == "tie"


# --- rubrics and settings


def test_shipped_rubrics_are_rubrics() -> None:
    assert set(shipped_rubrics()) >= {"grounded", "complete", "answers_the_question", "evidence"}
    for name in shipped_rubrics():
        rubric = load_rubric(name)
        assert rubric.name == name
        assert rubric.about
        assert "justification" not in rubric.sees
    assert not load_rubric("evidence").needs_answer


def test_a_users_own_rubric(tmp_path: Path) -> None:
    path = tmp_path / "polite.toml"
    path.write_text('sees = ["answer"]\n[[criteria]]\nid = "polite"\ntext = "The answer is polite."\n')
    rubric = load_rubric(str(path))
    assert (rubric.name, rubric.sees, rubric.criteria[0].weight) == ("polite", ("answer",), 1.0)
    assert [each.name for each in load_rubrics(["grounded", str(path)])] == ["grounded", "polite"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "criteria: Field required"),
        ("criteria = []", "criteria: .*at least 1"),
        ('[[criteria]]\nid = "a"\ntext = "short"', "criteria.0.text"),
        ('[[criteria]]\nid = "a b"\ntext = "long enough"', "criteria.0.id"),
        ('[[criteria]]\nid = "a"\ntext = "long enough"\nweight = 0', "criteria.0.weight"),
        ('[[criteria]]\nid = "a"\ntext = "long enough"\n[[criteria]]\nid = "a"\ntext = "long enough"', "the same id"),
        ('sees = ["reasoning"]\n[[criteria]]\nid = "a"\ntext = "long enough"', "sees.0"),
        (
            'sees = ["justification"]\n[[criteria]]\nid = "a"\ntext = "long enough"',
            "must name answer, passages or both",
        ),
        ('votes = 3\n[[criteria]]\nid = "a"\ntext = "long enough"', "votes"),
        ("criteria = ", "is not a TOML file"),
    ],
)
def test_mistakes_in_a_rubric_are_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(RubricError, match=problem):
        load_rubric(str(path))


def test_there_is_no_such_rubric(tmp_path: Path) -> None:
    with pytest.raises(RubricError, match=r"name one of answers_the_question, complete, evidence, grounded"):
        load_rubric("groundedness")
    with pytest.raises(RubricError, match="cannot read"):
        load_rubric(str(tmp_path / "none.toml"))
    with pytest.raises(RubricError, match="the same name"):
        load_rubrics(["grounded", "grounded"])


@pytest.mark.parametrize("field", [{"votes": 2}, {"temperature": 0}, {"rubrics": ()}, {"votes": 0}, {"kind": "best"}])
def test_choices_that_cannot_be(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        JudgeChoice(model="m", **field)


async def test_a_judge_by_its_spec() -> None:
    with judge_server(always("met")) as server:
        for choice in (JudgeChoice(model=f"chat:small@{server.url}"), JudgeChoice(model="small", url=server.url)):
            judge = make_judge(choice, key="secret")
            await judge.check()
            await judge.aclose()
        assert {body["model"] for body in server.bodies} == {"small"}
        assert server.requests[0].headers["authorization"] == "Bearer secret"
    with pytest.raises(TrainError, match="no rubric"):
        make_judge(JudgeChoice(model="m", rubrics=("none",)))
    with pytest.raises(ValueError, match="odd"):
        PairwiseJudge(model(server), votes=2)


def test_a_question_is_known_again_by_what_a_judge_would_see() -> None:
    one = Asking.by_rubric(material(), RUBRIC, order=1)
    assert one == Asking.by_rubric(material(), RUBRIC, order=1)
    assert material().digest != material("Other.").digest != material("Other.", TEXTS[0]).digest
