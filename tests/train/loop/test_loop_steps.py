"""The loop's steps, with a real collection and real training: each is made once, and a kill in between loses none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine.policies import make_policy
from thresher.engine.search import SearchEngine
from thresher.train.loop import driving
from thresher.train.loop.driving import Loop, Ways, last_round, unfinished
from thresher.train.loop.errors import LoopError
from thresher.train.loop.gate import Verdict
from thresher.train.loop.releases import (
    ARTEFACTS,
    CONFIGURED,
    Kind,
    Release,
    decide,
    history,
    read_current,
    rollback,
    the_loop,
)
from thresher.train.loop.settings import LoopSettings
from thresher.train.production.records import ServedResult, ServedSearch, Signal
from thresher.train.production.store import ProductionStore
from thresher.train.tasks.task import Task, TaskError, write_tasks

NAMES = "Alder Birch Cedar Dogwood Elm Fir Gorse Hazel Ivy Juniper Larch Maple Nettle Oak Poplar Quince".split()
NOW = 1_700_000_000.0


def corpus() -> dict[str, str]:
    """For each name one passage that answers, and three that repeat the question's words."""
    texts = {}
    for n, name in enumerate(NAMES):
        for copy in range(3):
            texts[f"visit {n} {copy}.md"] = f"Who was it that founded the {name} mill? Visitor {copy} asked that."
        texts[f"ledger {n}.md"] = f"The {name} mill was founded by widow number{n}, who kept the books for the wheel."
    return texts


def question(name: str) -> str:
    return f"Who founded the {name} mill?"


@pytest.fixture(scope="module")
def mills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with make_collection(tmp_path_factory.mktemp("mills") / "c", corpus()) as collection:
        yield collection


class World:
    """A loop with its folders; `at` is what its clock says."""

    def __init__(self, place: Path, mills: Collection, **settings: Any) -> None:
        self.folder, self.store, self.at = place / "releases", ProductionStore(place / "production"), NOW
        suite = place / "suite.jsonl"
        write_tasks(suite, [Task(f"t{n}", question(NAMES[n]), gold_ids=(f"ledger {n}.md",)) for n in range(8, 16)])
        self.settings = LoopSettings.model_validate(
            {
                "collection": "mills",
                "tasks": {"minimum": 6},
                "training": {"steps": 1, "warm_rollouts": 1, "effort": "low", "max_results": 2},
                "gate": {"suite": str(suite), "metric": "recall", "minimum": 4},
                "canary": {"share": 0.5, "minimum": 10, "maximum": 60},
            }
            | settings
        )
        self.opened = 0

        @contextmanager
        def opening() -> Iterator[Collection]:
            self.opened += 1
            yield mills

        @asynccontextmanager
        async def engine(release: Release, collection: Collection) -> AsyncIterator[SearchEngine]:
            yield SearchEngine(collection, make_policy(release.policy))

        self.loop = Loop(
            self.settings, self.folder, self.store, Ways("builtin:rules", opening, engine), clock=lambda: self.at
        )

    def ask(self, number: int, *, cited: bool = True, at: float = NOW - 60, **given: Any) -> None:
        """A user asks after a mill, and cites the passage that answers."""
        search = ServedSearch(
            id=f"s{number}-{at}",
            created=at,
            consent="setting",
            policy="builtin",
            collections=("mills",),
            question=question(NAMES[number]),
            results=(ServedResult(id="c1", document_id=f"ledger {number}.md", rank=0),),
            **given,
        )
        self.store.append(search)
        if cited:
            self.store.append(Signal(search_id=search.id, created=at + 5, kind="cited", value="c1"))

    @property
    def kinds(self) -> list[str]:
        return [str(decision.kind) for decision in history(self.folder)]


@pytest.fixture
def world(tmp_path: Path, mills: Collection) -> World:
    return World(tmp_path, mills)


def trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training take no time: what it makes is the rules, under a new name each time."""

    def made(folder: Path, tasks: Sequence[Task], *_: Any, number: int, parent: str, **__: Any) -> Release:
        return Release(id=f"r{number}", policy="builtin:rules", parent=parent, about={"tasks": len(tasks)})

    monkeypatch.setattr(driving, "candidate", made)


def decided(monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    """Let the gate come to this, whatever it sees; its own tests are elsewhere."""
    monkeypatch.setattr(
        driving,
        "gate",
        lambda *_, **__: Verdict(outcome, True, ("so it was said",), {}),  # type: ignore[arg-type]
    )


def test_the_first_look_adopts_what_is_configured_and_waits(world: World) -> None:
    step = world.loop.step()
    assert [decision.kind for decision in step.decisions] == [Kind.ADOPTED]
    assert step.waiting == "0 new questions that teach something, 6 make a round"
    current = read_current(world.folder)
    assert current is not None
    assert (current.live.id, current.live.policy) == (CONFIGURED, "builtin:rules")
    assert world.loop.step().decisions == ()


def test_a_round_trains_and_the_gate_judges_on_questions_that_were_not_learned(world: World) -> None:
    for number in range(12):  # eight users' questions, four of the suite's
        world.ask(number)
    step = world.loop.step()
    assert [str(decision.kind) for decision in step.decisions][:3] == ["adopted", "proposed", "gated"]
    proposed, gated = step.decisions[1:3]
    assert proposed.figures["tasks"] == 8
    assert proposed.figures["left_out"] == {"like a question of the gate's suite": 4}
    assert proposed.made is not None
    assert proposed.made.parent == CONFIGURED
    [kept] = (world.folder / ARTEFACTS).iterdir()
    assert proposed.made.policy == f"builtin:{kept / 'weights.json'}"
    assert sorted(path.name for path in kept.iterdir()) == ["weights.json", "weights.log.jsonl"]
    assert "?" not in (kept / "weights.log.jsonl").read_text()  # and no user's question
    assert gated.figures["outcome"] in ("better", "worse", "undecided")
    assert gated.figures["questions"] <= 8
    assert gated.figures["live"]["score"] is not None
    again = world.loop.step()
    if gated.figures["outcome"] != "better":
        assert again.waiting.startswith("0 new questions")  # what was learned from is not new
    assert world.opened == 1


def test_what_passes_becomes_a_canary_and_what_does_not_serves_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        world.ask(number)
    trained(monkeypatch)
    decided(monkeypatch, "undecided")
    world.loop.step()
    assert world.kinds == ["adopted", "proposed", "gated"]
    world.at += 100
    for number in range(8):
        world.ask(number, at=world.at - 10)
    decided(monkeypatch, "better")
    world.loop.step()
    assert world.kinds[3:] == ["proposed", "gated", "canary_started"]
    current = read_current(world.folder)
    assert current is not None
    assert current.canary is not None
    assert (current.canary.id, current.canary.share) == (history(world.folder)[3].release, 0.5)


def test_a_loop_that_was_killed_goes_on_with_what_it_had_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        world.ask(number)
    trained(monkeypatch)

    def killed(*_: object, **__: object) -> Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(driving, "gate", killed)
    with pytest.raises(KeyboardInterrupt):
        world.loop.step()
    assert world.kinds == ["adopted", "proposed"]
    decided(monkeypatch, "better")
    monkeypatch.setattr(driving, "candidate", None)  # nothing is trained again
    monkeypatch.setattr(Loop, "_start_canary", lambda *_: None)  # killed once more, after the gate
    world.loop.step()
    assert world.kinds == ["adopted", "proposed", "gated"]
    monkeypatch.undo()
    world.loop.step()
    assert world.kinds == ["adopted", "proposed", "gated", "canary_started"]


def test_a_person_who_decides_meanwhile_goes_before_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        world.ask(number)
    trained(monkeypatch)

    def meanwhile(*_: object, **__: object) -> Verdict:
        decide(world.folder, Kind.PROPOSED, who="ada", release=Release(id="mine", policy="builtin"))
        decide(world.folder, Kind.PROMOTED, who="ada", release_id="mine")
        return Verdict("better", True, ("it is",), {})

    monkeypatch.setattr(driving, "gate", meanwhile)
    step = world.loop.step()
    assert "decided otherwise meanwhile" in step.waiting
    current = read_current(world.folder)
    assert current is not None
    assert (current.live.id, current.canary) == ("mine", None)


def canary(world: World) -> str:
    """Start one by hand; its id."""
    decide(world.folder, Kind.ADOPTED, who="ada", release=Release(id=CONFIGURED, policy="builtin"))
    decide(world.folder, Kind.PROPOSED, who="ada", release=Release(id="new", policy="builtin:rules"))
    state = decide(world.folder, Kind.CANARY_STARTED, who="ada", release_id="new", share=0.5).state
    assert state is not None
    assert state.canary is not None
    world.at = state.canary.started
    return "new"


@pytest.mark.parametrize(
    ("live", "new", "kind"),
    [(False, True, Kind.PROMOTED), (True, False, Kind.ROLLED_BACK), (True, True, Kind.WITHDRAWN)],
)
def test_a_canary_ends_as_its_users_fared(world: World, live: bool, new: bool, kind: Kind) -> None:
    name = canary(world)
    for number in range(60):
        arm = number % 2 == 0
        release = {"release": name, "arm": "canary"} if arm else {"release": CONFIGURED}
        world.ask(number % 16, cited=new if arm else live, at=world.at + number, **release)
    assert world.loop.step().waiting.startswith("canary new: 0 of at least 10 users")  # nobody is settled
    world.at += 7_200
    [decision] = world.loop.step().decisions
    assert (decision.kind, decision.release, decision.who) == (kind, name, "loop")
    assert decision.figures["canary"]["users"] + decision.figures["live"]["users"] == 60
    current = read_current(world.folder)
    assert current is not None
    assert current.live.id == (name if kind is Kind.PROMOTED else CONFIGURED)
    assert current.canary is None
    if kind is Kind.PROMOTED:
        assert rollback(world.folder, who="ada").release == CONFIGURED


def test_what_cannot_be_trained_is_logged_and_not_tried_again_at_once(tmp_path: Path, mills: Collection) -> None:
    few = World(tmp_path, mills, tasks={"minimum": 1})  # one question is too few to set some aside
    few.ask(0)
    step = few.loop.step()
    assert [decision.kind for decision in step.decisions] == [Kind.ADOPTED, Kind.ROUND]
    assert "too few" in step.decisions[1].reasons[0]
    assert few.loop.step().waiting.startswith("0 new questions")
    assert not list((few.folder / ARTEFACTS).iterdir())


def test_a_suite_that_can_decide_nothing_is_refused(world: World) -> None:
    gate = world.settings.gate.model_copy(update={"minimum": 9})
    loop = Loop(
        world.settings.model_copy(update={"gate": gate}),
        world.folder,
        world.store,
        world.loop._ways,
        clock=lambda: NOW,
    )
    with pytest.raises(TaskError, match="has 8 questions"):
        loop.step()


def test_two_loops_do_not_run_in_one_folder(world: World) -> None:
    with the_loop(world.folder), pytest.raises(LoopError, match="another loop runs here"):
        world.loop.step()


def test_what_is_unfinished_is_read_off_the_log(world: World) -> None:
    canary(world)
    decide(world.folder, Kind.PROMOTED, who="ada", release_id="new")
    current = read_current(world.folder)
    assert current is not None
    assert unfinished(history(world.folder), current) is None
    stale = Release(id="stale", policy="builtin", parent=CONFIGURED)
    decide(world.folder, Kind.PROPOSED, who="loop", release=stale, figures={"until": 5.0})
    assert unfinished(history(world.folder), current) is None  # made beside another live release
    assert last_round(history(world.folder)) == 5.0
