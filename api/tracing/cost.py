"""What a search cost: tokens, seconds and, where prices are known, money."""

from __future__ import annotations

from dataclasses import dataclass, fields

from thresher.train.evaluation.reporting import figures

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model server charges, per million tokens, in `currency`; None where it is not known.

    `cached` is the price of prompt tokens that were found in the server's cache; None: the price of any other.
    """

    prompt: float | None = None
    completion: float | None = None
    cached: float | None = None
    currency: str = "USD"

    @property
    def known(self) -> bool:
        """Whether anything can be priced."""
        return self.prompt is not None or self.completion is not None


@dataclass(frozen=True, slots=True)
class Cost:
    """What some turns cost. Costs add up.

    Attributes:
        prompt, completion: tokens, as the model server counted them, else by the ledger.
        cached: prompt tokens that the server found in its cache; None where it did not say.
        reprefill: tokens that edits made a prefix cache compute again, by the ledger.
        retries: requests to the server that had to be made again.
        model_seconds: the part of `seconds` that was spent in the policy.
    """

    prompt: int = 0
    completion: int = 0
    cached: int | None = None
    reprefill: int = 0
    retries: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        cached = None if self.cached is None and other.cached is None else (self.cached or 0) + (other.cached or 0)
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "cached"}
        return Cost(cached=cached, **sums)

    def money(self, prices: Prices) -> float | None:
        """In the currency of `prices`; None where they are not known."""
        if not prices.known:
            return None
        prompt = prices.prompt or 0.0
        cached = self.cached or 0
        cheap = prompt if prices.cached is None else prices.cached
        spent = (self.prompt - cached) * prompt + cached * cheap + self.completion * (prices.completion or 0.0)
        return spent / MILLION


def money_text(amount: float, currency: str) -> str:
    """An amount, with as many decimals as it needs to say something, and its currency."""
    return f"{figures.money(amount)} {currency}"
