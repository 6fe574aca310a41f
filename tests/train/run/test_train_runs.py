"""Whole runs of a tiny model: everything real but its size."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from run_support import Brevity, Chance, lent, rl_settings

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest
from thresher.engine.policies import make_policy
from thresher.engine.policies.model.tokens.hf import HfSampler
from thresher.engine.search import SearchEngine
from thresher.train.errors import RunError, SettingsError
from thresher.train.monitoring.log import read_log
from thresher.train.monitoring.plots import plot_run
from thresher.train.rollouts.recording import read_rollouts
from thresher.train.sft.run import train_sft
from thresher.train.sft.settings import SftSettings
from thresher.train.trainer.checkpoints import COMPLETE, complete_checkpoints, last_checkpoint
from thresher.train.trainer.evaluating import read_evaluations
from thresher.train.trainer.folder import run_folder
from thresher.train.trainer.run import train_rl
from thresher.train.trainer.settings import FREE
from thresher.train.trainer.settings_files import read_settings


def served(folder: str, collection: Collection) -> str:
    """What a search with the model in a folder is answered by."""

    async def search() -> Any:
        policy: Any = make_policy(f"hf:{folder}")
        try:
            engine = SearchEngine(collection, policy)
            return await engine.search(SearchRequest("Who built the Alma?", max_turns=1, max_tokens=4_096))
        finally:
            await policy.aclose()

    result = asyncio.run(search())
    assert result.trajectory is not None
    assert result.stop_reason != "error", result.warnings
    return str(result.trajectory.policy)


def weights_in(folder: str | None) -> dict[str, Any]:
    from safetensors.torch import load_file

    assert folder is not None
    return dict(load_file(Path(folder) / "model.safetensors"))


def test_reinforcement_learning_from_start_to_end(tiny: Path, tasks: Path, alma: Collection, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = rl_settings(
        tiny,
        tasks,
        evaluation__limit=2,
        evaluation__every=1,
        log__rollouts=True,
        log__tensorboard=True,
        checkpoints__keep=1,
        rollouts__max_staleness=0,
    )
    events: list[str] = []
    report = train_rl(
        settings, out, open_collection=lent(alma), scorer=Chance(), tell=lambda kind, data: events.append(kind)
    )
    steps = read_log(out)
    assert [step.step for step in steps] == [1, 2]
    assert [step.version for step in steps] == [1, 2]
    for step in steps:
        assert (step.groups, step.rollouts, step.faults, step.constant_groups) == (2, 6, 0, 0)
        assert step.conformance is not None
        assert step.conformance.max < 1e-3
        assert step.segments == 6
        assert step.tokens == step.more["sampled_tokens"]
        assert set(step.terms) == {"chance"}
    assert [(each.label, each.step) for each in read_evaluations(out)] == [("before", 0), ("step", 1), ("after", 2)]
    assert report.before is not None
    assert report.before.questions == 2
    assert report.before.well_formed == 0.0  # random weights call nothing
    assert events.count("step") == 2
    assert [path.name for path in complete_checkpoints(out / "checkpoints")] == ["checkpoint-2"]
    rollouts = list(read_rollouts(out / "rollouts.jsonl"))
    assert len(rollouts) == 12
    assert {rollout.group for rollout in rollouts} == {0, 1, 2, 3}
    assert list((out / "tensorboard").iterdir())

    assert served(str(report.model), alma) == "hf:model"
    before, after = weights_in(str(tiny)), weights_in(report.model)
    assert before.keys() == after.keys()
    assert any(not before[name].equal(after[name]) for name in before)
    assert (out / "adapter" / "adapter_model.safetensors").is_file()

    pytest.importorskip("matplotlib")
    names = {file.stem for file in plot_run(out)}
    assert {"reward", "terms", "facts", "gradient_share", "training", "conformance", "evaluation"} <= names

    # Asked for more steps, it goes on; asked for something else, it refuses.
    other = rl_settings(tiny, tasks, optimiser__learning_rate=0.5)
    with pytest.raises(SettingsError, match=r"optimiser\.learning_rate was 0\.001 and is 0\.5"):
        train_rl(other, out, open_collection=lent(alma), scorer=Chance())
    again = train_rl(
        settings.model_copy(update={"optimiser": settings.optimiser.model_copy(update={"steps": 3})}),
        out,
        open_collection=lent(alma),
        scorer=Chance(),
    )
    assert again.resumed == 2
    assert [step.step for step in read_log(out)] == [1, 2, 3]
    assert again.version == 3


def test_whole_weights_and_a_run_that_has_ended(tiny: Path, tasks: Path, alma: Collection, tmp_path: Path) -> None:
    settings = rl_settings(tiny, tasks, lora__rank=0, optimiser__steps=1)
    first = train_rl(settings, tmp_path / "run", open_collection=lent(alma), scorer=Chance())
    assert first.adapter is None
    made = weights_in(first.model)
    again = train_rl(settings, tmp_path / "run", open_collection=lent(alma), scorer=Chance())
    assert again.resumed == 1
    assert again.version == first.version == 1
    assert all(made[name].equal(value) for name, value in weights_in(again.model).items())
    assert len(read_log(tmp_path / "run")) == 1


def test_what_breaks_a_run_leaves_its_checkpoint(tiny: Path, tasks: Path, alma: Collection, tmp_path: Path) -> None:
    class Breaking(Chance):
        calls = 0

        def __call__(self, *args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls > 6:
                raise ValueError("no such document")
            return super().__call__(*args, **options)

    settings = rl_settings(tiny, tasks, rollouts__max_staleness=0)
    with pytest.raises(Exception, match="no such document"):
        train_rl(settings, tmp_path / "run", open_collection=lent(alma), scorer=Breaking())
    assert [path.name for path in complete_checkpoints(tmp_path / "run" / "checkpoints")] == ["checkpoint-1"]
    report = train_rl(settings, tmp_path / "run", open_collection=lent(alma), scorer=Chance())
    assert report.resumed == 1
    assert [step.step for step in read_log(tmp_path / "run")] == [1, 2]


def test_a_checkpoint_that_was_not_finished_is_not_gone_on_from(tmp_path: Path) -> None:
    for step, whole in ((5, True), (10, True), (100, False)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "optimizer.pt").write_bytes(b"half")
        if whole:
            (folder / COMPLETE).write_text("{}")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert not (tmp_path / "checkpoint-100").exists()
    assert last_checkpoint(tmp_path / "absent") is None


def test_what_failed_before_it_made_anything_may_be_asked_for_otherwise(
    tiny: Path, tasks: Path, alma: Collection, tmp_path: Path
) -> None:
    """A slip in the first try does not take the folder: here no weights, then half of them."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in tiny.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, bare)
    out = tmp_path / "run"
    for weights in (None, (tiny / "model.safetensors").read_bytes()[:5_000], b"junk"):
        if weights is not None:
            (bare / "model.safetensors").write_bytes(weights)
        with pytest.raises(SettingsError, match=r"model\.path: .*bare cannot be loaded"):
            train_rl(rl_settings(bare, tasks), out, open_collection=lent(alma), scorer=Chance())
    settings = rl_settings(tiny, tasks, optimiser__steps=1)
    assert train_rl(settings, out, open_collection=lent(alma), scorer=Chance()).resumed == 0
    with pytest.raises(SettingsError, match="began with other settings"):
        train_rl(rl_settings(bare, tasks), out, open_collection=lent(alma), scorer=Chance())
    with pytest.raises(SettingsError, match="holds a run of another kind"):
        train_sft(sft(tiny, tasks), out, open_collection=lent(alma))


def test_a_second_run_on_a_folder_is_refused_before_it_touches_anything(
    tiny: Path, tasks: Path, alma: Collection, tmp_path: Path
) -> None:
    settings = rl_settings(tiny, tasks)
    writing = tmp_path / "checkpoints" / "checkpoint-1"
    with run_folder(tmp_path, settings, FREE):
        writing.mkdir(parents=True)
        (writing / "optimizer.pt").write_bytes(b"half of it so far")
        with pytest.raises(RunError, match="another process trains in"):
            train_rl(settings, tmp_path, open_collection=lent(alma), scorer=Chance())
        with pytest.raises(RunError, match="another process trains in"):
            train_sft(sft(tiny, tasks), tmp_path, open_collection=lent(alma))
        assert (writing / "optimizer.pt").exists(), "what the first run was writing was removed"
    with run_folder(tmp_path, settings, FREE):
        pass


def sft(tiny: Path, tasks: Path, *sets: str) -> SftSettings:
    usual = ("search.max_tokens=6000", "sampling.max_reply_tokens=300", "optimiser.batch=2", "optimiser.steps=3")
    given = {"model.path": str(tiny), "tasks.path": str(tasks)}
    return read_settings(SftSettings, sets=(*usual, "optimiser.learning_rate=1e-2", *sets), given=given)


def test_supervised_from_start_to_end(tiny: Path, tasks: Path, alma: Collection, tmp_path: Path) -> None:
    out = tmp_path / "sft"
    settings = sft(tiny, tasks, "checkpoints.every=2")
    report = train_sft(settings, out, open_collection=lent(alma))
    assert report.searches == 3
    assert report.kept == 3, report.told
    assert 0 < report.trained_tokens < report.tokens
    steps = read_log(out)
    assert [step.step for step in steps] == [1, 2, 3]
    losses = [step.loss for step in steps if step.loss is not None]
    assert losses[-1] < losses[0] - 0.5
    assert served(str(report.model), alma) == "hf:model"
    again = train_sft(settings, out, open_collection=lent(alma))
    assert again.resumed == 3
    assert again.searches is None, "the teacher searched again"
    assert len(read_log(out)) == 3


def test_only_what_is_taught_is_trained(tiny: Path, tasks: Path, alma: Collection, tmp_path: Path) -> None:
    """The loss of the first step is that of the taught tokens alone, by the model's own logits."""
    import torch
    from transformers import AutoModelForCausalLM

    from thresher.train.sft.examples import read_examples

    settings = sft(tiny, tasks, "optimiser.steps=1", "optimiser.batch=3", "lora.rank=0")
    report = train_sft(settings, tmp_path / "sft", open_collection=lent(alma))
    rows = list(read_examples(tmp_path / "sft" / "examples.jsonl"))
    assert len(rows) == 3
    model = AutoModelForCausalLM.from_pretrained(tiny).eval()
    total, count = 0.0, 0
    for row in rows:
        with torch.no_grad():
            logprobs = torch.log_softmax(model(input_ids=torch.tensor([row.ids])).logits[0].float(), dim=-1)
        for place in (place for place, taught in enumerate(row.trained) if taught):
            total -= float(logprobs[place - 1, row.ids[place]])
            count += 1
    assert count == report.trained_tokens
    assert report.loss == pytest.approx(total / count, rel=1e-4)


def test_nothing_is_left_to_teach(tiny: Path, tasks: Path, alma: Collection, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no row is left.*longer than 100 tokens"):
        train_sft(sft(tiny, tasks, "optimiser.max_length=100"), tmp_path / "sft", open_collection=lent(alma))
    report = train_sft(sft(tiny, tasks, "optimiser.steps=1"), tmp_path / "sft", open_collection=lent(alma))
    assert (report.searches, report.rows) == (3, 3), "what is asked for now was not searched for again"


@pytest.mark.slow
def test_supervised_training_is_evaluated(
    tiny: Path, tasks: Path, alma: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, object]] = []
    prefix = HfSampler._prefix

    def noted(self: HfSampler, model: Any, prompt: Any) -> Any:
        seen.append((self.weights, self._kept))
        return prefix(self, model, prompt)

    monkeypatch.setattr(HfSampler, "_prefix", noted)
    settings = sft(tiny, tasks, "evaluation.limit=1", "optimiser.steps=1")
    report = train_sft(settings, tmp_path / "sft", open_collection=lent(alma))
    assert [each.label for each in read_evaluations(tmp_path / "sft")] == ["before", "after"]
    assert report.before is not None
    assert report.before.questions == 1
    assert report.after is not None
    # What was computed with the weights of before is not used with those of after.
    first = dict(reversed(seen))
    assert first == {"w0": None, "w1": None}


@pytest.mark.slow
def test_it_learns_what_it_is_paid_for(tiny: Path, tasks: Path, alma: Collection, tmp_path: Path) -> None:
    """Paid for brevity, a model with random weights writes less."""
    settings = rl_settings(
        tiny,
        tasks,
        optimiser__steps=12,
        optimiser__learning_rate=2e-2,
        rollouts__group_size=8,
        checkpoints__every=50,
        sampling__max_reply_tokens=40,
    )
    train_rl(settings, tmp_path / "run", open_collection=lent(alma), scorer=Brevity())
    words = [step.facts.reasoning_tokens for step in read_log(tmp_path / "run") if step.facts is not None]
    assert sum(words[-3:]) < 0.7 * sum(words[:3]), words
