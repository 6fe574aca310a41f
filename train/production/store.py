"""The records of production on disk: a file a day, appended to by servers, read by training, rewritten by a purge.

`FOLDER/records/YYYY-MM-DD.jsonl` has searches by the day (UTC) on which they were asked, `FOLDER/signals/…` signals by
the day on which they came. Whoever writes holds `FOLDER/lock`, so that several servers and a purge do not cross.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from thresher.corpus.paths import sync_directory
from thresher.train.errors import TrainError
from thresher.train.lines import LineFile, write_lines
from thresher.train.production.records import ServedSearch, Signal

R = TypeVar("R", bound=BaseModel)

Part = Literal["records", "signals"]
PARTS: tuple[Part, ...] = ("records", "signals")

LOCK_WAIT_S = 30.0
"""How long to wait for another process that writes here."""

DAY_S = 86_400

_AGAIN_S = 0.02


class ProductionError(TrainError):
    """A file of records cannot be read, or the folder is in use."""

    code = "production_records"


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge took out. `damaged` lines could not be read, so nobody could tell whose they were."""

    searches: int = 0
    signals: int = 0
    damaged: int = 0


class ProductionStore:
    """The records below one folder. Safe for several threads and processes.

    Args:
        on_damaged: told of each line that cannot be read, which is passed over then; without it that is an error.
    """

    def __init__(
        self, folder: Path, *, lock_wait_s: float = LOCK_WAIT_S, on_damaged: Callable[[str], None] | None = None
    ) -> None:
        """Nothing is made or opened before it is needed."""
        self.folder = folder
        self._lock_wait_s = lock_wait_s
        self._on_damaged = on_damaged

    def append(
        self, *records: ServedSearch | Signal, sync: bool = False, unless: Callable[[], bool] | None = None
    ) -> bool:
        """Keep records, which must be redacted already; with `sync` they are on the disk when this returns.

        `unless` is asked while nobody else writes or purges: if it says yes, nothing is kept, and this returns False.

        Raises:
            OSError: the disk is full, or the folder cannot be written; whole lines are there or none.
            ProductionError: another process writes for too long.
        """
        lines: dict[Path, list[bytes]] = defaultdict(list)
        for record in records:
            part: Part = "records" if isinstance(record, ServedSearch) else "signals"
            lines[self._path(part, record.created)].append(record.model_dump_json().encode() + b"\n")
        with self._locked():
            if unless is not None and unless():
                return False
            for path, those in lines.items():
                _make_private(path.parent)
                file = LineFile(path)
                try:
                    path.chmod(0o600)
                    file.append(b"".join(those), sync=sync)
                finally:
                    file.close()
        return True

    def searches(
        self, *, since: float | None = None, until: float | None = None, tenant: str | None = None
    ) -> Iterator[ServedSearch]:
        """Searches asked from `since` on and before `until` (seconds since 1970), a day after the other.

        Raises:
            ProductionError: a line is no record; the message names it.
        """
        return self._read("records", ServedSearch, since, until, tenant)

    def signals(
        self, *, since: float | None = None, until: float | None = None, tenant: str | None = None
    ) -> Iterator[Signal]:
        """Signals, as `searches`."""
        return self._read("signals", Signal, since, until, tenant)

    def joined(
        self, *, since: float | None = None, until: float | None = None, tenant: str | None = None
    ) -> Iterator[tuple[ServedSearch, tuple[Signal, ...]]]:
        """Searches with all their signals, however late these came.

        All signals from `since` on are held in memory meanwhile; they are small.

        Raises:
            ProductionError: as `searches`.
        """
        by_search: dict[tuple[str, str], list[Signal]] = defaultdict(list)
        for signal in self.signals(since=since, tenant=tenant):
            by_search[signal.tenant, signal.search_id].append(signal)
        for search in self.searches(since=since, until=until, tenant=tenant):
            yield search, tuple(by_search.get((search.tenant, search.id), ()))

    def export(
        self, path: Path, *, since: float | None = None, until: float | None = None, tenant: str | None = None
    ) -> int:
        """Write `{"search": …, "signals": […]}`, one a line, to a file that only its owner may read; how many.

        Raises:
            ProductionError: as `searches`.
            OSError: the file cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        records = (
            {
                "search": search.model_dump(mode="json"),
                "signals": [signal.model_dump(mode="json") for signal in signals],
            }
            for search, signals in self.joined(since=since, until=until, tenant=tenant)
        )
        _private_new(path)  # `write_lines` writes through this very file, so that nobody else may ever read it
        return write_lines(path, records)

    def purge(
        self,
        *,
        before: float | None = None,
        tenant: str | None = None,
        search_id: str | None = None,
        key: str | None = None,
    ) -> Purged:
        """Take out what fits all that is given; files are written anew, so that the bytes are gone from them.

        Signals of searches that go, go too; so do lines that name what goes and cannot be read, and what a crash has
        left half written. What the disk itself keeps of deleted blocks is beyond a program's reach.

        Args:
            before: only searches asked before this (seconds since 1970); signals, those that came before it.
            tenant: only of this tenant; "" is the default one.
            search_id: only this search.
            key: only searches that came with this key, as the records have it, and their signals.

        Raises:
            ValueError: nothing is given.
            OSError: a file cannot be written; what is not done yet is as it was.
            ProductionError: another process writes for too long.
        """
        if before is None and tenant is None and search_id is None and key is None:
            raise ValueError("purge needs to be told what shall go: before, tenant, search_id or key")
        gone: set[tuple[str, str]] = set()

        def fits(line: dict[str, Any]) -> bool:
            return (before is None or line["created"] < before) and tenant in (None, line["tenant"])

        def search_goes(line: dict[str, Any]) -> bool:
            goes = fits(line) and search_id in (None, line["id"]) and key in (None, line["key"])
            if goes:
                gone.add((line["tenant"], line["id"]))
            return goes

        def signal_goes(line: dict[str, Any]) -> bool:
            if (line["tenant"], line["search_id"]) in gone:
                return True
            return key is None and fits(line) and search_id in (None, line["search_id"])

        if not self.folder.is_dir():
            return Purged()
        with self._locked():
            self._clear_halves()
            searches, damaged = self._rewrite("records", search_goes, search_id or key, before)
            signals, damaged_too = self._rewrite("signals", signal_goes, search_id, None if gone else before)
        return Purged(searches, signals, damaged + damaged_too)

    def days(self, part: Part) -> list[date]:
        """The days of which there is a file, the oldest first."""
        folder = self.folder / part
        return sorted(day for path in folder.glob("*.jsonl") if (day := _day(path)) is not None)

    def _read(
        self, part: Part, kind: type[R], since: float | None, until: float | None, tenant: str | None
    ) -> Iterator[R]:
        for day in self.days(part):
            start = _start(day)
            if until is not None and start >= until:
                break
            if since is not None and start + DAY_S <= since:
                continue
            for record in _records(self.folder / part / f"{day}.jsonl", kind, self._on_damaged):
                created, whose = record.created, record.tenant  # type: ignore[attr-defined]
                if (
                    (since is None or created >= since)
                    and (until is None or created < until)
                    and tenant in (None, whose)
                ):
                    yield record

    def _rewrite(
        self, part: Part, goes: Callable[[dict[str, Any]], bool], needle: str | None, before: float | None
    ) -> tuple[int, int]:
        """Write files anew without the lines that go; how many these were, and how many could not be read.

        Lines without `needle`, and files of days from `before` on, stay as they are without being read.
        """
        wanted = None if needle is None else json.dumps(needle).encode()
        taken = damaged = 0
        for day in self.days(part):
            if before is not None and _start(day) >= before:
                break
            path = self.folder / part / f"{day}.jsonl"
            leaving: set[int] = set()
            stay = False
            with path.open("rb") as file:
                for number, line in enumerate(file):
                    try:
                        if (wanted is None or wanted in line) and goes(json.loads(line)):
                            leaving.add(number)
                            taken += 1
                            continue
                    except (ValueError, KeyError, TypeError):
                        leaving.add(number)
                        damaged += 1
                        continue
                    stay = True
            if leaving:
                self._leave_out(path, leaving, empty=not stay)
        return taken, damaged

    def _leave_out(self, path: Path, leaving: set[int], *, empty: bool) -> None:
        if empty:
            path.unlink()
        else:
            new = _private_new(path)
            try:
                with path.open("rb") as old, new.open("wb") as file:
                    file.writelines(line for number, line in enumerate(old) if number not in leaving)
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(path)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
        sync_directory(path.parent)

    def _clear_halves(self) -> None:
        for part in PARTS:
            for path in (self.folder / part).glob("*.jsonl.new"):
                path.unlink(missing_ok=True)

    def _path(self, part: Part, created: float) -> Path:
        return self.folder / part / f"{datetime.fromtimestamp(created, UTC).date()}.jsonl"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        _make_private(self.folder)
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + self._lock_wait_s
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        message = f"another process writes in {self.folder} and does not end; try again when it has"
                        raise ProductionError(message) from None
                time.sleep(_AGAIN_S)
            yield
        finally:
            os.close(fd)


def _records(path: Path, kind: type[R], on_damaged: Callable[[str], None] | None) -> Iterator[R]:
    try:
        file = path.open("rb")
    except FileNotFoundError:  # purged meanwhile
        return
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):  # it is being written, or a crash has cut it
                return
            try:
                yield kind.model_validate_json(line)
            except ValidationError as error:
                message = f"{path}:{number} is no record of this release ({error.error_count()} fields)"
                if on_damaged is None:
                    hint = "use the release that wrote it, or take the line out of the file"
                    raise ProductionError(f"{message}: {hint}") from error
                on_damaged(message)


def _day(path: Path) -> date | None:
    try:
        return date.fromisoformat(path.stem)
    except ValueError:
        return None


def _make_private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _private_new(path: Path) -> Path:
    """The file beside `path` that becomes it, empty and its owner's alone."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return new


def _start(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
