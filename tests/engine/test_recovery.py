"""Calls as models write them: what is read, what is repaired, and what is left alone because it has two meanings."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.engine.policies.model.reading.lenient import read_value
from thresher.engine.policies.model.reading.mentions import named_ids
from thresher.engine.policies.model.reading.recovery import Written, repair_arguments, repair_calls, repair_name
from thresher.engine.policies.model.reading.text_calls import spot_calls
from thresher.engine.policies.model.reading.thoughts import split_thoughts, with_thoughts
from thresher.engine.policy import ToolSpec
from thresher.engine.tools.edits import PRUNE_CHUNKS, RESTORE_CHUNKS
from thresher.engine.tools.finish import FINISH

SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "filter": {"anyOf": [{"type": "object"}, {"type": "null"}], "default": None},
    },
    "required": ["query"],
}
GREP: dict[str, Any] = {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}
TOOLS = (
    ToolSpec("search_corpus", "Search.", SEARCH),
    ToolSpec("grep_corpus", "Grep.", GREP),
    FINISH.spec,
    PRUNE_CHUNKS.spec,
    RESTORE_CHUNKS.spec,
)
WEB = ToolSpec("search_web", "Search the web.", SEARCH)
FERRY = '{"query": "ferry"}'
ONE = [("search_corpus", {"query": "ferry"})]
TWO = [*ONE, ("grep_corpus", {"pattern": "19\\d\\d"})]


def read(calls: tuple[Written, ...]) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        ('<tool_call>\n{"name": "search_corpus", "arguments": {"query": "ferry"}}\n</tool_call>', ONE, ""),
        ('First this.<tool_call>{"name": "search_corpus", "arguments": {"query": "ferry"}}', ONE, "First this."),
        (
            '<tool_call>{"name": "search_corpus", "arguments": {"query": "ferry"}}</tool_call>\n'
            '<tool_call>{"name": "grep_corpus", "arguments": {"pattern": "19\\\\d\\\\d"}}</tool_call>',
            TWO,
            "",
        ),
        (
            "<tool_call>\n<function=search_corpus>\n<parameter=query>\nferry\n</parameter>\n<parameter=filter>\n"
            '{"kind": "page"}\n</parameter>\n</function>\n</tool_call>',
            [("search_corpus", {"query": "ferry", "filter": {"kind": "page"}})],
            "",
        ),
        (
            "<tool_call>search_corpus\n<arg_key>query</arg_key>\n<arg_value>ferry</arg_value>\n</tool_call>",
            ONE,
            "",
        ),
        ('<function=search_corpus>{"query": "ferry"}</function>', ONE, ""),
        ('<|python_tag|>{"name": "search_corpus", "parameters": {"query": "ferry"}}<|eom_id|>', ONE, ""),
        (
            '{"name": "search_corpus", "parameters": {"query": "ferry"}}; '
            '{"name": "grep_corpus", "parameters": {"pattern": "19\\\\d\\\\d"}}',
            TWO,
            "",
        ),
        ('[search_corpus(query="ferry"), grep_corpus(pattern=r"19\\d\\d")]', TWO, ""),
        ('search_corpus("ferry")', ONE, ""),
        ('[TOOL_CALLS][{"name": "search_corpus", "arguments": {"query": "ferry"}}]', ONE, ""),
        ('[TOOL_CALLS]search_corpus[ARGS]{"query": "ferry"}', ONE, ""),
        ('[TOOL_CALLS]search_corpus{"query": "ferry"}[TOOL_CALLS]grep_corpus{"pattern": "19\\\\d\\\\d"}', TWO, ""),
        ('Look:\n```json\n{"name": "search_corpus", "arguments": {"query": "ferry"}}\n```\nso.', ONE, "Look:\n\nso."),
        ('[{"name": "search_corpus", "parameters": {"query": "ferry"}}]', ONE, ""),
        ('{"tool": "search_corpus", "tool_input": {"query": "ferry"}}', ONE, ""),
        ('{"search_corpus": {"query": "ferry"}}', ONE, ""),
        (
            '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "search_corpus", '
            '"arguments": "{\\"query\\": \\"ferry\\"}"}}]}',
            ONE,
            "",
        ),
        ('Thought: hm\nAction: search_corpus\nAction Input: {"query": "ferry"}\n', ONE, "Thought: hm"),
    ],
)
def test_calls_in_text(text: str, expected: list[Any], words: str) -> None:
    spotted = spot_calls(text, TOOLS)
    assert read(spotted.calls) == expected
    assert spotted.text == words
    assert not spotted.half
    assert not spotted.repairs


@pytest.mark.parametrize(
    "text",
    [
        '<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>{"query": "ferry"}<|call|>',
        '<|start|>assistant<|channel|>commentary to=functions.search_corpus<|message|>{"query": "ferry"}',
        '<|start|>assistant to=functions.search_corpus<|channel|>commentary json<|message|>{"query": "ferry"}',
        'assistantcommentary to=functions.search_corpus json{"query": "ferry"}',
        'commentary to=functions.search_corpus code{"query": "ferry"}',
        'to=search_corpus {"query": "ferry"}',
    ],
)
def test_harmony_that_the_server_left_in_the_text(text: str) -> None:
    spotted = spot_calls(text, TOOLS)
    repaired = repair_calls(spotted.calls, TOOLS)
    assert [(call.name, call.arguments) for call in repaired.calls] == [("search_corpus", FERRY)]
    assert spotted.text == ""


@pytest.mark.parametrize(
    "text",
    [
        "The Alma was built in 1931 [c3].",
        'The record says {"name": "Alma", "arguments": {"built": 1931}}.',
        'One could call search_corpus(query="ferry") here, but that is not needed.',
        '{"query": "ferry"}',
        "[1, 2, 3] and {a set}",
        'A letter to=5 {"x": 1}',
        "",
    ],
)
def test_words_that_are_no_call(text: str) -> None:
    spotted = spot_calls(text, TOOLS)
    assert spotted.calls == ()
    assert spotted.text == text
    assert not spotted.half


def test_thoughts_may_mention_calls() -> None:
    text = 'Perhaps {"name": "search_corpus", "arguments": {"query": "ferry"}} would do.'
    assert spot_calls(text, TOOLS, marked_only=True).calls == ()
    marked = f"So: <tool_call>{text[8:65]}</tool_call>"
    assert read(spot_calls(marked, TOOLS, marked_only=True).calls) == ONE


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('<tool_call>{"name": "search_corpus", "arguments": {"query": "fer', []),
        ('<tool_call>{"name": "search_corpus", "arguments": {"query": "fer"}', []),
        ('[{"name": "search_corpus", "parameters": {"query": "fer', []),
        ('{"name": "search_corpus", "parameters": {"query": "fer"', []),
        ('[{"na', []),
        ('<|channel|>commentary to=functions.search_corpus<|message|>{"query": "fer', []),
        ("<tool_call>\n<function=search_corpus>\n<parameter=query>\nfer", []),
        (
            '<tool_call>{"name": "search_corpus", "arguments": {"query": "ferry"}}</tool_call>\n'
            '<tool_call>{"name": "grep_corpus", "arg',
            ONE,
        ),
    ],
)
def test_half_a_call_is_never_a_call(text: str, whole: list[Any]) -> None:
    spotted = spot_calls(text, TOOLS, cut=True)
    assert read(spotted.calls) == whole
    assert spotted.half


def test_a_call_in_broken_json_is_passed_on_for_the_engine_to_refuse() -> None:
    text = '<tool_call>{"name": "search_corpus", "arguments": {"query": "the "Alma" ferry"}}</tool_call>'
    (call,) = spot_calls(text, TOOLS).calls
    assert call.name == "search_corpus"
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(call.arguments)


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("search_corpus", "search_corpus"),
        ("functions.search_corpus", "search_corpus"),
        ("functions.search", "search_corpus"),
        ("functions/search_corpus", "search_corpus"),
        ("functions.search_corpus:0", "search_corpus"),
        ("default_api.grep_corpus", "grep_corpus"),
        ("search_corpus<|channel|>commentary", "search_corpus"),
        ("<|constrain|>search_corpus", "search_corpus"),
        ("Search_Corpus", "search_corpus"),
        ("searchCorpus", "search_corpus"),
        ("search-corpus ", "search_corpus"),
        ("serch_corpus", "search_corpus"),
        ("saerch_corpus", "search_corpus"),
        ("prune_chunk", "prune_chunks"),
        ("grep", "grep_corpus"),
        ("finish()", "finish"),
        ("unprune_chunks", "unprune_chunks"),
        ("search_documents", "search_documents"),
        ("lookup", "lookup"),
        ("fin", "fin"),
        ("", ""),
    ],
)
def test_names(name: str, means: str) -> None:
    found, fault = repair_name(name, TOOLS)
    assert found == means
    assert (fault is not None) == (name.strip() != means)


@pytest.mark.parametrize("name", ["search", "functions.search", "search_corpus search_web"])
def test_a_name_that_could_mean_two_tools_is_left_alone(name: str) -> None:
    assert repair_name(name, (*TOOLS, WEB)) == (name, None)


@pytest.mark.parametrize("name", [None, 7, {"a": 1}])
def test_names_that_are_none(name: Any) -> None:
    found, fault = repair_name(name, TOOLS)
    assert isinstance(found, str)
    assert fault is None


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"query": "ferry",}', {"query": "ferry"}),
        ("{'query': 'ferry', 'filter': None}", {"query": "ferry", "filter": None}),
        ("{query: “ferry”}", {"query": "ferry"}),
        ('{"query": "ferry"', {"query": "ferry"}),
        ('{"query": "ferry", "filter": {"kind": "page"', {"query": "ferry", "filter": {"kind": "page"}}),
        ('{"query": "ferry"}}', {"query": "ferry"}),
        ('```json\n{"query": "ferry"}\n```', {"query": "ferry"}),
        ('{"query": "ferry"}<|call|>', {"query": "ferry"}),
        ('"{\\"query\\": \\"ferry\\"}"', {"query": "ferry"}),
        (json.dumps(json.dumps(json.dumps({"query": "ferry"}))), {"query": "ferry"}),
        ({"query": "ferry"}, {"query": "ferry"}),
        ('{"query": "two\nlines"}', {"query": "two\nlines"}),
        ('{"query": "a \\d b"}', {"query": "a \\d b"}),
        ('{"name": "search_corpus", "arguments": {"query": "ferry"}}', {"query": "ferry"}),
        ('{"parameters": {"query": "ferry"}}', {"query": "ferry"}),
        ('{"query": "ferry", "filter": "{\\"kind\\": \\"page\\"}"}', {"query": "ferry", "filter": {"kind": "page"}}),
    ],
)
def test_arguments_that_are_repaired(arguments: Any, value: Any) -> None:
    mended = repair_arguments(arguments, SEARCH)
    assert mended is not None
    assert json.loads(mended.text) == value
    assert mended.faults


@pytest.mark.parametrize(
    "arguments",
    [
        FERRY,
        ' {"query":"ferry"} ',
        '{"query": "{\\"not\\": \\"decoded\\"}"}',
        '{"query": "fer',
        '{"query": ',
        '{"query": "a"}{"query": "b"}',
        "{'query': 'Alma's engine'}",
        '{"query": "the "Alma" ferry"}',
        "ferry",
        "[1]",
        '"ferry"',
        "",
        '{"query": "a" "filter": null}',
        '{"arguments": {"query": "a"}, "query": "b"}',
    ],
)
def test_arguments_that_are_left_as_they_are(arguments: str) -> None:
    mended = repair_arguments(arguments, SEARCH)
    assert mended is not None
    assert mended.text == (arguments if arguments.strip() else "")
    assert mended.faults == ()


def test_fields_that_hold_json_as_text() -> None:
    mended = repair_arguments('{"evidence_ids": "[\\"c1\\", \\"c2\\"]", "sufficient": true}', FINISH.spec.parameters)
    assert mended is not None
    assert json.loads(mended.text)["evidence_ids"] == ["c1", "c2"]
    mended = repair_arguments('{"ids": "c3"}', PRUNE_CHUNKS.spec.parameters)
    assert mended is not None
    assert json.loads(mended.text) == {"ids": ["c3"]}
    mended = repair_arguments('{"ids": "c3 and c4"}', PRUNE_CHUNKS.spec.parameters)
    assert mended is not None
    assert not mended.faults


@pytest.mark.parametrize("arguments", ['{"query": "fer', '{"query": "ferry"', "", None])
def test_arguments_that_were_cut_are_not_run(arguments: str | None) -> None:
    assert repair_arguments(arguments, SEARCH, cut=True) is None
    repaired = repair_calls(
        [Written("grep_corpus", '{"pattern": "x"}'), Written("search_corpus", arguments)], TOOLS, cut=True
    )
    assert [call.name for call in repaired.calls] == ["grep_corpus"]
    (fault,) = repaired.faults
    assert "search_corpus, which was not run" in fault


def test_calls_packed_into_one() -> None:
    packed = {
        "tool_uses": [
            {"recipient_name": "functions.search_corpus", "parameters": {"query": "ferry"}},
            {"recipient_name": "functions.grep_corpus", "parameters": {"pattern": "Alma"}},
        ]
    }
    repaired = repair_calls([Written("multi_tool_use.parallel", json.dumps(packed))], TOOLS)
    assert [call.name for call in repaired.calls] == ["search_corpus", "grep_corpus"]


@pytest.mark.parametrize(
    ("text", "thoughts", "words"),
    [
        ("<think>\nhm\n</think>\n\nSo.", "hm", "So."),
        ("hm</think>So.", "hm", "So."),
        ("<think>hm, cut", "hm, cut", ""),
        ("[THINK]hm[/THINK]So.", "hm", "So."),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>",
            "hm",
            "So.",
        ),
        ("So.", "", "So."),
        ("", "", ""),
    ],
)
def test_thoughts(text: str, thoughts: str, words: str) -> None:
    assert split_thoughts(text) == (thoughts, words)
    assert split_thoughts(with_thoughts(thoughts, words)) == (thoughts, words)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_json_is_read_as_it_is(value: Any) -> None:
    found = read_value(json.dumps(value, ensure_ascii=False))
    assert found is not None
    assert found.value == value
    assert found.repairs == ()


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text(), max_size=5))
def test_what_python_prints_is_read_or_left_alone(value: dict[str, Any]) -> None:
    found = read_value(repr(value))
    assert found is None or found.value == value or "\\" in repr(value)


@given(VALUES, st.integers(min_value=0))
def test_a_cut_text_is_never_read_as_another_value(value: Any, at: int) -> None:
    """What is missing may only be brackets: every string, number and constant that was read was whole."""
    text = json.dumps({"key": value})
    found = read_value(text[: at % len(text)])
    assert found is None or found.open > 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("It stands in c12 and (c1).", ["c12", "c1"]),
        ("c1, c12, c1 again", ["c1", "c12"]),
        ("c123 and xc1 and c1-b name none", []),
        ("`docs/gull.md_0`, then **gull.md_10**", ["docs/gull.md_0", "gull.md_10"]),
        ("only sea-gull.md_0", ["sea-gull.md_0"]),
        ("a stray old-gull.md_0 was never shown", []),
        ("", []),
    ],
)
def test_evidence_is_named_by_its_whole_id(text: str, named: list[str]) -> None:
    shown = ["c1", "c12", "gull.md_0", "gull.md_1", "gull.md_10", "sea-gull.md_0", "docs/gull.md_0"]
    assert named_ids(text, shown) == named
    assert named_ids(text, []) == []


@given(st.text(alphabet="{}[]\"':,<>|/\\ab1 \n`()=_", max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    for cut in (False, True):
        spotted = spot_calls(text, TOOLS, cut=cut)
        repair_calls(spotted.calls, TOOLS, cut=cut)
        repair_arguments(text, SEARCH, cut=cut)
        split_thoughts(text)


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        "[",
        '{"a":',
        "<tool_call>",
        "```json\n{",
        "to=a ",
        "search_corpus(",
        "<think>",
        '{"name": "search_corpus", "arguments": {',
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    started = time.process_time()
    text = piece * (60_000 // len(piece))
    spot_calls(text, TOOLS)
    repair_arguments(text, SEARCH)
    split_thoughts(text)
    assert time.process_time() - started < 3.0
