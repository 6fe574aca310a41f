"""A real model behind vLLM as judge, and as one who makes questions. It is too small to be good at either: what counts
is that whatever it says is read or counted, and that nothing of it passes unchecked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from generation_support import TEXTS
from serve_support import QUESTION
from support import make_collection
from vllm_support import CONTEXT, ModelServer, model_server

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest
from thresher.engine.policies import ModelSettings
from thresher.engine.policies.model.factory import served_model
from thresher.engine.search import SearchEngine
from thresher.train.generation.asking import Asker, chat_of
from thresher.train.generation.errors import GenerationError
from thresher.train.generation.generate import Options, generate
from thresher.train.generation.journal import JOURNAL
from thresher.train.generation.verifying import REASONS
from thresher.train.judges.choice import JudgeChoice
from thresher.train.judges.making import make_judge
from thresher.train.judges.material import material_of
from thresher.train.tasks.task import QUERIES

pytestmark = pytest.mark.serve
VOTES = 3


@pytest.fixture(scope="module")
def whole(model: Path) -> Iterator[ModelServer]:
    """A server that prefills in one piece: vLLM 0.32 on a CPU dies of a request with a seed that it cuts in two."""
    with model_server(model, "--no-enable-chunked-prefill", "--max-num-batched-tokens", str(CONTEXT)) as running:
        yield running


@pytest.mark.parametrize("kind", ["rubric", "pairwise"])
def test_a_judge_that_is_served_is_asked_and_counted(
    whole: ModelServer, model: Path, collection: Collection, kind: str
) -> None:
    choice = JudgeChoice.model_validate(
        {
            "model": str(model),
            "url": whole.url,
            "kind": kind,
            "rubrics": ("evidence",),
            "votes": VOTES,
            "max_reply_tokens": 48,
        }
    )

    async def judged() -> None:
        engine = SearchEngine(collection, "builtin:rules")
        found = [
            await engine.search(SearchRequest(asked, max_results=2)) for asked in (QUESTION, "Who kept the tides?")
        ]
        judge = make_judge(choice)
        try:
            await judge.check()
            judgements = await judge.judge([material_of(result) for result in found])
        finally:
            await judge.aclose()
        stats = judge.stats
        assert len(judgements) == len(found)
        assert all(each.score is None or 0 <= each.score <= 1 for each in judgements)
        assert stats.votes >= VOTES
        assert stats.replies >= stats.votes
        assert stats.unparsable <= stats.replies
        assert stats.judged + stats.unscored == len(found)
        assert stats.prompt_tokens > stats.completion_tokens > 0
        assert stats.decisions > 0
        assert (stats.comparisons == 1) is (kind == "pairwise")

    asyncio.run(judged())


def test_what_a_served_model_asks_is_checked(whole: ModelServer, model: Path, tmp_path: Path) -> None:
    settings = served_model(f"chat:{model}", ModelSettings(url=whole.url, extra={"max_tokens": 96}))
    options = Options(count=2, hops=(2,), unanswerable=0, model=str(model))
    made = tmp_path / "set"
    with (
        make_collection(tmp_path / "lake", TEXTS) as lake,
        pytest.raises(GenerationError, match=r"none of \d+ questions passed"),
    ):
        generate(lake, made, options, asker=Asker(chat_of(settings)))
    lines = [json.loads(line) for line in (made / JOURNAL).read_text(encoding="utf-8").splitlines()]
    reasons = [line["rejected"]["reason"] for line in lines[1:]]
    assert reasons
    assert set(reasons) <= set(REASONS)
    assert not (made / QUERIES).exists()
