"""What a model sampled in a recorded search, turn by turn, with the very prompts it sampled behind.

The prompts are not recorded: they come out of the ledger's own events through the renderer that served, and each is
checked against the digest that was. What a model sampled is trained as it was sampled, whatever became of it: a reply
that was cut short, repaired, or did not fit and never entered the context counts like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from thresher.context import Prompt
from thresher.engine.best_of import ROLLOUT
from thresher.engine.policies.model.tokens.rendering import Ids, TokenRenderer
from thresher.engine.policies.model.tokens.styles import Style
from thresher.engine.trajectory import Trajectory, TurnRecord, replay


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """One model call, token by token.

    Attributes:
        turn: its number within the search of its agent, from 1.
        prompt_ids: what the model was sent, the opening of its own turn included.
        output_ids: what it sampled, never empty.
        logprobs: the sampler's own, one for each of `output_ids`; None where it gave none.
        version: of the weights that sampled it, "" if they have none.
        agent: "" for the search itself, else the way to the sub-agent (`alpha`, `alpha#2` for its second task,
            `alpha/beta`), the rollout of a best-of-n (`rollout-2`), or both (`rollout-2/alpha`).
    """

    turn: int
    prompt_ids: Ids
    output_ids: Ids
    logprobs: tuple[float, ...] | None = None
    version: str = ""
    agent: str = ""


def replayed_turns(trajectory: Trajectory, style: Style, *, policy: str | None = None) -> list[TurnTokens]:
    """Every turn that a model sampled, in order; each agent's turns stand together, the search's own first.

    Turns that nobody sampled are left out: those of the engine (prunes for a server whose context was full), of a
    policy without tokens, and those in which the model was stopped before it answered.

    Args:
        style: that of the policy that was recorded.
        policy: take only agents whose policy has this name (`Trajectory.policy`); None takes all. For swarms whose
            sub-agents are another model, which is not trained.

    Raises:
        ReplayMismatch: a prompt comes out different from what was served. No turn of it can be trained then.
    """
    return [
        turn
        for agent, part in agents_of(trajectory)
        if policy is None or part.policy == policy
        for turn in own_turns(part, style, agent)
    ]


def agents_of(trajectory: Trajectory, path: str = "") -> Iterator[tuple[str, Trajectory]]:
    """A search and all that are nested in it, with the way to each; `path` is the way to `trajectory` itself."""
    yield path, trajectory
    for part in trajectory.subagents:
        name = part.id.removeprefix(f"{trajectory.id}/")
        if not trajectory.opening and name.isdecimal():  # several searches as one: it has no context of its own
            name = f"{ROLLOUT}{name}"
        yield from agents_of(part, f"{path}/{name}" if path else name)


def own_turns(trajectory: Trajectory, style: Style, agent: str = "") -> list[TurnTokens]:
    """The same for one agent, without what is nested in its search; `agent` is the way to it."""
    if not any(turn.sampled is not None and turn.sampled.output_ids for turn in trajectory.turns):
        return []  # a policy without tokens: it may have been recorded with any renderer
    renderer = TokenRenderer(style.format, style.frame)
    turns: list[TurnTokens] = []

    def keep(turn: TurnRecord, prompt: Prompt) -> None:
        sampled = turn.sampled
        if sampled is not None and sampled.output_ids:
            turns.append(
                TurnTokens(
                    turn=turn.index,
                    prompt_ids=renderer.generation_ids(prompt),
                    output_ids=sampled.output_ids,
                    logprobs=sampled.logprobs,
                    version=sampled.weights,
                    agent=agent,
                )
            )

    replay(trajectory, renderer.counter, renderer, on_prompt=keep)
    return turns
