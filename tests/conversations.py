"""What a strict chat template accepts, for the tests of everything that renders a context."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from thresher.context import Message
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.scripted import Step
from thresher.engine.policy import Decision, View


def fault_in(messages: Sequence[Message]) -> str | None:
    """Why these are no valid chat messages; None if they are.

    Valid is: a system and a user message; every call answered by one tool message, before anything else; no two
    assistant and no two user messages in a row.
    """
    roles = [message["role"] for message in messages]
    if roles[:2] != ["system", "user"]:
        return f"starts with {roles[:2]}"
    waiting: list[str] = []
    for before, message in pairwise(messages[1:]):
        role = message["role"]
        if role != "tool" and waiting:
            return f"{waiting} are not answered"
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                return f"{message['tool_call_id']} answers no call, or one that has its answer"
            waiting.remove(message["tool_call_id"])
        elif role == before["role"] or role not in ("assistant", "user"):
            return f"{role} after {before['role']}"
        elif role == "assistant":
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    return f"{waiting} are not answered" if waiting else None


class Watched(ScriptedPolicy):
    """Keeps the views of its turns, every one of them a valid conversation."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__(steps)
        self.views: list[View] = []

    async def decide(self, view: View) -> Decision:
        assert fault_in(view.prompt.messages) is None
        self.views.append(view)
        return await super().decide(view)
