"""Rows as tensors: cut in micro-batches by a budget of tokens, dealt to processes, padded on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

from thresher.train.trainer.rows import Row

Micro = tuple[int, ...]
"""A micro-batch: indices of rows. An empty one keeps a process in step with the others."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch. B rows, T the longest of them, N the sampled tokens of all rows, row by row.

    Attributes:
        ids: B × T, padded on the right; `mask`: B × T, 1 for tokens, 0 for padding. Position ids are left to the
            model: with padding on the right they are 0, 1, 2, … for each row.
        before: N, flat indices into B × T of the positions whose next token was sampled: they predict it.
        targets: N, the sampled tokens; `logprobs`: N, the sampler's own; `versions`: N.
        advantages, weights: N, float32. A padding micro-batch has weights 0.
        rollouts: N, the rollout's number within the step.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    before: torch.Tensor
    targets: torch.Tensor
    logprobs: torch.Tensor
    versions: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    rollouts: torch.Tensor
    padding: bool = False

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        names = (field.name for field in fields(self) if field.name != "padding")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def micro_batches(lengths: Sequence[int], max_tokens: int, processes: int = 1) -> list[list[Micro]]:
    """Deal rows to micro-batches and processes.

    Rows of like length go together, so that little is padding. Every process gets the same number of micro-batches,
    the last ones empty if need be; none is left idle while another has rows to share.

    Args:
        lengths: tokens of each row.
        max_tokens: of one micro-batch, padding included. A longer row goes alone.

    Returns:
        For each process its micro-batches, every row in exactly one of them.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    made: list[Micro] = []
    current: list[int] = []
    for index in order:
        if current and lengths[current[0]] * (len(current) + 1) > max_tokens:
            made.append(tuple(current))
            current = []
        current.append(index)
    if current:
        made.append(tuple(current))
    while len(made) % processes and any(len(micro) > 1 for micro in made):
        largest = max(made, key=lambda micro: (len(micro) > 1, sum(lengths[index] for index in micro)))
        at = made.index(largest)
        half = len(largest) // 2
        made[at : at + 1] = [largest[:half], largest[half:]]
    rounds = -(-len(made) // processes)
    dealt = [made[process::processes] for process in range(processes)]
    return [[*mine, *((),) * (rounds - len(mine))] for mine in dealt]


def collate(rows: Sequence[Row], *, pad: int = 0, padding: bool = False) -> Batch:
    """Rows as one micro-batch. `padding` sets all weights to 0, so that it costs a pass and trains nothing."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = torch.tensor(row.ids)
        mask[index, : len(row.ids)] = 1
    counts = torch.tensor([len(row.places) for row in rows])

    def each(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(counts)

    at = [index * longest + place - 1 for index, row in enumerate(rows) for place in row.places]
    return Batch(
        ids=ids,
        mask=mask,
        before=torch.tensor(at, dtype=torch.long),
        targets=torch.tensor([row.ids[place] for row in rows for place in row.places], dtype=torch.long),
        logprobs=torch.tensor([value for row in rows for value in row.logprobs], dtype=torch.float32),
        versions=torch.tensor([value for row in rows for value in row.versions], dtype=torch.long),
        advantages=each([row.advantage for row in rows]),
        weights=each([0.0 if padding else row.weight for row in rows]),
        rollouts=torch.tensor([row.rollout for row in rows], dtype=torch.long).repeat_interleave(counts),
        padding=padding,
    )
