"""Gradients of a head by hand, and Adam (Kingma and Ba, 2015): the heads have a few hundred numbers each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from thresher.engine.policies.builtin.choosing import Choice, answer_logprob, order_logprob
from thresher.engine.policies.builtin.weights import FEATURES, Floats, Head, Kind

Gradient = Mapping[str, Floats]
"""By the name of the head's field."""


def with_hidden_units(head: Head, units: int, generator: np.random.Generator, *, spread: float = 0.3) -> Head:
    """The same scores from a head with `units` more hidden units, which begin with no say in them."""
    count = len(head.linear)
    return replace(
        head,
        hidden=np.concatenate([head.hidden, generator.normal(size=(units, count)) * spread / np.sqrt(count)]),
        bias=np.concatenate([head.bias, np.zeros(units)]),
        out=np.concatenate([head.out, np.zeros(units)]),
    )


def standardised(head: Head, kind: Kind, tables: Floats) -> Head:
    """A head without hidden units on features of mean 0 and deviation 1 over `tables`; its scores stay as they were.

    Features that never vary keep their scale. Shape of `tables`: (options, features).
    """
    if len(head.out):
        raise ValueError(f"the head {kind} has hidden units, which stand on its old scale")
    mean, scale = tables.mean(axis=0), tables.std(axis=0)
    scale = np.where(scale > 1e-6, scale, 1.0)
    raw = head.linear / head.scale
    offset = head.offset - float(raw @ head.mean) + float(raw @ mean)
    assert raw.shape == (len(FEATURES[kind]),)
    return replace(head, mean=mean, scale=scale, linear=raw * scale, offset=offset)


def backward(head: Head, table: Floats, by_scores: Floats) -> dict[str, Floats]:
    """Gradient by the head's numbers, given that by its scores, shape (options,)."""
    normal = head.normal(table)
    gradient = {"linear": normal.T @ by_scores, "offset": np.array([by_scores.sum()])}
    if len(head.out):
        active = np.tanh(normal @ head.hidden.T + head.bias)
        inner = (by_scores[:, None] * head.out) * (1 - active**2)
        gradient |= {"out": active.T @ by_scores, "bias": inner.sum(axis=0), "hidden": inner.T @ normal}
    return gradient


def choice_gradient(head: Head, choice: Choice) -> tuple[float, dict[str, Floats]]:
    """Log-probability of a choice under `head`, and its gradient by the head's numbers."""
    scores = head.scores(choice.table) / choice.temperature
    if choice.kind in (Kind.GO_ON, Kind.SUFFICIENT):
        logprob, slope = answer_logprob(float(scores[0]), bool(choice.picked[0]))
        by_scores = np.array([slope])
    else:
        logprob, by_scores = order_logprob(scores, choice.picked, choice.groups, choice.per_group)
    return logprob, backward(head, choice.table, by_scores / choice.temperature)


@dataclass
class Adam:
    """Climbs one head along gradients. `decay` pulls back to where it began, in units of the learning rate."""

    start: Head
    rate: float
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)

    def __post_init__(self) -> None:
        self.head = self.start
        self._steps = 0
        self._first: dict[str, Floats] = {}
        self._second: dict[str, Floats] = {}

    def climb(self, gradient: Gradient, *, rate: float | None = None) -> Head:
        """One step up the gradient; the head after it."""
        self._steps += 1
        rate = self.rate if rate is None else rate
        changed: dict[str, Floats] = {}
        for name, given in gradient.items():
            now = np.array([self.head.offset]) if name == "offset" else getattr(self.head, name)
            began = np.array([self.start.offset]) if name == "offset" else getattr(self.start, name)
            first = self._first[name] = self.betas[0] * self._first.get(name, 0.0) + (1 - self.betas[0]) * given
            second = self._second[name] = self.betas[1] * self._second.get(name, 0.0) + (1 - self.betas[1]) * given**2
            unbiased = first / (1 - self.betas[0] ** self._steps)
            size = np.sqrt(second / (1 - self.betas[1] ** self._steps)) + 1e-8
            changed[name] = np.asarray(now + rate * (unbiased / size - self.decay * (now - began)))
        offset = float(changed.pop("offset")[0]) if "offset" in changed else self.head.offset
        self.head = replace(self.head, offset=offset, **changed)
        return self.head


def added(total: dict[str, Floats], gradient: Gradient, weight: float) -> None:
    """Add a weighted gradient to `total`."""
    for name, values in gradient.items():
        total[name] = total[name] + weight * values if name in total else weight * values


def norm(gradients: Mapping[Kind, Gradient]) -> float:
    """Euclidean norm of the gradients of all heads together."""
    return float(np.sqrt(sum(float((values**2).sum()) for own in gradients.values() for values in own.values())))
