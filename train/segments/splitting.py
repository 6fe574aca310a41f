"""Turns to segments: what extends the turn before is merged with it, an edit begins a new row.

A server's prefix cache makes the same cut: a segment is computed once in training as it was in serving. Training on one
row a turn instead computes every shared prefix again (see `thresher.train.segments.bounds`).
"""

from __future__ import annotations

from collections.abc import Iterable

from thresher.engine.policies.model.tokens.rendering import Ids
from thresher.engine.policies.model.tokens.styles import Style
from thresher.engine.trajectory import Trajectory
from thresher.train.segments.errors import MissingLogprobs
from thresher.train.segments.segment import Segment
from thresher.train.segments.turns import TurnTokens, replayed_turns


def segments_of(trajectory: Trajectory, style: Style, *, policy: str | None = None) -> list[Segment]:
    """The training rows of a search that a model sampled (the policies `tokens` and `hf`), with its logprobs.

    Arguments as for `replayed_turns`.

    Raises:
        ReplayMismatch: a prompt comes out different from what was served.
        MissingLogprobs: the sampler gave none for a turn, or not one for each token.
    """
    turns = replayed_turns(trajectory, style, policy=policy)
    for turn in turns:
        if turn.logprobs is None or len(turn.logprobs) != len(turn.output_ids):
            where = f"turn {turn.turn} of {trajectory.id}" + (f", agent {turn.agent}" if turn.agent else "")
            raise MissingLogprobs(
                f"{where} was sampled without a logprob for each token, so there is nothing to weigh it by: sample "
                "with a server that returns them (vLLM does for the `tokens` policy, the `hf` policy always does), or "
                "use this trajectory for supervised fine-tuning"
            )
    return merged(turns)


def merged(turns: Iterable[TurnTokens]) -> list[Segment]:
    """Maximal runs of turns of one agent in which each prompt begins with the prompt before and all that was sampled.

    Each sampled token is marked once, behind exactly the ids that it was sampled behind. A row has logprobs where all
    of its turns do.
    """
    segments: list[Segment] = []
    run: _Run | None = None
    for turn in turns:
        if run is None or not run.extended_by(turn):
            if run is not None:
                segments.append(run.segment())
            run = _Run(turn.agent)
        run.add(turn)
    if run is not None:
        segments.append(run.segment())
    return segments


class _Run:
    """A segment in the making."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._ids: Ids = ()
        self._sampled: list[bool] = []
        self._logprobs: list[float] | None = []
        self._turns: list[int] = []
        self._versions: list[str] = []

    def extended_by(self, turn: TurnTokens) -> bool:
        return turn.agent == self._agent and turn.prompt_ids[: len(self._ids)] == self._ids

    def add(self, turn: TurnTokens) -> None:
        new = len(turn.prompt_ids) - len(self._ids)
        self._ids = (*turn.prompt_ids, *turn.output_ids)
        self._sampled += [False] * new + [True] * len(turn.output_ids)
        if turn.logprobs is None:
            self._logprobs = None
        if self._logprobs is not None and turn.logprobs is not None:
            self._logprobs += [0.0] * new + list(turn.logprobs)
        self._turns.append(turn.turn)
        self._versions.append(turn.version)

    def segment(self) -> Segment:
        return Segment(
            ids=self._ids,
            sampled=tuple(self._sampled),
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            turns=tuple(self._turns),
            versions=tuple(self._versions),
            agent=self._agent,
        )
