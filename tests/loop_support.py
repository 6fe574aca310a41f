"""Users of a real server whose wishes are known: they ask, look at what comes, and say or do something, or nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from thresher.engine.policies.builtin.weights import Head, Kind, rules_weights, save_weights
from thresher.train.tasks.task import Task

PATIENCE_S = 120


def upside_down(path: Path) -> str:
    """The spec of a policy that searches by the rules and returns the worst passages first."""
    rules = rules_weights()
    save_weights(rules.with_heads({Kind.RANK: Head.of_rules(Kind.RANK, sharpness=-1.0)}), path)
    return f"builtin:{path}"


@dataclass
class Person:
    """One user: what they want, and what they are like: how often they speak, and how little they look far down, and
    whether they say what the answer should have been.

    `names`: the gold's word for each document id.
    """

    http: httpx.Client
    task: Task
    session: str
    dice: random.Random
    names: Mapping[str, str]
    speaks: float = 0.8
    bias: float = 0.3
    corrects: bool = False

    def ask(self, collection: str, max_results: int = 10) -> dict[str, Any]:
        """Search, and do what follows."""
        body = {
            "query": self.task.question,
            "collections": [collection],
            "effort": "low",
            "max_results": max_results,
            "session": self.session,
        }
        response = self.http.post("/v1/search", json=body, timeout=PATIENCE_S)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        if self.dice.random() < self.speaks:
            self.react(found)
        return found

    def react(self, found: dict[str, Any]) -> None:
        """Look at results from the top, most of all at the first; cite what was wanted, or leave."""
        got = False
        for rank, result in enumerate(found["results"], 1):
            wanted = self.names.get(result["document_id"], result["document_id"]) in self.task.gold_ids
            if self.dice.random() < rank**-self.bias and (wanted or self.dice.random() < 0.1):
                self.tell(found["id"], kind="opened", evidence_id=result["id"])
                if wanted:
                    got = True
                    self.tell(found["id"], kind="cited", evidence_id=result["id"])
        if not got:
            self.tell(found["id"], kind="abandoned")
        if not got and self.corrects:
            said = {"rating": "down", "answer": self.task.answers[0]}
            assert self.http.post(f"/v1/searches/{found['id']}/feedback", json=said).is_success
        elif self.dice.random() < 0.2:
            self.http.post(f"/v1/searches/{found['id']}/feedback", json={"rating": "up" if got else "down"})

    def tell(self, search_id: str, **signal: str) -> None:
        """Send a signal."""
        response = self.http.post(f"/v1/searches/{search_id}/signals", json=signal, timeout=PATIENCE_S)
        assert response.is_success, response.text


def shared_out(tasks: list[Task]) -> tuple[list[Task], list[Task]]:
    """Questions of users, and those of a suite, of all that have gold documents: two for three."""
    answerable = [replace(task, split="") for task in tasks if task.gold_ids]
    return [t for n, t in enumerate(answerable) if n % 5 in (0, 2)], [
        t for n, t in enumerate(answerable) if n % 5 not in (0, 2)
    ]
