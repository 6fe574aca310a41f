"""Who is dealt to an arm as one: a session, else a key, else a single search.

The records of searches tell the same units apart, by hashes (`thresher.train.loop.canary.unit_of`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.api.service.principal import NOBODYS

if TYPE_CHECKING:
    from thresher.api.service.principal import Principal


def unit_of(caller: Principal, session: str | None, search_id: str) -> str:
    """What stands for the user of a search. Sessions of different tenants are different ones."""
    if session:
        return unit_of_session(caller.tenant, session)
    if caller.key_id not in NOBODYS:  # one coin for all who share a key would compare nothing
        return f"key {caller.tenant} {caller.key_id}"
    return search_id


def unit_of_session(tenant: str, session: str | None) -> str:
    """What stands for a session; "" without one."""
    return f"session {tenant} {session}" if session else ""
