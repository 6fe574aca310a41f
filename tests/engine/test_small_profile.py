"""The `small` profile: few words, and all that the engine does behind them."""

from __future__ import annotations

import json

from smollm import smollm_path

from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.policies.model.tokens.rendering import TokenRenderer
from thresher.engine.policies.model.tokens.styles import style_for
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.profiles import load_profile
from thresher.engine.requests import Effort, SearchRequest, Strategy
from thresher.engine.search import SearchEngine

SMALL = load_profile("small")


class Seeing(ScriptedPolicy):
    """A script whose context is counted as SmolLM2 does; keeps what it was shown."""

    def __init__(self, *steps: Decision) -> None:
        super().__init__(steps)
        style = style_for(str(smollm_path()), "chatml")
        self.renderer = TokenRenderer(style.format, style.frame)
        self.counter = self.renderer.counter
        self.views: list[View] = []

    async def decide(self, view: View) -> Decision:
        self.views.append(view)
        return await super().decide(view)


def use(name: str, **arguments: object) -> Decision:
    return Decision((ToolUse(name, arguments),))


async def test_what_a_model_is_told_takes_a_quarter_of_the_usual(harbour: Collection) -> None:
    opening = {}
    for name in ("thresher", "small"):
        policy = Seeing(use("finish", evidence_ids=[], sufficient=False))
        await SearchEngine(harbour, lambda _, policy=policy: policy, profile=load_profile(name)).search(
            SearchRequest("Who?")
        )
        opening[name] = policy.views[0].prompt.tokens
    assert opening["small"] < 400 < 1_500 < opening["thresher"]


async def test_three_tools_are_told_and_the_others_run(harbour: Collection) -> None:
    policy = Seeing(
        use("search_corpus", query="ferry Alma", filter=None),
        use("read_document", doc_id="brask.md"),
        use("prune_chunks", ids=["c1"]),
        use("prune_chunks", ids=["c99"]),
        use("restore_chunks", ids=["c1"]),
        use("finish", evidence_ids=["c2"], sufficient=True, justification="It says so.", quotes={"c2": "x"}),
    )
    result = await SearchEngine(harbour, lambda _: policy, profile=SMALL).search(SearchRequest("Who?", max_turns=9))
    assert result.status == "completed"
    assert result.justification == "It says so."
    told = {tool.name: tool.parameters for tool in policy.views[0].tools}
    assert {name: list(parameters["properties"]) for name, parameters in told.items()} == {
        "search_corpus": ["query"],
        "prune_chunks": ["ids"],
        "finish": ["evidence_ids", "sufficient"],
    }
    assert "description" not in json.dumps(list(told.values()))
    assert result.trajectory is not None
    said = [turn.observations[0].message for turn in result.trajectory.turns]
    assert said[2] == "Removed 1."
    assert "c99" in said[3]
    assert [turn.observations[0].outcome for turn in result.trajectory.turns] == [
        "ok",
        "ok",
        "ok",
        "rejected",
        "ok",
        "ok",
    ]


async def test_a_fold_that_is_demanded_is_told_of(harbour: Collection) -> None:
    policy = Seeing(use("finish", evidence_ids=[], sufficient=False))
    request = SearchRequest("Who?", strategy=Strategy.FOLD)
    await SearchEngine(harbour, lambda _: policy, profile=SMALL).search(request)
    assert [tool.name for tool in policy.views[0].tools] == ["search_corpus", "fold", "finish"]


async def test_the_builtin_policy_searches_in_it(harbour: Collection) -> None:
    engine = SearchEngine(harbour, BuiltinPolicy, profile=SMALL)
    question = "Who founded the works that made the engine of the ferry Alma?"
    result = await engine.search(SearchRequest(question, effort=Effort.HIGH))
    assert result.status == "completed"
    assert result.usage.peak_context_tokens <= SMALL.budget.total == 4_096
    assert "brask.md" in {item.document_id for item in result.results}
