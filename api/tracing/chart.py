"""The size of the context as inline SVG: one bar a turn, and a bar for a single turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from thresher.api.tracing.accounting import GROUPS
from thresher.api.tracing.view import TraceView, TurnView
from thresher.train.markup import Html, join, tag

WIDTH, HEIGHT = 760, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 78, 14, 26
_WIDEST = 46.0
_MINI_WIDTH, _MINI_HEIGHT = 160, 10


def chart(trace: TraceView, label_id: str) -> Html:
    """Live tokens by kind after every turn, with the limits of the budget. A table beside it has the numbers."""
    ceiling = max(_top(trace), 1)
    plot = HEIGHT - _TOP - _BOTTOM

    def y(tokens: float) -> float:
        return round(_TOP + plot * (1 - tokens / ceiling), 1)

    step = (WIDTH - _LEFT - _RIGHT) / max(len(trace.turns), 1)
    bar = min(_WIDEST, step * 0.72)
    every = max(1, -(-len(trace.turns) // 24))
    bars = []
    for number, turn in enumerate(trace.turns):
        x = round(_LEFT + step * number + (step - bar) / 2, 1)
        pieces = [
            tag("rect", x=x, y=y(low + size), width=round(bar, 1), height=round(y(low) - y(low + size), 1), class_=name)
            for name, low, size in _stack(turn)
        ]
        label = tag("text", str(turn.index), x=round(x + bar / 2, 1), y=HEIGHT - 8, class_="tick middle")
        title = tag("title", f"Turn {turn.index}: {turn.account.used:,} tokens")
        bars.append(tag("g", title, pieces, label if number % every == 0 else None))
    levels = [tag("text", f"{level:,}", x=_LEFT - 6, y=y(level) + 4, class_="tick end") for level in (0, ceiling)]
    limits = [
        join(
            tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y(tokens), y2=y(tokens), class_=f"limit {name}"),
            tag("text", f"{name} {tokens:,}", x=WIDTH - _RIGHT + 6, y=y(tokens) + 4, class_="tick"),
        )
        for name, tokens in trace.budget.items()
        if name in ("soft", "hard", "total") and tokens <= ceiling
    ]
    axis = tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y(0), y2=y(0), class_="axis")
    return tag(
        "svg",
        bars,
        axis,
        limits,
        levels,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=label_id,
        class_="chart",
    )


def mini(turn: TurnView, budget: Mapping[str, int]) -> Html:
    """The context after one turn, as a share of the budget; for eyes only, the numbers stand beside it."""
    total = max(budget.get("total", 0), turn.account.used, 1)
    pieces = [
        tag(
            "rect",
            x=round(_MINI_WIDTH * low / total, 1),
            y=0,
            width=round(_MINI_WIDTH * size / total, 1),
            height=_MINI_HEIGHT,
            class_=name,
        )
        for name, low, size in _stack(turn)
    ]
    marks = [
        tag("line", x1=at, x2=at, y1=0, y2=_MINI_HEIGHT, class_=f"limit {name}")
        for name in ("soft", "hard")
        if name in budget
        for at in [round(_MINI_WIDTH * budget[name] / total, 1)]
    ]
    ground = tag("rect", x=0, y=0, width=_MINI_WIDTH, height=_MINI_HEIGHT, class_="ground")
    return tag(
        "svg", ground, pieces, marks, viewBox=f"0 0 {_MINI_WIDTH} {_MINI_HEIGHT}", aria_hidden="true", class_="mini"
    )


def legend() -> Html:
    """What the colours mean."""
    keys: Sequence[Html] = [
        tag("li", tag("span", class_=f"key k{number}", aria_hidden="true"), group)
        for number, group in enumerate(GROUPS)
    ]
    return tag("ul", keys, class_="legend")


def _top(trace: TraceView) -> int:
    """What the chart reaches up to: the whole budget, unless the search stayed far below it."""
    used = max((turn.account.used for turn in trace.turns), default=0)
    limits = [trace.budget[name] for name in ("soft", "hard", "total") if name in trace.budget]
    return next((limit for limit in sorted(limits) if limit >= used * 1.02), max([used, *limits]))


def _stack(turn: TurnView) -> Iterator[tuple[str, int, int]]:
    """(class, from, size) of each kind of tokens, from the bottom."""
    shares = turn.account.by_group
    if not shares:
        yield "k9", 0, turn.account.used
        return
    low = 0
    for number, group in enumerate(GROUPS):
        size = shares.get(group, 0)
        if size:
            yield f"k{number}", low, size
            low += size
