"""Whether a search is collected, and by whose consent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thresher.api.values import Collect
    from thresher.train.production.records import Consent


def consent_of(collect: Collect, *, asked: bool | None, by_key: bool) -> Consent | None:
    """Where the consent of one search comes from; None if it is not collected.

    `collect` is the setting. `off`: nothing. `consented`: searches whose request or key says so. `all`: all but those
    whose request says no, where the operator has their users' consent by other means.
    `asked` is what the request says: a no goes before all else. `by_key`: its key consents to each of its searches.
    """
    if collect == "off" or asked is False:
        return None
    if asked:
        return "request"
    if by_key:
        return "key"
    return "setting" if collect == "all" else None
