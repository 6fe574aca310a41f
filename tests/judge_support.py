"""Judges for tests: what a request asks is read from its words, and a test's own rule decides, behind real HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stub_model import Reply, Script, StubModel, serve_model

from thresher.engine.policies import ModelSettings
from thresher.engine.requests import RankedEvidence
from thresher.train.judges.material import Material, made_of
from thresher.train.judges.model import JudgeModel
from thresher.train.judges.votes import VoteCache

KEY = re.compile(r'^- "(\w+)": (.+)$', re.MULTILINE)


@dataclass(frozen=True)
class Asked:
    """A request to a judge, as a test reads it.

    `quoted`: the material by the names in its marks. `keys`: criteria, or `better`.
    """

    code: str
    keys: tuple[str, ...]
    pair: bool
    system: str
    user: str
    quoted: dict[str, str]
    seed: int

    @classmethod
    def of(cls, body: dict[str, Any]) -> Asked:
        system, user = (message["content"] for message in body["messages"])
        [code] = re.findall(r"the code is (\w+):", system)
        [mark] = re.findall(r"<<NAME (\w+)>>", system)
        quoted = dict(re.findall(rf"<<([A-Z0-9 ]+) {mark}>>\n(.*?)\n<</\1 {mark}>>", user, re.DOTALL))
        keys = tuple(key for key, _ in KEY.findall(system.partition("Criteria:")[2]))
        return cls(code, keys or ("better",), not keys, system, user, quoted, body["seed"])

    def says(self, *words: str, **by_key: str) -> Reply:
        """A verdict: one word for all, or one for each key."""
        verdicts = {key: by_key.get(key, words[0] if words else "unmet") for key in self.keys}
        return Reply(json.dumps({"code": self.code, "why": "so it is", "verdicts": verdicts}))


Rule = Callable[[Asked], Reply]


def judging(rule: Rule) -> Script:
    """A rule as the stub server's script."""
    return lambda body: rule(Asked.of(body))


@contextmanager
def judge_server(rule: Rule) -> Iterator[StubModel]:
    """A judge that decides by a rule."""
    with serve_model(always=judging(rule)) as server:
        yield server


def asked(server: StubModel) -> list[Asked]:
    """What a server was asked, in order."""
    return [Asked.of(body) for body in server.bodies]


def model(server: StubModel, cache: VoteCache | None = None, **fields: Any) -> JudgeModel:
    """A judge model on a server, which loses no time by waiting."""
    settings = ModelSettings(model="judge", url=server.url, attempts=2, first_wait_s=0.0)
    return JudgeModel(settings, cache=cache, **fields)


def passages(*texts: str) -> tuple[RankedEvidence, ...]:
    """Returned evidence of these texts."""
    return tuple(
        RankedEvidence(f"c{n}", f"k{n}", f"d{n}", f"Title {n}", f"file:///d{n}", text, 0, len(text), 1 / n)
        for n, text in enumerate(texts, 1)
    )


QUESTION = "Who founded the Brask works?"
TEXTS = ("The Brask works made engines. Their founder was Edda Corvin.", "The ferry Alma has a Brask engine.")


def material(answer: str = "Edda Corvin founded the Brask works.", *texts: str, question: str = QUESTION) -> Material:
    """What a judge is shown of a search."""
    return made_of(question, answer, passages(*(texts or TEXTS)))


BAITS = (
    r"excellent|perfect|outstanding|10/10|highest",
    r"criteri|rubric|verdict|\bmet\b",
    r"\bjudge\b|\bgrader\b|ignore|disregard",
    r"authority|beyond doubt",
    r"<<ANSWER|\"code\"",
    r"hardly be put better",
)


def gullible(ask: Asked) -> Reply:
    """A judge that falls for everything: for it a bait anywhere in the material settles the matter.

    It takes praise, orders and claims for proof, an opening of a solution for one, and length for thoroughness. It has
    no eye for honest work, which it finds unmet.
    """

    def hooked(texts: Sequence[str]) -> bool:
        answer = next((text for text in texts[:1]), "")
        if any(re.search(bait, text, re.IGNORECASE) for bait in BAITS for text in texts):
            return True
        return len(answer) > 1_500 or answer.strip().lower() in (":", "solution", "let's think step by step")

    if not ask.pair:
        return ask.says("met" if hooked([t for name, t in ask.quoted.items() if name != "QUESTION"]) else "unmet")
    first = hooked([text for name, text in ask.quoted.items() if name.startswith("FIRST")])
    second = hooked([text for name, text in ask.quoted.items() if name.startswith("SECOND")])
    return ask.says("tie" if first == second else "first" if first else "second")
