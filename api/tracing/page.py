"""A search as one HTML file: nothing is loaded from anywhere, and no text of a document can become markup."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thresher.api.tracing.accounting import GROUPS
from thresher.api.tracing.chart import chart, legend, mini
from thresher.api.tracing.cost import Cost, Prices, money_text
from thresher.api.tracing.passages import fates, passage_card, sides
from thresher.api.tracing.style import SCRIPT, STYLE
from thresher.api.tracing.view import AnswerView, CallView, TraceView, TurnView
from thresher.api.tracing.words import arguments_text, calls_text, cost_text, ending_text, outcome_text, receipt_text
from thresher.train.markup import Html, join, raw, tag, text

SNIPPET = 160


def trace_page(trace: TraceView, prices: Prices | None = None) -> str:
    """The whole page. Its policy (CSP) allows nothing but its own style and script, by their hashes."""
    prices = prices or Prices()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(STYLE)}'",
            f"script-src '{_hash(SCRIPT)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"Trace: {_short(trace.question, 80)}"),
        raw("style", STYLE),
    )
    parts = list(_sections(trace, prices))
    body = tag(
        "body",
        tag("a", "Skip to the turns", href="#turns", class_="skip"),
        _header(trace, prices),
        tag("nav", tag("ul", [tag("li", tag("a", part.title, href=f"#{part.id}")) for part in parts])),
        tag("main", [part.html for part in parts]),
        tag("footer", f"Trace {trace.id}. This page holds everything it shows and loads nothing."),
        raw("script", SCRIPT),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


@dataclass(frozen=True, slots=True)
class _Part:
    id: str
    title: str
    html: Html


def _sections(trace: TraceView, prices: Prices, prefix: str = "") -> Iterator[_Part]:
    """The parts of a search; `prefix` keeps the ids of a sub-agent's apart."""
    if trace.answer is not None:
        yield _part(f"{prefix}answer", "Answer", _answer(trace.answer, trace, prefix))
    if trace.turns:
        yield _part(f"{prefix}context", "Context", _context(trace, prefix))
        yield _part(f"{prefix}turns", "Turns", _turns(trace, prices, prefix))
    if trace.passages:
        yield _part(f"{prefix}passages", "Kept and pruned", sides(trace, prefix))
    if trace.agents:
        yield _part(f"{prefix}agents", "Agents", _agents(trace, prices, prefix))
    yield _part(f"{prefix}cost", "Cost", _cost(trace, prices))


def _part(name: str, title: str, content: Html) -> _Part:
    heading = f"{name}-title"
    titled = tag(_heading(name), title, id=heading, class_="title")
    return _Part(name, title, tag("section", titled, content, id=name, aria_labelledby=heading))


def _heading(name: str, *, below: int = 0) -> str:
    """The element of a heading: a part of an agent's stands two levels below one of the search; h6 is the lowest."""
    return f"h{min(6, 2 + 2 * name.count('-') + below)}"


def _header(trace: TraceView, prices: Prices) -> Html:
    counts = {fate: len(trace.of(fate)) for fate in ("returned", "kept", "pruned")}
    cost = trace.total_cost
    peak = max((turn.account.used for each in trace.all() for turn in each.turns), default=0)
    turns = sum(len(each.turns) for each in trace.all())
    agents = len(list(trace.all())) - 1
    colour = "bad" if trace.error else "good" if trace.sufficient else "warn" if trace.sufficient is False else None
    tiles = [
        _tile("ended", tag("span", trace.stop_reason.replace("_", " "), class_=colour), _VERDICTS[trace.sufficient]),
        _tile("passages returned", f"{counts['returned']:,}", f"{counts['kept']:,} kept, {counts['pruned']:,} pruned"),
        _tile("turns", f"{turns:,}", _of_agents(agents)),
        _tile("peak context", f"{peak:,}", f"of {trace.budget.get('total', 0):,} tokens"),
        _tile("prompt tokens", f"{cost.prompt:,}", f"{cost.reprefill:,} prefilled again" if cost.reprefill else None),
        _tile("tokens written", f"{cost.completion:,}"),
        _tile(
            "seconds" if not trace.agents else "seconds, of all agents",
            f"{cost.seconds:,.2f}",
            f"{cost.model_seconds:,.2f} in the policy",
        ),
    ]
    money = cost.money(prices)
    if money is not None:
        tiles.append(_tile("cost", money_text(money, prices.currency), "at the prices of the settings"))
    return tag(
        "header",
        tag("p", "Search trace", class_="kicker"),
        tag("h1", trace.question, dir="auto"),
        tag("p", f"{trace.id} · {trace.started_at} · policy {trace.policy} · profile {trace.profile}", class_="meta"),
        tag("dl", tiles, class_="tiles"),
        tag("p", trace.justification, dir="auto") if trace.justification else None,
        tag("p", f"Error: {trace.error}", class_="bad", dir="auto") if trace.error else None,
    )


def _of_agents(count: int) -> str | None:
    return f"of all, with {count:,} agent{'' if count == 1 else 's'}" if count else None


_VERDICTS = {None: None, True: "sufficient", False: "not sufficient"}


def _tile(name: str, value: str | Html, note: str | None = None) -> Html:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else None))


def _answer(answer: AnswerView, trace: TraceView, prefix: str) -> Html:
    if not answer.text:
        return tag("p", f"No answer was given: {answer.withheld_reason or 'it was withheld'}.", class_="card warn")
    by_id = {passage.evidence.id: passage for passage in trace.passages}
    cites = []
    for cited in answer.citations:
        source = by_id.get(cited.evidence_id)
        name = cited.evidence_id if source is None else source.evidence.title or source.evidence.document_id
        where = tag("a", name, href=f"#{prefix}p-{trace.passages.index(source)}") if source is not None else text(name)
        checked = (
            tag("span", "checked: it stands there word for word", class_="good")
            if cited.quote is not None
            else tag("span", "not found in the passage", class_="bad")
        )
        cites.append(
            tag("li", tag("q", tag("mark", cited.text), dir="auto"), " ", tag("small", "— ", where, ", ", checked))
        )
    shown = list(dict.fromkeys(cited.evidence_id for cited in answer.citations if cited.evidence_id in by_id))
    return tag(
        "div",
        tag("p", answer.text, class_="answer card", dir="auto"),
        tag(_heading(prefix, below=1), "Citations", class_="sub"),
        tag("ol", cites, class_="cites"),
        tag(_heading(prefix, below=1), "Their sources", class_="sub") if shown else None,
        [passage_card(by_id[evidence_id], f"{prefix}s-{n}", opened=True) for n, evidence_id in enumerate(shown)],
    )


def _context(trace: TraceView, prefix: str) -> Html:
    label = f"{prefix}chart-label"
    exact = all(turn.account.exact for turn in trace.turns)
    used = [turn.account.used for turn in trace.turns]
    caption = (
        f"Tokens in the context after each of {len(used)} turns, by what they are: {used[0]:,} after the first, "
        f"{max(used):,} at most, {used[-1]:,} after the last."
    )
    rows = [
        tag(
            "tr",
            tag("th", f"{turn.index}", scope="row"),
            [tag("td", f"{turn.account.by_group.get(group, 0):,}") for group in GROUPS],
            tag("td", f"{turn.account.used:,}"),
        )
        for turn in trace.turns
    ]
    head = tag("tr", [tag("th", name, scope="col") for name in ("turn", *GROUPS, "together")])
    table = tag("table", tag("thead", head), tag("tbody", rows))
    return tag(
        "div",
        tag("p", caption, id=label, class_="hint"),
        legend(),
        tag("div", chart(trace, label), class_="card scroll", tabindex=0),
        None
        if exact
        else tag("p", "The shares are estimates: the model counts with a tokenizer of its own.", class_="hint"),
        tag(
            "details",
            tag("summary", "The same as a table"),
            tag("div", table, class_="scroll", tabindex=0),
            class_="card",
        ),
    )


def _turns(trace: TraceView, prices: Prices, prefix: str) -> Html:
    controls = tag(
        "div",
        tag("button", "Open all", type="button", data_open="yes", hidden=True),
        tag("button", "Close all", type="button", data_open="no", hidden=True),
        tag("span", tag("kbd", "j"), " and ", tag("kbd", "k"), " go from turn to turn, Enter opens one", class_="hint"),
        class_="bar",
    )
    positions = {passage.evidence.id: n for n, passage in enumerate(trace.passages)}
    turns = [_turn(turn, trace, prices, positions, prefix) for turn in trace.turns]
    return tag("div", controls if not prefix else None, turns)


def _turn(turn: TurnView, trace: TraceView, prices: Prices, positions: dict[str, int], prefix: str) -> Html:
    summary = tag(
        "summary",
        tag(_heading(prefix, below=1), f"Turn {turn.index}", class_="name"),
        tag("span", calls_text(turn.calls), class_="what", dir="auto"),
        mini(turn, trace.budget),
        tag("span", f"{turn.account.used:,} tokens · {turn.account.cost.seconds:.2f} s", class_="size"),
    )
    return tag(
        "details",
        summary,
        tag("div", turn.reasoning, class_="said", dir="auto") if turn.reasoning else None,
        [tag("p", f"Recovered: {fault}", class_="fault", dir="auto") for fault in turn.faults],
        [_call(call, positions, prefix) for call in turn.calls],
        [tag("p", f"By the engine: {receipt_text(edit)}", class_="receipt") for edit in turn.engine_edits],
        tag("p", cost_text(turn.account.cost, prices), class_="rest"),
        id=f"{prefix}turn-{turn.index}",
        class_="card turn",
        open=not prefix,
    )


_COLOURS = {"failed": "bad", "rejected": "bad", "empty": "warn"}


def _call(call: CallView, positions: dict[str, int], prefix: str) -> Html:
    arguments = arguments_text(call.arguments)
    line = tag(
        "p",
        tag("span", call.name, class_="tool"),
        " ",
        tag("span", call.query, class_="query", dir="auto") if call.query is not None else None,
        " ",
        tag("span", arguments, class_="rest", dir="auto") if arguments else None,
    )
    colour = _COLOURS.get(call.outcome)
    said = (
        tag("p", receipt_text(call.receipt), class_="receipt")
        if call.receipt
        else tag("p", outcome_text(call), class_=f"rest {colour or ''}".strip(), dir="auto")
    )
    hits = [
        tag(
            "li",
            tag("span", fates(passage), class_=f"fate {passage.fate}"),
            tag("a", passage.evidence.id, href=f"#{prefix}p-{positions[passage.evidence.id]}"),
            tag(
                "span",
                tag("b", passage.evidence.title or passage.evidence.document_id),
                ": ",
                _short(passage.evidence.text, SNIPPET),
                class_="snippet",
                dir="auto",
            ),
        )
        for passage in call.shown
    ]
    read = [tag("p", f"{outcome} {address}", class_="rest", dir="auto") for outcome, address in call.fetched]
    return tag("div", line, said, *read, tag("ul", hits, class_="hits") if hits else None, class_="call")


def _agents(trace: TraceView, prices: Prices, prefix: str) -> Html:
    return join(
        [
            tag(
                "div",
                tag(_heading(prefix, below=1), f"{agent.name}: ", tag("bdi", agent.question), class_="name"),
                tag("p", ending_text(agent), class_="hint"),
                tag("p", agent.justification, dir="auto") if agent.justification else None,
                tag("p", f"Error: {agent.error}", class_="bad", dir="auto") if agent.error else None,
                [part.html for part in _sections(agent, prices, f"{prefix}a{number}-")],
                class_="agent",
            )
            for number, agent in enumerate(trace.agents)
        ]
    )


def _cost(trace: TraceView, prices: Prices) -> Html:
    rows = [(f"turn {turn.index}", turn.account.cost) for turn in trace.turns]
    rows += [(agent.name, agent.total_cost) for agent in trace.agents]
    names = ["", "prompt", "in the server's cache", "written", "prefilled again", "retries", "seconds", "in the policy"]
    if prices.known:
        names.append(prices.currency)
    head = tag("tr", [tag("th", name, scope="col") if name else tag("td") for name in names])
    body = [_cost_row(name, cost, prices) for name, cost in rows]
    foot = _cost_row("together", trace.total_cost, prices)
    caption = "Tokens, and seconds. Seconds of agents that ran at once are added up."
    return tag(
        "div",
        tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), tag("tfoot", foot)),
        class_="scroll",
        tabindex=0,
    )


def _cost_row(name: str, cost: Cost, prices: Prices) -> Html:
    money = cost.money(prices)
    cells: Sequence[str] = [
        f"{cost.prompt:,}",
        "–" if cost.cached is None else f"{cost.cached:,}",
        f"{cost.completion:,}",
        f"{cost.reprefill:,}",
        f"{cost.retries:,}",
        f"{cost.seconds:.2f}",
        f"{cost.model_seconds:.2f}",
        *([] if money is None else [money_text(money, "").strip()]),
    ]
    return tag("tr", tag("th", name, scope="row"), [tag("td", cell) for cell in cells])


def _short(words: str, most: int) -> str:
    line = " ".join(words.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
