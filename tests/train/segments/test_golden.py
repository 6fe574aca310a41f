"""The prompt that training sees is the one that serving sent, byte by byte; and logprobs agree in one forward pass.

The sampler is the real one, over a llama with random weights in SmolLM2's vocabulary. Random weights call no tools, so
in some turns a reply is put into the model's mouth: sampled token by token all the same, with the model's own logprobs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from segment_support import Ids, Step, saved, searched, style_named, written

from thresher.corpus.collection import Collection
from thresher.engine.policies.model.tokens.hf import HfSampler
from thresher.engine.policies.model.tokens.sampling import Sample
from thresher.engine.policies.model.tokens.styles import Style
from thresher.engine.requests import Edits, SearchRequest, Strategy
from thresher.train.segments.splitting import segments_of
from thresher.train.segments.turns import replayed_turns

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

QUESTION = "Who founded the works that made the engine of the ferry Alma?"
SEARCH = Step((("search_corpus", {"query": "ferry Alma"}), ("search_corpus", {"query": "Brask founder"})), "Look.")
PRUNE = Step((("prune_chunks", {"ids": ["c1", "c3"]}),), "These are no use.")
RESTORE = Step((("restore_chunks", {"ids": ["c3"]}),))
FOLD = Step((("fold", {"note": "Edda Brask founded the works (c2)."}),))
FINISH = Step((("finish", {"evidence_ids": ["c2"], "sufficient": True}),))


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16_384,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config).eval()


class Listening:
    """Passes requests on to the real sampler and keeps what it was sent. `None` in the script: the model speaks."""

    def __init__(self, inner: HfSampler, model: Any, style: Style, script: list[Step | None]) -> None:
        self.sent: list[tuple[bytes, Ids]] = []
        self._inner = inner
        self._model = model
        self._style = style
        self._script = script

    async def sample(self, prompt: Ids, *, limit: int, stops: Ids, variation: int = 0) -> Sample:
        step = self._script.pop(0)
        if step is None:
            sample = await self._inner.sample(prompt, limit=limit, stops=stops, variation=variation)
        else:
            ids = written(self._style, step)
            places = list(range(len(prompt), len(prompt) + len(ids)))
            sample = Sample(ids, logprobs(self._model, (*prompt, *ids), places), False, "put into its mouth")
        self.sent.append((array("I", prompt).tobytes(), sample.ids))
        return sample


def logprobs(model: Any, ids: Ids, places: list[int]) -> tuple[float, ...]:
    """Those of the tokens at these places, in one forward pass."""
    with torch.no_grad():
        hidden = model.model(torch.tensor([ids])).last_hidden_state[0, [place - 1 for place in places]]
        found = torch.log_softmax(model.lm_head(hidden).float(), dim=-1)
    return tuple(found[range(len(places)), [ids[place] for place in places]].tolist())


@pytest.fixture
def sampler(model: Any) -> Iterator[HfSampler]:
    sampler = HfSampler(lambda: model, "tiny", seed=3, weights="w0")
    yield sampler
    sampler.close()


@pytest.mark.parametrize(
    ("asked", "script", "cut"),
    [
        ({}, [SEARCH, None, PRUNE, None, RESTORE, None, FOLD, None, FINISH], [(1, 2, 3), (4, 5, 6, 7), (8, 9)]),
        ({"edits": Edits.BATCHED}, [SEARCH, None, PRUNE, None, FINISH], None),
        ({"strategy": Strategy.NONE}, [SEARCH, None, None, SEARCH, FINISH], [(1, 2, 3, 4, 5)]),
    ],
)
def test_training_sees_the_prompts_that_serving_sent(
    quay: Collection, model: Any, sampler: HfSampler, asked: dict[str, Any], script: list[Step | None], cut: Any
) -> None:
    style = style_named("chatml")
    listening = Listening(sampler, model, style, list(script))
    request = SearchRequest(QUESTION, max_turns=9, **asked)
    result = searched(quay, style, listening, request, max_reply_tokens=24)
    trajectory = saved(result)
    turns = replayed_turns(trajectory, style)
    assert [(array("I", turn.prompt_ids).tobytes(), turn.output_ids) for turn in turns] == listening.sent
    assert len(turns) == len(script)
    assert {turn.version for turn in turns} == {"w0", ""}
    segments = segments_of(trajectory, style)
    if cut is not None:
        assert [segment.turns for segment in segments] == cut
    for segment in segments:
        assert segment.logprobs is not None
        places = [place for place, marked in enumerate(segment.sampled) if marked]
        computed = logprobs(model, segment.ids, places)
        told = [segment.logprobs[place] for place in places]
        apart = max(abs(one - other) for one, other in zip(computed, told, strict=True))
        assert apart < 1e-4, "in one pass over a segment each token has the context in which it was sampled"
