"""Origins as a command is given them, made to mean the same in another process."""

from __future__ import annotations

from collections.abc import Sequence


def absolute_origins(origins: Sequence[str], *, advice: str = "") -> list[str]:
    """What `ingest` and `sync` are given, with absolute paths; checked before any collection is opened or made.

    Args:
        advice: what to do about one that does not exist.

    Raises:
        UsageError: a file or folder that does not exist, or an empty name.
        RootError: an origin that cannot be read.
    """
    from thresher.api.cli.common import absolute
    from thresher.api.errors import UsageError
    from thresher.corpus.ingestion.identity import LIST_PREFIX
    from thresher.corpus.ingestion.origins import parse_origin
    from thresher.corpus.ingestion.web.addresses import is_address

    places, missing = [], []
    for origin in origins:
        if not origin.strip():
            raise UsageError("the name of what to read is empty; `.` is the working directory")
        if is_address(origin.strip()):
            places.append(origin)
        elif origin.startswith(LIST_PREFIX):
            places.append(LIST_PREFIX + absolute(origin.removeprefix(LIST_PREFIX)))
        elif _is_missing(absolute(origin)):
            missing.append(origin)
        else:
            places.append(_absolute_pattern(origin))
    if missing:
        raise UsageError(f"no such file or folder: {', '.join(missing)}{advice}")
    for place in places:
        parse_origin(place)
    return places


def _is_missing(path: str) -> bool:
    import os

    from thresher.corpus.ingestion.patterns import is_pattern

    return not is_pattern(path) and not os.path.exists(path)


def _absolute_pattern(origin: str) -> str:
    """A path, or a pattern whose wildcards are its own and not those in the name of the working directory."""
    import os

    from thresher.api.cli.common import absolute
    from thresher.api.errors import UsageError
    from thresher.corpus.ingestion.patterns import is_pattern

    place = absolute(origin)
    if os.path.lexists(place) or os.path.isabs(os.path.expanduser(origin)) or not is_pattern(os.getcwd()):
        return place
    raise UsageError(
        f"{origin}: the name of the working directory holds wildcards itself ({os.getcwd()}): name a folder, or run "
        "the command from another directory"
    )
