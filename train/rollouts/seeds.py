"""Seeds of rollouts: the same in every run with the same seed, different within a group."""

from __future__ import annotations

import hashlib

_BITS = 31
"""Samplers multiply seeds to keep turns apart; what comes out must fit the 64 bits of a server's own seed."""


def group_seeds(run: int, group: int, size: int) -> tuple[int, ...]:
    """One seed for each sample of a group, all different, in 1..2**31 − 1; 0 would be the policy as it is.

    The seeds of a group's first samples do not depend on its size.
    """
    seeds: dict[int, None] = {}
    for sample in range(size):
        draw = 0
        while (seed := _seed(run, group, sample, draw)) in seeds:
            draw += 1
        seeds[seed] = None
    return tuple(seeds)


def _seed(run: int, group: int, sample: int, draw: int) -> int:
    digest = hashlib.blake2b(f"{run}/{group}/{sample}/{draw}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % ((1 << _BITS) - 1) + 1
