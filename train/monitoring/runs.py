"""Runs as people look at them: what was asked, how far it got, what went wrong, what it changed.

Everything is read from files that another process may be writing. What is torn, missing or strange is told in
`Run.problems`, and the rest is shown: nothing here raises because of what a folder holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from thresher.train.errors import RunError
from thresher.train.monitoring.alarms import Alarm, alarms_of
from thresher.train.monitoring.changes import Change, changes, settings_table, trainer_of
from thresher.train.monitoring.decisions import RELEASES
from thresher.train.monitoring.log import LOG_NAME, LogError, StepLog, parse_lines, rewound
from thresher.train.monitoring.states import FAILURE, Failure, State, held, modified, read_failure, state_of
from thresher.train.trainer.checkpoints import complete_checkpoints
from thresher.train.trainer.evaluating import EVALUATIONS, Evaluation, read_evaluations
from thresher.train.trainer.folder import LOCK, MADE
from thresher.train.trainer.settings_files import FILE

Kind = Literal["rl", "sft", "builtin", "loop", "other"]
BUILTIN = f".{LOG_NAME}"
"""Ends the name of a log that lies beside the weights of the builtin policy."""
ROLLOUTS = "rollouts.jsonl"
ARTEFACTS, WEIGHTS = "artefacts", "weights.json"
"""Where the production loop keeps what its rounds made, in the folder of releases, and of what name."""
RECENT = 20
"""Steps that the time of a step is measured over."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        path: its folder, or the log of a run of the builtin policy, whose `weights` lie beside it.
        why: what the state is told by, in words; "" where it needs none.
        steps: as they count: of a step that was made twice the later one. `total`: how many there are to be.
        settings: by section, as they lie there; `changes`: those that differ from the defaults.
        checkpoints: steps of the complete ones.
        problems: what could not be read, in words.
        updated: when something of it was last written, seconds since 1970; 0 where nothing was.
    """

    path: Path
    name: str
    kind: Kind
    state: State
    why: str = ""
    steps: tuple[StepLog, ...] = ()
    total: int | None = None
    alarms: tuple[Alarm, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    changes: tuple[Change, ...] = ()
    checkpoints: tuple[int, ...] = ()
    rollouts: Path | None = None
    weights: Path | None = None
    failure: Failure | None = None
    problems: tuple[str, ...] = ()
    updated: float = 0.0

    @property
    def step(self) -> int:
        """The last step; 0 before the first."""
        return self.steps[-1].step if self.steps else 0

    @property
    def rewards(self) -> list[float]:
        """The mean reward of each step that has one."""
        return [step.reward.mean for step in self.steps if step.reward is not None]

    @property
    def losses(self) -> list[float]:
        """The loss of each step that has one."""
        return [step.loss for step in self.steps if step.loss is not None]

    @property
    def active(self) -> list[Alarm]:
        """Alarms that are not over."""
        return [alarm for alarm in self.alarms if alarm.cleared is None]

    @property
    def well_formed(self) -> float | None:
        """Calls that could be run, of all: of the newest step, else of the newest evaluation, that knows it."""
        for step in reversed(self.steps):
            if step.facts is not None:
                return 1 - step.facts.malformed_rate
        return next((each.well_formed for each in reversed(self.evaluations) if each.well_formed is not None), None)

    @property
    def step_seconds(self) -> float | None:
        """What a step takes: the median of the last ones."""
        taken = [step.seconds for step in self.steps[-RECENT:] if step.seconds > 0]
        return median(taken) if taken else None

    @property
    def before(self) -> Evaluation | None:
        """The evaluation before training."""
        return next((each for each in self.evaluations if each.label == "before"), None)

    @property
    def after(self) -> Evaluation | None:
        """The newest evaluation that is not the one before training."""
        return next((each for each in reversed(self.evaluations) if each.label != "before"), None)

    @property
    def bound(self) -> str | None:
        """The name of the conformance bound that holds for it; None where there is no such gate."""
        if self.kind != "rl":
            return None
        asked = {key: self.settings.get(key) for key in ("conformance", "sync", "model")}
        tables = {key: value if isinstance(value, Mapping) else {} for key, value in asked.items()}
        same = tables["sync"].get("kind") == "in-process" and tables["model"].get("dtype") == "float32"
        return str(tables["conformance"].get("bound") or ("same_process" if same else "server_bf16"))


def read_run(path: Path) -> Run:
    """The run in a folder, or the one whose log this is. Whatever is wrong with it is in `Run.problems`."""
    if path.name == LOG_NAME:
        path = path.parent
    if path.name.endswith(BUILTIN) and not path.is_dir():
        run = _of_file(path)
    else:
        run = _of_round(path) if _without_log(path) else _of_folder(path)
    kept = round_of(path)
    return run if kept is None else replace(run, kind="loop", name=kept.name)


def round_of(path: Path) -> Path | None:
    """The folder of the round of the production loop that a path is in, if it is in one."""
    whole = path.resolve()
    for folder in (whole, *whole.parents):
        if folder.parent.name == ARTEFACTS and (folder.parent.parent / RELEASES).is_file():
            return folder
    return None


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, or a file is the log of one, as far as its beginning tells."""
    if path.is_dir():
        if _without_log(path):
            return True
        table, _ = settings_table(path)
        told = table is not None and trainer_of(table) is not None
        begun = (path / LOCK).is_file() and any((path / name).exists() for name in (FILE, LOG_NAME, EVALUATIONS))
        return told or begun or _begins(path / LOG_NAME, "step") or _begins(path / EVALUATIONS, "label")
    return (path.name == LOG_NAME or path.name.endswith(BUILTIN)) and _begins(path, "step")


def in_pieces(path: Path) -> bool:
    """Whether a folder holds anything that a run leaves: one that is no run by `is_run` may be half of one."""
    return any((path / name).exists() for name in (LOCK, FILE, *MADE, "checkpoints"))


def _of_folder(path: Path) -> Run:
    problems: list[str] = []
    table, trouble = settings_table(path)
    kind: Kind = (trainer_of(table) if table is not None else None) or "other"
    if trouble is not None:
        problems.append(trouble)
    elif table is None:
        problems.append(f"there is no {FILE}: what was asked of it is not known")
    elif kind == "other":
        problems.append(f"{FILE} is of no kind of run that this version of thresher knows")
    log = path / LOG_NAME
    steps = _steps(log, problems)
    try:
        evaluations = read_evaluations(path)
    except (RunError, OSError, RecursionError) as error:
        problems.append(str(error))
        evaluations = []
    total = _total(table or {}, steps)
    lock, model = path / LOCK, path / "model" / "config.json"
    failure = read_failure(path, log)
    running = held(lock)
    state, why = state_of(
        running=running,
        exported=model.is_file(),
        settled=lock.exists() or table is not None,
        steps=steps,
        total=total,
        failure=failure,
    )
    written = (log, path / EVALUATIONS, path / ROLLOUTS, path / "examples.jsonl", path / FILE, path / FAILURE, model)
    return Run(
        path=path,
        name=_name(path),
        kind=kind,
        state=state,
        why=why,
        steps=tuple(steps),
        total=total,
        alarms=_alarms(steps, problems),
        evaluations=tuple(evaluations),
        settings=table or {},
        changes=changes(table) if table is not None else (),
        checkpoints=_checkpoints(path / "checkpoints", problems),
        rollouts=path / ROLLOUTS if (path / ROLLOUTS).is_file() else None,
        failure=failure if state == "failed" else None,
        problems=tuple(problems),
        updated=max(map(modified, written)),
    )


def _without_log(path: Path) -> bool:
    """Whether a folder is a round of the loop that left weights of the builtin policy, and no log beside them."""
    weights = path / WEIGHTS
    return weights.is_file() and not weights.with_suffix(BUILTIN).exists() and round_of(path) == path.resolve()


def _of_round(path: Path) -> Run:
    """A round of the loop, of which the weights are kept, and no steps. It is put in its place when it is whole."""
    weights = path / WEIGHTS
    told, trouble = _about(weights)
    return Run(
        path=path,
        name=path.name,
        kind="loop",
        state="finished",
        settings=told,
        changes=tuple(Change(key, value) for key, value in told.items()),
        weights=weights,
        problems=("no log of its steps was kept",) if trouble is None else (trouble,),
        updated=modified(weights),
    )


def _of_file(log: Path) -> Run:
    """A run of the builtin policy, which has a log and the weights beside it."""
    problems: list[str] = []
    steps = _steps(log, problems)
    stem = log.name.removesuffix(BUILTIN)
    weights = log.with_name(f"{stem}.json")
    made = modified(weights) >= modified(log) > 0
    told: Mapping[str, Any] = {}
    if weights.is_file():
        told, trouble = _about(weights)
        if trouble:
            problems.append(trouble)
    if not made:
        whose = f"those in {weights.name} are older than the log" if weights.is_file() else f"no {weights.name}"
        problems.append(f"no weights of this run are there: {whose}")
    total = _total({}, steps)
    running = held(log)
    # It stops before the last step where nothing is gained any more; so what says that it ended are the weights.
    state, why = state_of(running=running, exported=made, settled=True, steps=steps, total=None, failure=None)
    return Run(
        path=log,
        name=stem,
        kind="builtin",
        state=state,
        why=why.partition(";")[0],
        steps=tuple(steps),
        total=total,
        alarms=_alarms(steps, problems),
        settings=told,
        changes=tuple(Change(key, value) for key, value in told.items()),
        weights=weights if weights.is_file() else None,
        problems=tuple(problems),
        updated=max(modified(log), modified(weights)),
    )


def _steps(log: Path, problems: list[str]) -> list[StepLog]:
    """The steps of a log up to the first line that is none, which is told."""
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        problems.append(f"there is no {log.name}: no step was made")
        return []
    except OSError as error:
        problems.append(f"{log.name} cannot be read: {error.strerror or error}")
        return []
    steps: list[StepLog] = []
    try:
        for step in parse_lines(data, log.name):
            steps.append(step)  # one by one: those before a bad line are kept
    except (LogError, RecursionError) as error:
        problems.append(f"{error}; what follows is not shown")
    return rewound(steps)


def _alarms(steps: Sequence[StepLog], problems: list[str]) -> tuple[Alarm, ...]:
    try:
        return tuple(alarms_of(steps))
    except (ArithmeticError, ValueError) as error:  # of numbers that no step has, such as infinite rewards
        problems.append(f"alarms cannot be computed: {error}")
        return ()


def _total(table: Mapping[str, Any], steps: Sequence[StepLog]) -> int | None:
    """How many steps there are to be: as asked, or as the log's progress tells."""
    optimiser = table.get("optimiser")
    asked = optimiser.get("steps") if isinstance(optimiser, Mapping) else None
    if isinstance(asked, int) and not isinstance(asked, bool):
        return asked
    last = steps[-1] if steps else None
    if last is None or not last.progress or not 0 < last.progress <= 1:
        return None
    return max(last.step, round(last.step / last.progress))


def _checkpoints(folder: Path, problems: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(path.name.rpartition("-")[2]) for path in complete_checkpoints(folder))
    except (OSError, ValueError) as error:
        problems.append(f"checkpoints cannot be listed: {error}")
        return ()


def _about(weights: Path) -> tuple[Mapping[str, Any], str | None]:
    """What a file of weights says of how it was made."""
    try:
        record = json.loads(weights.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{weights.name} cannot be read: {error}"
    told = record.get("about") if isinstance(record, dict) else None
    if not isinstance(told, dict):
        return {}, f"{weights.name} does not say how it was made"
    return told, None


def _begins(path: Path, key: str) -> bool:
    """Whether a file of JSON lines begins with a record that has this key."""
    try:
        with path.open("rb") as file:
            line = file.readline(1 << 20)
        record = json.loads(line)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and key in record


def _name(path: Path) -> str:
    """A folder's own name; `.` and `..` have none."""
    return path.name if path.name not in ("", "..") else path.resolve().name or str(path)
