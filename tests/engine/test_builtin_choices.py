"""Learned choices of the builtin policy: what their weights may be, how they are drawn, that limits hold for them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import make_collection

from thresher.context import Budget
from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
from thresher.engine import Effort, SearchRequest, SearchResult, StopReason
from thresher.engine.policies import make_policy
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.policies.builtin.choosing import (
    Best,
    Choices,
    Drawing,
    answer_logprob,
    first_of_each,
    order_logprob,
)
from thresher.engine.policies.builtin.weights import (
    FEATURES,
    SHIPPED,
    Head,
    Kind,
    Weights,
    WeightsError,
    load_weights,
    rules_weights,
    save_weights,
    shipped,
)
from thresher.engine.profiles import Profile
from thresher.engine.requests import Strategy
from thresher.engine.search import SearchEngine
from thresher.engine.variation import seeded

CHAIN = {
    "alma.md": "The ferry Alma carried mail. The engine of the Alma was made by Brask Works.",
    "brask.md": "Brask Works was an engine maker. It was founded by Edda Lindqvist.",
    "edda.md": "Edda Lindqvist was born in Holmvik in 1871 and studied in Bergen.",
    **{
        f"other{n}.md": f"The ferry number {n} carried mail to island {n}. Its engine was of no use." for n in range(40)
    },
}
QUESTION = "Where was the founder of the maker of the engine of the Alma born?"
PERMITTED = ("CC BY 4.0", "ODC-BY", "Apache-2.0")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with make_collection(tmp_path_factory.mktemp("chain") / "c", CHAIN) as collection:
        yield collection


def random_weights(seed: int, units: int = 3) -> Weights:
    dice = np.random.default_rng(seed)
    heads = {}
    for kind in Kind:
        count = len(FEATURES[kind])
        heads[kind] = Head(
            mean=dice.normal(size=count),
            scale=dice.uniform(0.5, 2, size=count),
            linear=dice.normal(size=count),
            hidden=dice.normal(size=(units, count)),
            bias=dice.normal(size=units),
            out=dice.normal(size=units),
            offset=float(dice.normal()),
        )
    return Weights(heads)


def policy_of(weights: Weights | None) -> SearchEngine | object:
    return lambda collection: BuiltinPolicy(collection, choices=None if weights is None else Choices(weights))


async def ask(collection: Collection, weights: Weights | None, **request: object) -> SearchResult:
    engine = SearchEngine(collection, policy_of(weights))  # type: ignore[arg-type]
    return await engine.search(SearchRequest(QUESTION, **request))  # type: ignore[arg-type]


def written(result: SearchResult) -> list[str]:
    assert result.trajectory is not None
    return [call.arguments for turn in result.trajectory.turns for call in turn.calls]


# Drawing


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=5), st.integers(1, 5))
def test_chances_of_all_orders_add_up_to_one(scores: list[float], count: int) -> None:
    table = np.array(scores)
    orders = itertools.permutations(range(len(scores)), min(count, len(scores)))
    assert sum(np.exp(order_logprob(table, order)[0]) for order in orders) == pytest.approx(1)


@given(st.lists(st.floats(-4, 4), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_gradient_of_an_order_is_that_of_finite_differences(scores: list[float], dice: object) -> None:
    table = np.array(scores)
    picked = sorted(range(len(scores)), key=lambda _: dice.random())[: len(scores) - 1]  # type: ignore[attr-defined]
    groups = [row % 2 for row in range(len(scores))]
    allowed = first_of_each(picked, len(picked), groups, 2)
    _, gradient = order_logprob(table, allowed, groups, 2)
    for row in range(len(scores)):
        step = np.zeros(len(scores))
        step[row] = 1e-5
        up, down = (order_logprob(table + sign * step, allowed, groups, 2)[0] for sign in (1, -1))
        assert gradient[row] == pytest.approx((up - down) / 2e-5, abs=1e-5)


@given(st.floats(-30, 30), st.booleans())
def test_yes_and_no_share_all_chance(score: float, chosen: bool) -> None:
    logprob, slope = answer_logprob(score, chosen)
    assert np.exp(logprob) + np.exp(answer_logprob(score, not chosen)[0]) == pytest.approx(1)
    up, down = (answer_logprob(score + step, chosen)[0] for step in (1e-4, -1e-4))
    assert slope == pytest.approx((up - down) / 2e-4, abs=1e-4)


def test_orders_are_drawn_as_often_as_their_chance_says() -> None:
    head = Head.of_rules(Kind.KEEP)
    table = np.zeros((3, len(FEATURES[Kind.KEEP])))
    table[:, 0] = [0.0, 1.0, -0.5]
    counts: dict[tuple[int, ...], int] = {}
    drawing = Drawing(seed=5)
    for _ in range(6_000):
        picked = tuple(drawing.order(Kind.KEEP, head, table, 2, groups=None, per_group=0))
        counts[picked] = counts.get(picked, 0) + 1
    for order in itertools.permutations(range(3), 2):
        chance = np.exp(order_logprob(head.scores(table), order)[0])
        assert counts[order] / 6_000 == pytest.approx(chance, abs=0.03)
    assert len(drawing.records[5]) == 6_000


def test_the_best_are_taken_in_order_and_few_of_a_group() -> None:
    head = Head.of_rules(Kind.KEEP)
    table = np.zeros((4, len(FEATURES[Kind.KEEP])))
    table[:, 0] = [1.0, 3.0, 2.0, 3.0]
    assert Best().order(Kind.KEEP, head, table, 3, groups=None, per_group=0) == [1, 3, 2]
    assert Best().order(Kind.KEEP, head, table, 3, groups=[0, 1, 0, 1], per_group=1) == [1, 2]


# Weights


def test_weights_come_back_as_they_were_written(tmp_path: Path) -> None:
    weights = random_weights(1)
    save_weights(weights, tmp_path / "w.json")
    again = load_weights(tmp_path / "w.json")
    for kind in Kind:
        table = np.random.default_rng(2).normal(size=(5, len(FEATURES[kind])))
        assert again.heads[kind].scores(table) == pytest.approx(weights.heads[kind].scores(table), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda record: record["heads"]["rank"]["features"].__setitem__(3, "smell"), "missing: clause; unknown: smell"),
        (lambda record: record["heads"].pop("keep"), "keep"),
        (lambda record: record["heads"]["rank"]["linear"].__setitem__(0, float("nan")), "finite"),
        (lambda record: record["heads"]["rank"]["scale"].__setitem__(0, 0.0), "positive"),
        (lambda record: record["heads"]["rank"]["linear"].pop(), "reshape"),
        (lambda record: record.__setitem__("format", 9), "format 9"),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_words(tmp_path: Path, spoil: object, said: str) -> None:
    path = tmp_path / "w.json"
    save_weights(random_weights(1), path)
    record = json.loads(path.read_text())
    spoil(record)  # type: ignore[operator]
    path.write_text(json.dumps(record))
    with pytest.raises(WeightsError, match=said) as caught:
        load_weights(path)
    assert "train" in str(caught.value)
    assert caught.value.param == "policy"


def test_a_file_that_holds_no_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text("not json")
    with pytest.raises(WeightsError, match="not JSON"):
        load_weights(tmp_path / "w.json")
    with pytest.raises(WeightsError, match="cannot read"):
        make_policy(f"builtin:{tmp_path / 'none.json'}")


def test_shipped_weights_say_what_they_were_trained_on() -> None:
    about = shipped().about
    assert about is not None
    assert about.trained_on
    assert set(about.trained_on) == set(about.licences)
    assert set(about.licences.values()) <= set(PERMITTED)
    assert "hotpotqa" not in about.trained_on
    assert all("dev" not in part for part in about.trained_on.values())
    assert about.embedder
    assert about.date


@pytest.mark.slow
async def test_shipped_weights_tell_what_the_sample_answers_from_what_it_is_not_about(
    sample_docs: Path, tmp_path: Path
) -> None:
    with Collection.open_or_create(tmp_path / "sample", load_embedder("minilm")) as collection:
        ingest(collection, [sample_docs])
        engine = SearchEngine(collection, "builtin:learned")
        words = {
            question: (await engine.search(SearchRequest(question))).sufficient
            for question in (
                "Which yard built the ferry that rescued the Petrel's crew?",
                "Which enzyme splits lactose in the human gut?",
                "Who won the 2014 football world cup?",
            )
        }
    assert list(words.values()) == [True, False, False]


def test_shipped_weights_load_in_no_time() -> None:
    def seconds() -> float:
        started = time.process_time()
        load_weights(SHIPPED)
        return time.process_time() - started

    assert min(seconds() for _ in range(5)) < 0.05
    assert SHIPPED.stat().st_size < 100_000


# Searches


async def test_weights_of_the_rules_search_as_the_rules_do(chain: Collection) -> None:
    by_rules, learned = await ask(chain, None), await ask(chain, rules_weights())
    assert written(by_rules)[:-1] == written(learned)[:-1]
    assert by_rules.sufficient == learned.sufficient


async def test_the_rules_are_there_when_asked_for(chain: Collection) -> None:
    by_name = await SearchEngine(chain, "builtin:rules").search(SearchRequest(QUESTION))
    assert written(by_name) == written(await ask(chain, None))


async def test_the_rules_are_the_default_and_the_shipped_weights_have_a_name(chain: Collection) -> None:
    by_default = await SearchEngine(chain).search(SearchRequest(QUESTION))
    assert written(by_default) == written(await ask(chain, None))
    by_name = await SearchEngine(chain, "builtin:learned").search(SearchRequest(QUESTION))
    assert written(by_name) == written(await ask(chain, shipped()))


async def test_own_weights_are_used(chain: Collection, tmp_path: Path) -> None:
    weights = rules_weights()
    never = replace(weights.heads[Kind.GO_ON], offset=-10.0)
    save_weights(weights.with_heads({Kind.GO_ON: never}), tmp_path / "w.json")
    result = await SearchEngine(chain, f"builtin:{tmp_path / 'w.json'}").search(SearchRequest(QUESTION))
    assert result.stop_reason is StopReason.FINISHED
    assert result.usage.turns == 2


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_the_weights_a_search_repeats_exactly(chain: Collection, seed: int) -> None:
    weights = random_weights(seed)
    first, second = await ask(chain, weights), await ask(chain, weights)
    assert written(first) == written(second)
    assert first.results == second.results


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_the_weights_limits_hold(chain: Collection, seed: int, strategy: Strategy) -> None:
    budget = Budget(total=12_000, soft=3_500, hard=5_500, tool_output=800)
    engine = SearchEngine(chain, policy_of(random_weights(seed)), profile=Profile(budget=budget))  # type: ignore[arg-type]
    result = await engine.search(SearchRequest(QUESTION, strategy=strategy, max_results=4))
    assert result.status == "completed"
    assert result.usage.recoveries == 0
    assert result.usage.peak_context_tokens <= budget.hard
    assert len(result.results) <= 4
    assert strategy is Strategy.PRUNE or not any("prune_chunks" in text for text in written(result))


@pytest.mark.parametrize(("effort", "most"), [(Effort.LOW, 3), (Effort.MEDIUM, 4), (Effort.HIGH, 5)])
async def test_whatever_the_weights_effort_bounds_the_turns(chain: Collection, effort: Effort, most: int) -> None:
    for seed in range(4):
        assert (await ask(chain, random_weights(seed), effort=effort)).usage.turns <= most
    assert (await ask(chain, random_weights(0), effort=effort, max_turns=2)).usage.turns <= 2


async def test_drawn_searches_differ_by_seed_and_repeat_by_seed(chain: Collection) -> None:
    drawing = Drawing()

    async def drawn(seed: int) -> list[str]:
        def made(collection: Collection) -> BuiltinPolicy:
            return seeded(BuiltinPolicy(collection, choices=Choices(rules_weights(), drawing)), seed)

        return written(await SearchEngine(chain, made).search(SearchRequest(QUESTION)))

    runs = [await drawn(seed) for seed in (1, 2, 3, 1)]
    assert runs[0] == runs[3]
    assert len({tuple(run) for run in runs}) > 1
    kinds = {choice.kind for choice in drawing.records[1]}
    assert {Kind.QUERY, Kind.GO_ON, Kind.RANK, Kind.SUFFICIENT} <= kinds
    assert all(choice.logprob <= 0 for choice in drawing.records[1])
