from __future__ import annotations

from dataclasses import replace

import pytest

from thresher.engine.requests import ANY_QUESTION, Effort, SearchRequest, Strategy
from thresher.train.evaluation.systems import (
    BASELINE,
    InvalidSystem,
    System,
    parse_system,
    parse_systems,
    system_of,
    usual_systems,
)

OWN = System("chat:m@http://h/v1+effort=low", "chat:m@http://h/v1", Effort.LOW)
RERANKING = replace(OWN, rerank=True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("one-search", BASELINE),
        ("one-search+rerank", replace(BASELINE, rerank=True)),
        ("builtin:rules", replace(OWN, policy="builtin:rules")),
        ("builtin:learned+fold", replace(OWN, policy="builtin:learned", strategy=Strategy.FOLD)),
        ("builtin:./w.json+effort=high", replace(OWN, policy="builtin:./w.json", effort=Effort.HIGH)),
        ("none", replace(OWN, strategy=Strategy.NONE)),
        ("swarm+rollouts=3", replace(OWN, swarm=True, rollouts=3)),
        ("rerank+mask-old", replace(OWN, rerank=True, strategy=Strategy.MASK_OLD)),
        ("hf:/models/x", replace(OWN, policy="hf:/models/x")),
    ],
)
def test_a_system_is_a_policy_and_options_and_the_rest_as_set(text: str, wanted: System) -> None:
    assert parse_system(text, RERANKING) == replace(wanted, name=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fodl", "there is no system 'fodl'; did you mean fold?"),
        ("oracle", "choose from a policy"),
        ("builtin:rules+fodl", "there is no option 'fodl'; did you mean fold?"),
        ("builtin:rules+chat:m", "there is no option 'chat:m'"),
        ("one-search+fold", "has no policy, so rerank is all that may follow"),
        ("swarm+one-search", "there is no option 'one-search'"),
        ("rollouts=0", "1..16"),
        ("rollouts=two", "1..16"),
        ("effort=minimal", "minimal is one-search"),
        ("builtin:rules+", "is no system"),
        ("", "is no system"),
        ("builtin:rules+rerank", "no reranker is set"),
        ("one-search+rerank", "no reranker is set"),
    ],
)
def test_what_is_no_system(text: str, message: str) -> None:
    with pytest.raises(InvalidSystem, match=message.replace("?", r"\?")):
        parse_systems(text, OWN)


def test_the_baseline_is_always_first_and_nothing_twice() -> None:
    assert [system.name for system in parse_systems("fold, one-search,fold", OWN)] == ["one-search", "fold"]
    assert [system.name for system in usual_systems(BASELINE)] == ["one-search"]
    assert [system.name for system in usual_systems(RERANKING)] == ["one-search", "one-search+rerank", OWN.name]


def test_strategies_are_those_of_the_chosen_policy() -> None:
    _, *systems = parse_systems("strategies", OWN)
    assert [system.name for system in systems] == [str(strategy) for strategy in Strategy]
    assert {system.policy for system in systems} == {OWN.policy}


def test_the_board_has_both_builtins_and_the_chosen_policy_in_every_way() -> None:
    names = [system.name for system in parse_systems("board", System("builtin"))]
    assert names == [
        "one-search",
        "builtin:rules",
        "builtin:learned",
        "builtin:learned+swarm",
        "builtin:learned+fold",
        "builtin:learned+mask-old",
        "builtin:learned+none",
    ]
    systems = parse_systems("board", RERANKING)
    assert {"one-search+rerank", f"{OWN.policy}+rerank", f"{OWN.policy}+fold"} <= {system.name for system in systems}
    for system in systems:
        assert replace(parse_system(system.name, RERANKING), name="") == replace(system, name="")


def test_a_request_makes_a_system_whose_name_is_read_back() -> None:
    base = SearchRequest(ANY_QUESTION, max_results=7)
    asked = replace(base, effort=Effort.HIGH, strategy=Strategy.FOLD, swarm=True, rollouts=2)
    system = system_of(asked, "builtin:learned", rerank=True)
    assert system.name == "builtin:learned+fold+swarm+rollouts=2+effort=high+rerank"
    assert parse_system(system.name, RERANKING) == system
    assert system.request(base) == asked
    assert BASELINE.request(base) == replace(base, effort=Effort.MINIMAL)
    assert system_of(BASELINE.request(base), "builtin") == BASELINE


def test_plain_data() -> None:
    assert BASELINE.as_dict("st:x") == {
        "name": "one-search",
        "policy": None,
        "effort": "minimal",
        "strategy": None,
        "swarm": False,
        "rollouts": 1,
        "reranker": None,
    }
    assert replace(OWN, rerank=True).as_dict("st:x")["reranker"] == "st:x"
    assert OWN.asks_model
    assert not System("builtin:learned", "builtin:learned").asks_model
    assert not BASELINE.asks_model
