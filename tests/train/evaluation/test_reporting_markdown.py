"""A report in Markdown, read back by a parser of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from reporting_support import BASELINE, evaluation, hostile, many, one_set, sample, summary

from thresher.train.evaluation.reporting.markdown import escaped, markdown

OURS = {"strong_open", "strong_close", "text", "text_special", "code_inline"}
"""Inline markup that a report has."""
BLOCKS = {"heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "bullet_list", "list_item"}


def parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)


def shape(tokens: list[Token]) -> list[str]:
    return [token.type for token in tokens]


@cache
def harmless() -> list[str]:
    return shape(parsed(markdown(hostile("harmless"))))


def tables(data: dict[str, Any]) -> dict[tuple[str, str], list[list[str]]]:
    """Cells of each table by the headings above it; what is strong stands between `**`."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    above = {"h2": "", "h3": ""}
    heading, rows = "", []
    for token in parsed(markdown(data)):
        if token.type == "heading_open":
            heading = token.tag
            above = above if heading == "h3" else {"h2": "", "h3": ""}
        elif token.type == "inline" and heading:
            above[heading] = shown(token)
            heading = ""
        elif token.type == "table_open":
            rows = found.setdefault((above["h2"], above["h3"]), [])
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level >= 4:
            rows[-1].append(shown(token))
    return found


def shown(token: Token) -> str:
    return "".join("**" if part.type.startswith("strong") else part.content for part in token.children or ())


def test_results_of_a_set() -> None:
    head, one, rules = tables(sample())["musique", "Results"]
    assert head == [
        "system",
        *("recall@5", "recall@10", "searches", "prompt tokens", "peak context"),
        *("seconds (median)", "× one search", "failed"),
    ]
    assert one == [BASELINE, "54.2", "63.9", "1.0", "0", "0", "0.016", "× 1.00", "0"]
    assert rules == ["rules", "69.3", "77.6", "14.4", "31,000", "12,921", "0.251", "× 15.7", "1"]


def test_differences_that_exclude_zero_are_strong() -> None:
    head, rules = tables(sample())["musique", "Differences to one-search"]
    assert head == ["system", "recall@5", "recall@10", "prompt tokens"]
    assert rules == [
        "rules",
        "+2.0 (-0.3 to +4.7)",
        "**+13.6** (+11.0 to +16.3)",
        "**+31,000** (+30,000 to +32,000)",
    ]
    assert "Of prompt tokens less is better." in markdown(sample())
    assert "Questions: 4 for recall@5, recall@10; 7 for prompt tokens." in markdown(sample())


def test_abstention_counts_its_questions() -> None:
    head, rules = tables(sample())["musique", "Abstention"]
    assert head[1:] == ["precision", "recall", "F1", "insufficient, no gold", "insufficient, gold"]
    assert rules == ["rules", "80.0", "66.7", "72.7", "2 of 3", "1 of 4"]


def test_hops_chains_spans_and_standings() -> None:
    found = tables(sample())
    assert found["musique", "Recall by hop"] == [
        ["system", "hop 1", "hop 2"],
        [BASELINE, "90.0", "40.0"],
        ["rules", "95.0", "60.0"],
    ]
    assert found["musique", "Chains"][2] == ["rules", "95.0", "55.0"]
    assert found["chunk_eval", "Excerpts"][2] == ["rules", "80.0", "1.0", "0.9"]
    assert found["chunk_eval", "Results"][0][:2] == ["system", "span recall"]
    assert found["musique", "Questions won and lost"][1] == ["rules", "2", "1", "1"]
    assert found["Overall", "Differences to one-search"][1] == ["rules", "**+13.6** (+11.0 to +16.3)"]


def test_what_has_no_values_is_left_out() -> None:
    titles = {title for _, title in tables(sample())}
    assert not titles & {"Cost", "Leaks", "Sub-agents", "Tokens and time"}
    assert ("chunk_eval", "Abstention") not in tables(sample())
    assert ("musique", "Excerpts") not in tables(sample())


def test_cost_and_leaks_where_there_are() -> None:
    data = sample()
    rules = data["sets"][0]["systems"]["rules"]
    rules["summary"]["cost"] = 0.0031
    rules["leaks"] = {
        "web_pages": 12,
        "leaky_pages": 2,
        "questions": 1,
        "reasons": {"same_words": 2},
        "without": summary(recall_10=0.7),
    }
    data["currency"] = "EUR"
    found = tables(data)
    assert found["musique", "Cost"] == [["system", "cost (EUR)"], [BASELINE, "–"], ["rules", "0.0031"]]
    assert found["musique", "Leaks"][1] == ["rules", "12", "2", "1", "77.6", "70.0", "same words 2"]


def test_failures_stand_on_one_line_each() -> None:
    [_, failure] = tables(sample())["Failures", ""]
    assert failure == ["musique", "lost a little", "rules", "ToolError: it | broke here"]


def test_many_failures_are_cut_and_counted() -> None:
    data = sample()
    data["sets"][0]["failures"] = [{"id": f"q{n}", "system": "rules", "error": "x" * 1000} for n in range(60)]
    rows = tables(data)["Failures", ""]
    assert len(rows) == 51
    assert rows[1][3] == "x" * 300 + "…"
    assert "And 10 more." in markdown(data)


def test_one_set_has_no_overall() -> None:
    assert not [heading for heading, _ in tables(many(1)) if heading == "Overall"]


def test_ten_systems_are_ten_rows() -> None:
    assert [row[0] for row in tables(many(10))["musique", "Results"]] == [
        "system",
        BASELINE,
        *(f"system-{n}" for n in range(10)),
    ]


@pytest.mark.parametrize(
    "data",
    [
        evaluation([]),
        evaluation([one_set("nothing", {BASELINE: summary(stop_reasons={})}, questions=0, with_gold=0)]),
        {"object": "evaluation"},
    ],
)
def test_nothing_measured_is_said_without_tables_of_results(data: dict[str, Any]) -> None:
    assert not [title for _, title in tables(data) if title == "Results"]
    assert "How to read this" in markdown(data)


def test_sets_without_gold() -> None:
    figures = summary(abstention_recall=0.5, abstention_precision=1.0, abstention_f1=0.667, abstained_without_gold=2)
    one = one_set("open", {BASELINE: summary(searches=1.0), "rules": figures}, with_gold=0, without_gold=4)
    found = tables(evaluation([one]))
    assert found["open", "Abstention"][1] == ["rules", "100.0", "50.0", "66.7", "2 of 4", "0 of 0"]
    assert found["open", "Results"][0] == ["system", "searches"]


def test_remarks_stand_with_their_set() -> None:
    data = sample()
    data["sets"][1] |= {"warnings": ["a|b"], "excerpts": 12, "excerpts_not_located": 3}
    text = markdown(data).split("## chunk_eval")[1]
    assert "Warning: a\\|b." in text
    assert "3 of 12 excerpts" in text


MARKUP = st.text(
    st.sampled_from("ab _*`[]()<>|\\~&#!:/@.-+=1\n\r\t$\"'{}\x00\u2028\u202e\ud800é"), min_size=1, max_size=30
)


@settings(max_examples=100, deadline=None)
@given(MARKUP)
def test_text_is_shown_as_it_is(text: str) -> None:
    [_, inline, _] = parsed(f"x {escaped(text)} x")
    assert {token.type for token in inline.children or ()} <= {"text", "text_special"}
    expected = " ".join("".join(" " if ord(c) < 32 or c in "\u2028\u202e\ud800" else c for c in text).split())
    assert " ".join(shown(inline).split()) == f"x {expected} x".replace("  ", " ")


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(MARKUP, st.sampled_from(["<img src=x onerror=alert(1)>", "[a](javascript:b)", "|||", "```", "# x", "\\"]))
)
def test_no_text_of_the_data_becomes_markup(text: str) -> None:
    tokens = parsed(markdown(hostile(text)))
    assert {token.type.removesuffix("_open").removesuffix("_close") for token in tokens} <= BLOCKS | {"inline"}
    for token in tokens:
        assert {part.type for part in token.children or ()} <= OURS
    if text.strip() not in ("", BASELINE, "finished"):
        assert shape(tokens) == harmless()
