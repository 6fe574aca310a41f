"""Searches through a real model server: how to ask, what the policy was shown and said, and what must hold."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from vllm_support import Cache, ModelServer

from thresher.corpus.collection import Collection
from thresher.engine.policies import ModelSettings, make_policy
from thresher.engine.policy import Decision, Policy, Sampled, View
from thresher.engine.requests import SearchResult, StopReason
from thresher.engine.search import SearchEngine

QUESTION = "Who founded the works that made the engine of the Alma?"
REPLY_TOKENS = 160
"""Enough for the calls that the tests' grammars allow; a model that rambles is cut short."""
HONEST = frozenset(StopReason) - {StopReason.ERROR}


@dataclass(frozen=True)
class Said:
    """One turn: what the policy saw, what it decided, and the server's cache counters when it was asked."""

    view: View
    decision: Decision
    cache: Cache | None = None

    @property
    def sampled(self) -> Sampled:
        """The tokens, in and out."""
        assert self.decision.sampled is not None
        return self.decision.sampled


class Recorder:
    """Makes the policies of another factory, and keeps what they saw and said, search by search.

    With `server`, it reads the cache counters around each turn; the server must have nothing else to do.
    """

    def __init__(self, make: Any, server: ModelServer | None = None) -> None:
        self.searches: list[list[Said]] = []
        self._make = make
        self._server = server

    def __call__(self, collection: Collection) -> Policy:
        self.searches.append([])
        recorded: Policy = _Recorded(self._make(collection), self.searches[-1], self._server)
        return recorded

    @property
    def turns(self) -> list[Said]:
        """Those of the only search so far."""
        (turns,) = self.searches
        return turns

    async def aclose(self) -> None:
        await self._make.aclose()


class _Recorded:
    def __init__(self, policy: Any, turns: list[Said], server: ModelServer | None) -> None:
        self._policy = policy
        self._turns = turns
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    async def decide(self, view: View) -> Decision:
        before = self._server.cache if self._server else None
        decision: Decision = await self._policy.decide(view)
        if self._server is not None and before is not None:
            self._server.until_idle()
            before = self._server.cache.since(before)
        self._turns.append(Said(view, decision, before))
        return decision


@dataclass(frozen=True)
class Asking:
    """How a search asks: the kind of policy, the model (a folder, under which the server knows it too), settings."""

    kind: str
    model: Path
    url: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    server: ModelServer | None = None

    @asynccontextmanager
    async def engine(self, collection: Collection) -> AsyncIterator[tuple[SearchEngine, Recorder]]:
        """An engine and what its policies say; connections are closed at the end.

        `chat-text` is the chat policy as it goes about with servers that do not parse calls.
        """
        values: dict[str, Any] = {"temperature": 0.0, "max_reply_tokens": REPLY_TOKENS, **self.settings}
        kind, _, tools = self.kind.partition("-")
        if tools:
            values["tools"] = tools
        spec = f"{kind}:{self.model}@{self.url}" if self.url else f"{kind}:{self.model}"
        recorder = Recorder(make_policy(spec, ModelSettings(**values)), self.server)
        try:
            yield SearchEngine(collection, recorder), recorder
        finally:
            await recorder.aclose()


def check_search(result: SearchResult, turns: Sequence[Said]) -> None:
    """What must hold of a search that did not fail, whatever the model wrote."""
    trajectory = result.trajectory
    assert trajectory is not None
    assert result.stop_reason in HONEST
    assert result.status == (
        "completed" if result.stop_reason in (StopReason.FINISHED, StopReason.NO_NEW_EVIDENCE) else "partial"
    )
    assert trajectory.error is None
    rejected = 0
    for said, turn in zip(turns, trajectory.turns, strict=True):
        schemas = {tool.name: Draft202012Validator(dict(tool.parameters)) for tool in said.view.tools}
        assert [observation.call_id for observation in turn.observations] == [call.id for call in turn.calls]
        for call, observation in zip(turn.calls, turn.observations, strict=True):
            if observation.outcome != "rejected":
                schemas[call.name].validate(json.loads(call.arguments))
            else:
                rejected += 1
        assert turn.faults == said.decision.faults
    assert result.usage.recoveries == rejected + sum(len(turn.faults) for turn in trajectory.turns)
    shown = {evidence.id: evidence for evidence in trajectory.evidence}
    assert [shown[found.id].text for found in result.results] == [found.text for found in result.results]
    assert result.usage.turns == len(turns)


def outcomes(result: SearchResult) -> list[tuple[str, str]]:
    """Each call's tool and how it ended, in order."""
    assert result.trajectory is not None
    return [(seen.tool, seen.outcome) for turn in result.trajectory.turns for seen in turn.observations]
