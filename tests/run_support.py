"""Whole training runs small enough for tests: a tiny model folder with random weights, and a set of questions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from thresher.corpus.collection import Collection
from thresher.engine.profiles import load_profile
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.tools import corpus_tools
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.profiles import PROFILES
from thresher.train.rewards.reward import Reward
from thresher.train.rewards.scorer import Scorer
from thresher.train.tasks.task import Task, TaskSet
from thresher.train.trainer.settings import TrainSettings
from thresher.train.trainer.settings_files import checked

TEXTS = {
    "ferry": "The ferry Alma was built in 1931 by Corran & Sons.\n\nIts engine came from the Brask works in Holm.",
    "brask": "The Brask works made marine engines.\n\nThe founder of the Brask works was Edda Brask.",
    "corran": "Corran & Sons closed its yard in 1958.\n\nThe yard stood in Port Ellin.",
    "ellin": "Port Ellin is a harbour on the north coast.\n\nIts lighthouse was lit in 1888.",
}
QUESTIONS = (
    ("Who founded the works that made the engine of the Alma?", "Edda Brask", ("ferry", "brask"), "dev"),
    ("In which harbour stood the yard that built the Alma?", "Port Ellin", ("ferry", "corran"), "dev"),
    ("When did Corran & Sons close its yard?", "1958", ("corran",), "train"),
    ("When was the lighthouse of Port Ellin lit?", "1888", ("ellin",), "train"),
    ("Who was Edda Brask?", "founder", ("brask",), "train"),
)


class Brevity:
    """Pays for few words. A model with random weights never calls a tool, but it can learn to write less."""

    def __init__(self) -> None:
        self._facts = Scorer(PROFILES["context1"])

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        facts = self._facts.facts(task, request, result)
        total = 1 / (1 + facts.reasoning_tokens / 10)
        return facts, Reward(total, {"brevity": total}, {"brevity": total})


class Chance(Brevity):
    """Pays for nothing in particular, so that the searches of a group are never all worth the same."""

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        facts, _ = super().__call__(task, request, result)
        trajectory = result.trajectory
        sampled = [
            i for turn in (trajectory.turns if trajectory else ()) if turn.sampled for i in turn.sampled.output_ids
        ]
        total = sum(sampled) % 997 / 997
        return facts, Reward(total, {"chance": total}, {"chance": total})


def tiny_model(folder: Path, *, seed: int = 0, layers: int = 2) -> Path:
    """A llama of width 32 with a byte-level vocabulary of its own, as a folder that the `hf` policy serves."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = BpeTrainer(
        vocab_size=2_000,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8_192,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[2] *= 4  # ends its replies at very different lengths
    model.save_pretrained(folder)
    return folder


def _texts() -> Iterator[str]:
    yield load_profile("thresher").system_prompt
    yield from TEXTS.values()
    scope: Any = None  # the tools only tell of themselves
    yield from (json.dumps(asdict(tool.spec)) for tool in load_profile("thresher").tools(corpus_tools(scope)))


def small_set(folder: Path) -> Path:
    """An evaluation set of four documents and five questions, split."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = [{"id": name, "title": name, "text": text} for name, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    queries = [
        {"id": f"q{number}", "question": question, "answers": [answer], "gold_ids": list(gold), "split": split}
        for number, (question, answer, gold, split) in enumerate(QUESTIONS)
    ]
    (folder / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries))
    return folder


def rl_settings(model: Path, tasks: Path, **changed: Any) -> TrainSettings:
    """Two steps of two tasks with three rollouts each; `changed` are values by dotted key, dots written `__`."""
    values = {
        "model.path": str(model),
        "tasks.path": str(tasks),
        "search.max_turns": 1,
        "search.max_tokens": 4_096,
        "rollouts.group_size": 3,
        "rollouts.groups_per_step": 2,
        "rollouts.concurrency": 6,
        "sampling.max_reply_tokens": 32,
        "optimiser.steps": 2,
        "optimiser.learning_rate": 1e-3,
        "lora.rank": 4,
        "checkpoints.every": 1,
        "evaluation.limit": 0,
        "seed": 3,
    } | {key.replace("__", "."): value for key, value in changed.items()}
    table: dict[str, Any] = {}
    for key, value in values.items():
        *sections, last = key.split(".")
        inner = table
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return checked(TrainSettings, table)


def lent(collection: Collection) -> Any:
    """Opens nothing: gives a collection that the test holds."""

    def opened(tasks: TaskSet) -> AbstractContextManager[Collection]:
        return nullcontext(collection)

    return opened
