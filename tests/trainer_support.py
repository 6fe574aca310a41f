"""Tiny models with random weights, and groups whose tokens they have sampled, for tests of the trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.segments.segment import Segment
from thresher.train.tasks.task import Task
from thresher.train.trainer.config import SegmentGRPOConfig
from thresher.train.trainer.grpo import SegmentGRPOTrainer

VOCABULARY = 64
TASK = Task("t", "who?", ("someone",))

LOOSE = {"mean": 9.0, "max": 99.0, "tolerance": 9.0, "share": 1.0, "kl": 99.0}
"""A conformance bound that lets everything pass, for tests in which sampler and trainer are meant to differ."""

Turns = Sequence[tuple[int, int]]
"""(tokens of the prompt that are new, tokens that are sampled) of each turn of a segment."""


def llama(seed: int = 0, **settings: Any) -> LlamaForCausalLM:
    """Two layers of width 32, weights large enough that its distributions are far from even."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        **settings,
    )
    return LlamaForCausalLM(config).eval()


def gpt_oss(seed: int = 0) -> GptOssForCausalLM:
    """Two layers of gpt-oss: sinks, one sliding window, four experts."""
    torch.manual_seed(seed)
    config = GptOssConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=8,
        max_position_embeddings=512,
        initializer_range=0.2,
        pad_token_id=0,
        eos_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    return GptOssForCausalLM(config).eval()


def tokenizer() -> PreTrainedTokenizerFast:
    """One word for each id. Training reads no text: it is there for checkpoints."""
    words = {"<pad>": 0, "<eos>": 1} | {f"w{number}": number for number in range(2, VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), pad_token="<pad>", eos_token="<eos>"
    )


def plain_logprobs(model: Any, ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """Logprob of each token given those before it, by the model's own logits; 0 for the first. Differentiable."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits, dim=-1)[:-1]
    picked = logprobs.gather(1, torch.tensor(ids)[1:, None])[:, 0]
    return torch.cat([picked.new_zeros(1), picked])


def sampled(
    model: Any, turns: Turns, seed: int = 0, *, version: str = "w0", temperature: float = 1.0, agent: str = ""
) -> Segment:
    """A segment whose "sampled" tokens are random, with the logprobs that the model gives them."""
    generator = torch.Generator().manual_seed(seed)
    marks = [mark for prompt, output in turns for mark in (False,) * prompt + (True,) * output]
    ids = torch.randint(2, VOCABULARY, (len(marks),), generator=generator).tolist()
    training = model.training
    model.eval()
    with torch.no_grad():
        values = plain_logprobs(model, ids, temperature).tolist()
    model.train(training)
    return Segment(
        ids=tuple(ids),
        sampled=tuple(marks),
        logprobs=tuple(value if mark else 0.0 for value, mark in zip(values, marks, strict=True)),
        turns=tuple(range(len(turns))),
        versions=(version,) * len(turns),
        agent=agent,
    )


def split(segment: Segment, at: int) -> tuple[Segment, Segment]:
    """Two segments that train the same tokens in the same contexts: the first up to `at`, the second what follows."""
    assert segment.logprobs is not None
    turns = sum(
        mark and (index == 0 or not segment.sampled[index - 1]) for index, mark in enumerate(segment.sampled[:at])
    )
    first = replace(
        segment,
        ids=segment.ids[:at],
        sampled=segment.sampled[:at],
        logprobs=segment.logprobs[:at],
        turns=segment.turns[:turns],
        versions=segment.versions[:turns],
    )
    second = replace(
        segment,
        sampled=(False,) * at + segment.sampled[at:],
        logprobs=(0.0,) * at + segment.logprobs[at:],
        turns=segment.turns[turns:],
        versions=segment.versions[turns:],
    )
    return first, second


def group_of(number: int, rewards: Sequence[float | None]) -> Group:
    """A group with these rewards; None is a rollout that a fault took away."""
    rollouts = tuple(
        Rollout(TASK, number, sample, None, None, None if total is None else Reward(total, {"r": total}, {"r": total}))
        for sample, total in enumerate(rewards)
    )
    return Group(number, TASK, rollouts)


@dataclass
class Fixed:
    """A source that hands over given groups, and knows each rollout's segments."""

    groups: list[Group]
    segments: dict[tuple[int, int], list[Segment]]
    taken: int = 0
    closed: bool = False

    def next_groups(self, count: int) -> list[Group]:
        """The next ones, fewer at the end."""
        taken = self.groups[self.taken : self.taken + count]
        self.taken += len(taken)
        return taken

    def segments_of(self, rollout: Rollout) -> list[Segment]:
        """Those of a rollout."""
        return self.segments[rollout.group, rollout.sample]

    def state_dict(self) -> dict[str, Any]:
        """How far it is."""
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.taken = state["taken"]

    def close(self) -> None:
        """Nothing runs."""
        self.closed = True


@dataclass
class Sampling:
    """A source that makes groups as they are asked for, sampled by the model as it then is. Deterministic."""

    model: Callable[[], Any]
    version: int = 0
    made: int = 0
    rollouts: int = 3
    constant: bool = False
    segments: dict[tuple[int, int], list[Segment]] = field(default_factory=dict)

    def next_groups(self, count: int) -> list[Group]:
        """New ones: rollout i of a group has i + 1 segments."""
        groups = []
        for _ in range(count):
            number = self.made
            self.made += 1
            for sample in range(self.rollouts):
                self.segments[number, sample] = [
                    sampled(
                        self.model(),
                        [(4 + sample, 3), (2, 2 + number % 3)],
                        seed=1000 * number + 10 * sample + part,
                        version=f"w{self.version}",
                    )
                    for part in range(sample + 1)
                ]
            rewards = [0.5 if self.constant else float((number + sample) % 3) for sample in range(self.rollouts)]
            groups.append(group_of(number, rewards))
        return groups

    def segments_of(self, rollout: Rollout) -> list[Segment]:
        """Those of a rollout."""
        return self.segments[rollout.group, rollout.sample]

    def state_dict(self) -> dict[str, Any]:
        """How many it has made, and with which weights the next are sampled."""
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.made = state["made"]

    def publish(self, model: Any, version: int) -> None:
        """As a weight sync: it samples from the trained model itself."""
        self.version = version

    def close(self) -> None:
        """Nothing runs."""


def config(folder: Path, **settings: Any) -> SegmentGRPOConfig:
    """Settings for a few steps on the CPU, without reports or files."""
    chosen: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 1,
        "groups_per_step": 1,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "max_tokens_per_microbatch": 64,
        **settings,
    }
    return SegmentGRPOConfig(**chosen)


def trainer_of(model: Any, folder: Path, source: Any = None, **settings: Any) -> SegmentGRPOTrainer:
    """A trainer of a model on a source; `settings` are those of `config`, or of the trainer."""
    names = ("peft_config", "on_step", "callbacks", "sync")
    more = {name: settings.pop(name) for name in names if name in settings}
    source = source or Sampling(lambda: model)
    more.setdefault("sync", source if hasattr(source, "publish") else None)
    return SegmentGRPOTrainer(
        model,
        config(folder, **settings),
        source,
        segments_of=source.segments_of,
        processing_class=tokenizer(),
        **more,
    )
