"""Which policy serves, and every decision that made it so.

A folder (`THRESHER_HOME/releases`) holds `releases.jsonl`, the decisions in order, and `current.json`, what serves now.
A decision is on the disk, with the state that follows from it, before `current.json` is replaced by that state. So a
kill at any moment leaves both files whole; at worst `current.json` is one decision behind, and whoever opens the log
next to write brings it up to date.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from thresher.corpus.paths import replace_file
from thresher.train.lines import LineFile
from thresher.train.loop.errors import LoopError, ReleasesError, StaleDecision

LOG, CURRENT, LOCK, ARTEFACTS = "releases.jsonl", "current.json", ".loop.lock", "artefacts"
CONFIGURED = "configured"
"""Id of the release that is whatever policy the server's settings name."""
PATIENCE_S = 10.0
"""How long to wait for another process that writes a decision, which takes milliseconds."""

Arm = Literal["live", "canary"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Release(_Model):
    """A policy that serves, or may.

    Attributes:
        policy: its spec, as `policy` in `config.toml` has it. For the release `configured` it is what the settings
            named when the loop began; a server takes what they name now.
        profile, url: None takes those of the settings.
        created: seconds since 1970; `parent`: the release that was live when it was made.
        about: how it was made, in plain values.
    """

    id: Annotated[str, Field(min_length=1)]
    policy: Annotated[str, Field(min_length=1)]
    profile: str | None = None
    url: str | None = None
    created: float = 0.0
    parent: str = ""
    about: dict[str, Any] = {}


class Canary(Release):
    """A release that serves a share of the requests.

    Attributes:
        share: chance of a unit to be served by it, in (0, 1).
        salt: what units are hashed with, another one for each canary, so that no user is always the one who tries.
        started: seconds since 1970.
    """

    share: Annotated[float, Field(gt=0, lt=1)]
    salt: str
    started: float


class Current(_Model):
    """What serves. `decision`: number of the decision that made it so."""

    version: Literal[1] = 1
    decision: int
    live: Release
    canary: Canary | None = None


class Kind(StrEnum):
    """What was decided. Only those marked * change what serves."""

    ADOPTED = "adopted"
    """* The first live release: the configured policy."""
    ROUND = "round"
    """A round of training came to nothing; the figures say up to when records were read."""
    PROPOSED = "proposed"
    """A round of training has made a release; figures as those of a round."""
    GATED = "gated"
    """The gate has judged a release."""
    CANARY_STARTED = "canary_started"
    """* A release serves a share of the requests."""
    PROMOTED = "promoted"
    """* A release is live."""
    ROLLED_BACK = "rolled_back"
    """* A canary was taken back since it is worse, or an earlier release is live again."""
    WITHDRAWN = "withdrawn"
    """* A canary was taken back since it was not shown to be better."""


class Decision(_Model):
    """One line of the log.

    Attributes:
        number: from 1, without gaps.
        at: seconds since 1970.
        release: the id that it is about, "" for none.
        made: the release itself, where the decision brings it in.
        who: `loop`, or the person.
        state: what serves after it; None before anything was adopted.
    """

    version: Literal[1] = 1
    number: int
    at: float
    kind: Kind
    release: str = ""
    made: Release | None = None
    who: str
    reasons: tuple[str, ...] = ()
    figures: dict[str, Any] = {}
    state: Current | None = None


def arm_of(unit: str, salt: str, share: float) -> Arm:
    """Which arm serves a unit (a session, a key, or one search): always the same, the canary with chance `share`.

    The first 53 bits of SHA-256 over salt and unit, as a number in [0, 1), are held against the share.
    """
    digest = hashlib.sha256(f"{salt}\0{unit}".encode("utf-8", "surrogatepass")).digest()
    return "canary" if (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53) < share else "live"


def read_current(folder: Path) -> Current | None:
    """What serves; None where nothing was decided yet, and the configured policy serves.

    Raises:
        ReleasesError: the file cannot be read, or is none of ours.
    """
    path = folder / CURRENT
    try:
        return Current.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ReleasesError(
            f"{path} does not say what serves ({_first_line(error)}): `thresher train loop status` makes it anew "
            f"from {LOG}"
        ) from error


def history(folder: Path) -> list[Decision]:
    """All decisions, oldest first; half a line at the end, of a process that was killed, is not one.

    Raises:
        ReleasesError: a line is no decision.
    """
    path = folder / LOG
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ReleasesError(f"cannot read {path}: {error.strerror or error}") from error
    found = []
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(Decision.model_validate_json(line))
        except ValidationError as error:
            raise ReleasesError(f"{path}:{number} is no decision: {_first_line(error)}") from error
    return found


def release_of(decisions: Sequence[Decision], release_id: str) -> Release:
    """A release by its id.

    Raises:
        LoopError: no decision has brought it in.
    """
    known = {decision.made.id: decision.made for decision in decisions if decision.made is not None}
    if release_id not in known:
        raise LoopError(f"there is no release {release_id!r}; the known ones are {', '.join(known) or 'none'}")
    return known[release_id]


def former_live(decisions: Sequence[Decision]) -> list[str]:
    """Ids of the releases that have been live, in the order of their last time, the one that is live now last."""
    lives: dict[str, None] = {}
    for decision in decisions:
        if decision.state is not None:
            lives.pop(decision.state.live.id, None)
            lives[decision.state.live.id] = None
    return list(lives)


def decide(
    folder: Path,
    kind: Kind,
    *,
    who: str,
    release: Release | None = None,
    release_id: str = "",
    reasons: Sequence[str] = (),
    figures: Mapping[str, Any] | None = None,
    share: float | None = None,
    expected: int | None = None,
) -> Decision:
    """Log a decision, and let it take effect.

    Args:
        release: the release itself, where the decision brings it in; else `release_id` names it.
        share: of a canary that is started.
        expected: number of the decision that made what serves now, as whoever decides has seen it; None does not
            look at that.

    Raises:
        LoopError: it cannot be decided as things stand: an unknown release, a canary beside another one.
        StaleDecision: what serves is not as expected.
        ReleasesError: the files cannot be read.
    """
    with _writing(folder) as (log, decisions):
        before = decisions[-1].state if decisions else None
        if expected is not None and (before.decision if before else 0) != expected:
            raise StaleDecision(
                f"somebody has decided otherwise meanwhile (decision {before.decision if before else 0}): see "
                "`thresher train loop history`"
            )
        number, now = len(decisions) + 1, time.time()
        named = release.id if release is not None else release_id
        if release is not None and any(d.made is not None and d.made.id == release.id for d in decisions):
            raise LoopError(f"there is a release {release.id} already: give the new one another id")
        state = before
        if kind is Kind.ADOPTED:
            if before is not None:
                raise LoopError(f"{before.live.id} is live already: promote another release in its place")
            if release is None:
                raise LoopError("a release is adopted as a whole: give it, not its id")
            state = Current(decision=number, live=release)
        elif kind in (Kind.CANARY_STARTED, Kind.PROMOTED, Kind.ROLLED_BACK, Kind.WITHDRAWN):
            if before is None:
                raise LoopError("nothing is live yet: the first `thresher train loop CONFIG` adopts what is configured")
            state = _after(before, kind, decisions, named, share, number, now)
        made = Decision(
            number=number,
            at=now,
            kind=kind,
            release=named,
            made=release,
            who=who,
            reasons=tuple(reasons),
            figures=dict(figures or {}),
            state=state,
        )
        log.append(made.model_dump_json().encode() + b"\n", sync=True)
        if state is not None and state != before:
            replace_file(folder / CURRENT, state.model_dump_json(indent=2) + "\n")
        return made


def rollback(folder: Path, to: str | None = None, *, who: str, reasons: Sequence[str] = ()) -> Decision:
    """Take the canary back; or, without one or with `to`, make a former live release live again.

    Without `to` that is the one that was live before: rolled back once more, it goes back to what it came from, as an
    undo of the undo. To go further back, name the release.

    Raises:
        LoopError: there is nothing to go back to, or `to` was never live.
    """
    current = read_current(repaired(folder))
    if current is None:
        raise LoopError("nothing was decided yet, so there is nothing to roll back")
    if to is None and current.canary is not None:
        to = current.canary.id
    if to is None:
        former = former_live(history(folder))[:-1]
        if not former:
            raise LoopError(f"{current.live.id} is the only release that was ever live")
        to = former[-1]
    return decide(folder, Kind.ROLLED_BACK, who=who, release_id=to, reasons=reasons, expected=current.decision)


def repaired(folder: Path) -> Path:
    """The folder, with `current.json` as the log's last decision has it.

    Raises:
        ReleasesError: the log cannot be read.
    """
    with _writing(folder):
        return folder


@contextmanager
def the_loop(folder: Path) -> Iterator[None]:
    """The right to be the loop: one process at a time. People may decide meanwhile.

    Raises:
        LoopError: another process is it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            said = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise LoopError(f"another loop runs here (process {said}): wait for it, or end it") from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def _after(
    before: Current,
    kind: Kind,
    decisions: Sequence[Decision],
    named: str,
    share: float | None,
    number: int,
    now: float,
) -> Current:
    """What serves after a decision that changes it."""
    canary = before.canary
    if kind is Kind.CANARY_STARTED:
        if canary is not None:
            raise LoopError(f"{canary.id} is a canary already: promote it or roll it back first")
        if named == before.live.id:
            raise LoopError(f"{named} is live: it cannot be a canary too")
        if share is None:
            raise LoopError("a canary needs a share")
        release = release_of(decisions, named)
        salt = hashlib.sha256(f"{named} {number} {now}".encode()).hexdigest()[:16]
        made = Canary(**release.model_dump(), share=share, salt=salt, started=now)
        return Current(decision=number, live=before.live, canary=made)
    if kind is Kind.PROMOTED:
        if named == before.live.id:
            raise LoopError(f"{named} is live already")
        return Current(decision=number, live=release_of(decisions, named))
    if canary is not None and named == canary.id:
        return Current(decision=number, live=before.live)
    if kind is Kind.WITHDRAWN:
        raise LoopError(f"{named} is no canary now")
    if named == before.live.id:
        raise LoopError(f"{named} is live already")
    if named not in former_live(decisions):
        raise LoopError(f"{named} was never live; those that were: {', '.join(former_live(decisions))}")
    return Current(decision=number, live=release_of(decisions, named))


@contextmanager
def _writing(folder: Path) -> Iterator[tuple[LineFile, list[Decision]]]:
    """The log, open for this process alone, with all its decisions; `current.json` is as the last of them has it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            log = LineFile(folder / LOG)
            break
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise LoopError(f"another process holds {folder / LOG}: try again") from error
        time.sleep(0.01)
    try:
        decisions = history(folder)
        if decisions and (state := decisions[-1].state) is not None:
            try:
                behind = read_current(folder) != state
            except ReleasesError:
                behind = True
            if behind:
                replace_file(folder / CURRENT, state.model_dump_json(indent=2) + "\n")
        yield log, decisions
    finally:
        log.close()


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"])
    return str(error).splitlines()[0] if str(error) else type(error).__name__
