"""More groups in place of those that teach nothing.

A group whose rollouts all earned the same has no advantage, and a step of many such groups has a gradient of few.
DAPO's dynamic sampling (Yu et al., 2025) samples on until a step is full of groups with spread. Here a step asks for
one further group in place of each constant one, and again for those that are constant among them, up to a stated
number.

DAPO throws constant groups away. Here none is: they are handed over beside the others, have no rows, as ever, and count
in the log, in its means and in the alarms. So a policy gains nothing by making its bad groups alike, and a log does not
look better than the rollouts were. A group with any spread is trained, whatever is in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from thresher.train.rollouts.rollout import Group


async def refilled(take: Callable[[int], Awaitable[list[Group]]], count: int, refill: float) -> list[Group]:
    """`count` groups, and further ones in place of the constant ones among them, in the order of being handed over.

    Args:
        take: hands over so many groups, fewer only where the tasks have ended (`Roller.groups`).
        refill: at most `refill` × `count` further groups, rounded down; 0 asks for none.

    Returns:
        No more than `count` groups with spread, and at most `count` × (1 + `refill`) in all.
    """
    groups = await take(count)
    left = int(refill * count + 1e-9)
    missing = _constant(groups)
    while left and missing:
        more = await take(min(left, missing))
        if not more:
            break
        groups = [*groups, *more]
        left -= len(more)
        missing = missing - len(more) + _constant(more)
    return groups


def _constant(groups: list[Group]) -> int:
    return sum(group.constant for group in groups)
