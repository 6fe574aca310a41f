"""What judging came to, counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from thresher.train.judges.votes import Vote


@dataclass(slots=True)
class JudgeStats:
    """Counts since a judge was made.

    Attributes:
        judged: searches that were given a score; `unscored`: searches on which nothing reached a majority;
            `barred`: searches that break rules, which are never judged.
        votes: that were asked for; `cached`: of these, known from before; `no_votes`: of these, those that came to no
            verdict; `refused`: of those, by the server.
        replies, unparsable: of the model in this process, the second try of a vote included.
        decisions: criteria and orders of pairs that were voted on; `undecided`: without a majority; `disagreed`: with
            votes that differ.
        unasked: criteria that an answer without content left unmet, and pairs that it lost, without a question to the
            judge.
        comparisons: pairs; `inconsistent`: whose two orders contradict each other; `first`, `second`: decisions for the
            one that was shown first, or second.
        stripped: pieces of the material that were taken out since they speak to a judge.
        prompt_tokens, completion_tokens: in this process.
    """

    judged: int = 0
    unscored: int = 0
    barred: int = 0
    votes: int = 0
    cached: int = 0
    no_votes: int = 0
    refused: int = 0
    replies: int = 0
    unparsable: int = 0
    decisions: int = 0
    undecided: int = 0
    disagreed: int = 0
    unasked: int = 0
    comparisons: int = 0
    inconsistent: int = 0
    first: int = 0
    second: int = 0
    stripped: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def count(self, vote: Vote, *, cached: bool) -> None:
        """A vote came in."""
        self.votes += 1
        self.no_votes += vote.verdicts is None
        self.refused += vote.refused
        if cached:
            self.cached += 1
            return
        self.replies += vote.replies
        self.unparsable += vote.unparsable
        self.prompt_tokens += vote.prompt_tokens
        self.completion_tokens += vote.completion_tokens

    def decided(self, votes: Sequence[str | None], word: str | None) -> None:
        """Votes on one thing were counted, and `word` is what the majority says."""
        self.decisions += 1
        self.undecided += word is None
        self.disagreed += len({vote for vote in votes if vote is not None}) > 1

    @property
    def disagreement(self) -> float | None:
        """Share of the decisions on which votes differ; None without any."""
        return self.disagreed / self.decisions if self.decisions else None

    @property
    def unparsable_rate(self) -> float | None:
        """Share of the replies that could not be read as a verdict; None without any."""
        return self.unparsable / self.replies if self.replies else None

    @property
    def position_bias(self) -> float | None:
        """Share of the pairs whose two orders contradict each other; None without any."""
        return self.inconsistent / self.comparisons if self.comparisons else None

    def figures(self) -> dict[str, float]:
        """For a step's log: all counts, and the rates that there are, under `judge/`."""
        rates = {
            "disagreement": self.disagreement,
            "unparsable_rate": self.unparsable_rate,
            "position_bias": self.position_bias,
        }
        known = {name: float(count) for name, count in self.as_dict().items()}
        known |= {name: rate for name, rate in rates.items() if rate is not None}
        return {f"judge/{name}": value for name, value in known.items()}

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
