"""Which blocks stand and fall together, so that whatever an edit leaves is a valid conversation.

A message is the block that opens it and the blocks behind that, up to the next one that opens. A turn of the policy is
an assistant message (reasoning, then calls) with its answers: one tool message for each call, or, for a turn without
calls, the user message that replies to it. Four rules keep every context valid:

- a call goes with the message that answers it, and never without;
- reasoning that is pruned leaves the frame of its message as long as a call stands in it;
- when its last call goes, a turn goes whole, reasoning included;
- a turn without calls goes whole, with the message that replies to it.

A fifth holds where prompts are made of ids: calls that share one sampled message (harmony's wrapper for parallel calls)
go together, since no part of it is a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from thresher.context.blocks import RESTORABLE, Block, BlockKind, Role


@dataclass(slots=True)
class MessageBlocks:
    """The blocks of one message by seq, the opening one first.

    `calls` are those among them that are calls, `answers` the messages that answer these, by call id; `reply` is the
    message that replies to a turn without calls.
    """

    role: Role
    blocks: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    answers: dict[str, MessageBlocks] = field(default_factory=dict)
    reply: MessageBlocks | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """What an edit takes out.

    Attributes:
        asked: the blocks that were named and go, or lose their words.
        gone: every block that goes, in order; `blank`: reasoning that loses its words and keeps its frame.
        unknown, unchanged, protected: handles about which nothing is done, and why.
        blockers: handles of chunks, notes and calls that must go as well for the protected calls to go.
    """

    asked: tuple[Block, ...] = ()
    gone: tuple[Block, ...] = ()
    blank: tuple[Block, ...] = ()
    unknown: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()

    @property
    def handles(self) -> tuple[str, ...]:
        """Handles of all that leaves the context: those asked for, then those that go with them."""
        asked = {block.handle: None for block in self.asked if block.handle}
        also = {block.handle: None for block in self.gone if block.handle and not block.draft.wordless}
        return tuple(asked | also)


class Structure:
    """An index over the blocks of one ledger. Each step takes a time that does not depend on the context's length."""

    def __init__(self) -> None:
        self._message_of: dict[int, MessageBlocks] = {}
        self._asking: dict[str, MessageBlocks] = {}
        self._joined: dict[int, list[int]] = {}

    def add(self, block: Block, last: Block | None, *, joined: bool = False) -> None:
        """Take up a block that was put behind `last`, the end of the live context.

        `joined`: it is a call that shares its sampled message with the call before it.
        """
        draft = block.draft
        before = None if last is None else self._message_of[last.seq]
        message = before
        if message is None or draft.opens is not None:
            message = MessageBlocks(draft.opens or Role.SYSTEM)
            if draft.call is not None and draft.call.id in self._asking:
                self._asking[draft.call.id].answers[draft.call.id] = message
            elif draft.opens is Role.USER and before is not None and before.role is Role.ASSISTANT:
                before.reply = message
        message.blocks.append(block.seq)
        self._message_of[block.seq] = message
        if draft.kind is BlockKind.CALL and draft.call is not None:
            if joined and message.calls:
                together = self._joined.setdefault(message.calls[-1], [message.calls[-1]])
                together.append(block.seq)
                self._joined[block.seq] = together
            message.calls.append(block.seq)
            self._asking[draft.call.id] = message

    def written_by_policy(self, block: Block) -> bool:
        """Whether a block stands in a message of the policy's own, where words of the engine have no place."""
        return self._message_of[block.seq].role is Role.ASSISTANT

    def removal(self, named: Sequence[Block], live: Mapping[int, Block], *, fold: bool) -> Removal:
        """What goes when these live blocks of prunable kinds are taken out.

        A prune spares a call while chunks or notes that were not named stand in its answer; a fold takes them along.
        """
        gone = {block.seq for block in named if block.kind in RESTORABLE}
        spared: dict[int, Block] = {}
        blockers: dict[str, None] = {}

        def take(answers: Sequence[MessageBlocks | None], blocks: Sequence[Block]) -> bool:
            """Take out answers, unless one is not there yet or holds what was not named; then spare the blocks."""
            readable = [h for answer in answers if answer is not None for h in self._readable(answer, live, gone)]
            if None in answers or (readable and not fold):
                spared.update((block.seq, block) for block in blocks)
                blockers.update((handle, None) for handle in readable)
                return False
            gone.update(seq for answer in answers if answer is not None for seq in answer.blocks)
            return True

        named_seqs = {block.seq for block in named}
        turns: dict[int, MessageBlocks] = {}
        for block in named:
            if block.kind in RESTORABLE or block.seq in gone or block.seq in spared:
                continue
            message = self._message_of[block.seq]
            if block.kind is BlockKind.CALL:
                together = [live[seq] for seq in self._joined.get(block.seq, [block.seq]) if seq in live]
                others = [other for other in together if other.seq not in named_seqs]
                if others and not fold:
                    spared.update((own.seq, own) for own in together if own.seq in named_seqs)
                    blockers.update((other.handle or "", None) for other in others)
                    continue
                calls = [call.draft.call for call in together if call.draft.call is not None]
                if not take([message.answers.get(call.id) for call in calls], together):
                    continue
                gone.update(call.seq for call in together)
            turns[message.blocks[0]] = message
        thoughts = {block.seq: block for block in named if block.kind is BlockKind.REASONING}
        blank: list[Block] = []
        unchanged: list[str] = []
        for opener, message in turns.items():
            thought = thoughts.get(opener)
            if any(seq in live and seq not in gone for seq in message.calls):
                if thought is not None and thought.draft.wordless:
                    spared[opener] = thought
                    unchanged.append(thought.handle or "")
                elif thought is not None:
                    blank.append(thought)
            elif message.calls or (thought is not None and take([message.reply], [thought])):
                gone.update(message.blocks)
        return Removal(
            asked=tuple(block for block in named if block.seq not in spared),
            gone=tuple(live[seq] for seq in sorted(gone) if seq in live),
            blank=tuple(blank),
            unchanged=tuple(unchanged),
            protected=tuple(b.handle or "" for b in spared.values() if b.handle not in unchanged),
            blockers=tuple(blockers),
        )

    def _readable(self, message: MessageBlocks, live: Mapping[int, Block], gone: set[int]) -> list[str]:
        """Handles of chunks and notes that stand in a message and stay."""
        blocks = (live[seq] for seq in message.blocks if seq in live and seq not in gone)
        return [block.handle or "" for block in blocks if block.kind in RESTORABLE]
