"""ChatML in a model's own vocabulary: rendered exactly, and read whatever comes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smollm import smollm_path
from token_support import TOOLS, add_turn, opened

from thresher.engine.policies.model.tokens.chatml import ChatMLFormat
from thresher.engine.policies.model.tokens.encoding import HubCodec
from thresher.engine.policies.model.tokens.rendering import TokenRenderer
from thresher.engine.policies.model.tokens.replies import Reply
from thresher.engine.profiles.context1 import parse_final

GOLDEN = Path(__file__).parent / "golden" / "chatml_smollm2.json"
SEARCH = '<tool_call>\n{"name": "search_corpus", "arguments": {"query": "ferry"}}\n</tool_call>'
GREP = '<tool_call>\n{"name": "grep_corpus", "arguments": {"pattern": "yard"}}\n</tool_call>'
EXPECTED = """\
<|im_start|>system
You search.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call><|im_end|>
<|im_start|>user
Who built the ferry?<|im_end|>
<|im_start|>assistant
Look for it.
<tool_call>
{{"name": "search_corpus", "arguments": {{"query": "ferry"}}}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
Done.
<chunk id="c1" doc="c1.md" title="c1" tokens="{count}">
The ferry.
</chunk>
[Token usage: 1/2]
</tool_response><|im_end|>
<|im_start|>assistant
"""


@pytest.fixture(scope="module")
def layout() -> ChatMLFormat:
    return ChatMLFormat(HubCodec(smollm_path()))


def conversation(layout: ChatMLFormat) -> tuple[int, ...]:
    renderer = TokenRenderer(layout)
    ledger = opened(renderer)
    add_turn(ledger, 1, "Look for it.", [("search_corpus", {"query": "ferry"})], [("c1", "The ferry.")])
    prompt = ledger.prompt()
    assert prompt.ids is not None
    assert prompt.tokens == len(prompt.ids) == sum(block.tokens for block in ledger.live)
    return renderer.generation_ids(prompt)


def test_rendered_ids_are_the_golden_ones(layout: ChatMLFormat) -> None:
    assert list(conversation(layout)) == json.loads(GOLDEN.read_text())


def test_the_same_text_encoded_whole_gives_the_same_ids(layout: ChatMLFormat) -> None:
    from tokenizers import Tokenizer

    tools = "\n".join(
        json.dumps(
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
        )
        for t in TOOLS
    )
    text = EXPECTED.format(tools=tools, count=len(layout.codec.encode("The ferry.")))
    ours = conversation(layout)
    assert layout.codec.decode(ours) == text
    tokenizer = Tokenizer.from_file(str(smollm_path() / "tokenizer.json"))
    assert list(ours) == tokenizer.encode(text, add_special_tokens=False).ids


def read(layout: ChatMLFormat, text: str, *, cut: bool = False, final: bool = False) -> Reply:
    ids = layout.codec.encode_framing(text)
    reply = layout.read(ids, TOOLS, cut=cut, final_call=parse_final if final else None)
    assert all_ids(reply) == (ids[:-1] if text.endswith("<|im_end|>") else ids), "nothing sampled is lost or changed"
    return reply


def all_ids(reply: Reply) -> tuple[int, ...]:
    return (*reply.reasoning_ids, *(i for use in reply.uses for i in use.ids))


def calls(reply: Reply) -> list[tuple[str, object]]:
    return [(use.name, json.loads(str(use.arguments))) for use in reply.uses]


def test_a_thought_and_two_calls(layout: ChatMLFormat) -> None:
    reply = read(layout, f"I look.\n{SEARCH}\n{GREP}<|im_end|>")
    assert calls(reply) == [("search_corpus", {"query": "ferry"}), ("grep_corpus", {"pattern": "yard"})]
    assert reply.reasoning == "I look."
    assert reply.faults == ()
    assert "search_corpus" in layout.codec.decode(reply.uses[0].ids)
    assert "grep_corpus" not in layout.codec.decode(reply.uses[0].ids)


@pytest.mark.parametrize(
    ("text", "expected", "fault"),
    [
        (SEARCH.removesuffix("</tool_call>") + "<|im_end|>", [("search_corpus", {"query": "ferry"})], None),
        (
            f"{SEARCH.replace('}}', ',}}')}<|im_end|>",
            [("search_corpus", {"query": "ferry"})],
            "mended",
        ),
        (
            '{"name": "functions.search_corpus", "arguments": {"query": "ferry"}}<|im_end|>',
            [("search_corpus", {"query": "ferry"})],
            "outside of tool_call",
        ),
        ("<tool_call>nothing</tool_call><|im_end|>", [], "no call that could be read"),
        (f"<think>I could do {GREP} or not</think>{SEARCH}<|im_end|>", [("search_corpus", {"query": "ferry"})], None),
    ],
)
def test_what_is_broken_is_mended_and_said(
    layout: ChatMLFormat, text: str, expected: list[tuple[str, object]], fault: str | None
) -> None:
    reply = read(layout, text)
    assert calls(reply) == expected
    assert (reply.faults == ()) if fault is None else any(fault in said for said in reply.faults)


def test_an_end_of_text_ends_a_reply_too(layout: ChatMLFormat) -> None:
    reply = read(layout, f"{SEARCH}<|endoftext|>")
    assert calls(reply) == [("search_corpus", {"query": "ferry"})]
    assert reply.faults == ()
    assert layout.codec.special("<|endoftext|>") in layout.stops
    assert read(layout, "<|endoftext|>").faults == ("the reply was empty",)


def test_a_call_that_was_cut_is_not_run(layout: ChatMLFormat) -> None:
    reply = read(layout, f'{GREP}\n<tool_call>\n{{"name": "prune_chunks", "arguments": {{"chunk_ids": ["c1', cut=True)
    assert calls(reply) == [("grep_corpus", {"pattern": "yard"})]
    assert any("length limit" in fault for fault in reply.faults)


def test_a_final_text(layout: ChatMLFormat) -> None:
    reply = read(layout, '<think>Done.</think><Document id="a_0"></Document><|im_end|>', final=True)
    assert calls(reply) == [("finish", {"evidence_ids": ["a_0"], "sufficient": True})]
    assert read(layout, "<think>Hm</think>Nothing.<|im_end|>", final=True).final == "Nothing."


WORDS = [
    *(
        "<tool_call>",
        "</tool_call>",
        '{"name": "search_corpus", "arguments": {"query": "x"}}',
        "{",
        "}",
        '"name"',
        "漢",
    ),
    *("search_corpus", "<think>", "</think>", "\n", " ", "ferry", "<|im_end|>", "<|im_start|>"),
]


@settings(max_examples=150, deadline=None)
@given(text=st.lists(st.sampled_from(WORDS), max_size=25).map("".join), cut=st.booleans())
def test_whatever_is_sampled_nothing_is_lost(layout: ChatMLFormat, text: str, cut: bool) -> None:
    output = layout.codec.encode_framing(text)
    reply = layout.read(output, TOOLS, cut=cut, final_call=parse_final)
    closed = output[-1:] == (layout.end,)
    assert all_ids(reply) == (output[:-1] if closed else output)
    assert all(use.ids for use in reply.uses)
    assert reply.reasoning_ids or not reply.reasoning
    renderer = TokenRenderer(layout)
    ledger = opened(renderer)
    before = renderer.generation_ids(ledger.prompt())
    made = [(use.name, {}) for use in reply.uses]
    add_turn(
        ledger, 1, reply.reasoning, made,
        reasoning_ids=reply.reasoning_ids, call_ids=[use.ids for use in reply.uses],
    )  # fmt: skip
    prompt = ledger.prompt()
    assert prompt.ids is not None
    assert sum(block.tokens for block in ledger.live) == prompt.tokens == len(prompt.ids)
    assert prompt.ids[: len(before) + len(output)] == (*before, *output), "the frame closes as the model did"


def test_an_edited_turn_stays_a_valid_message(layout: ChatMLFormat) -> None:
    renderer = TokenRenderer(layout)
    ledger = opened(renderer)
    reply = read(layout, f"I look.\n{SEARCH}\n{GREP}<|im_end|>")
    add_turn(
        ledger, 1, reply.reasoning, [(use.name, {}) for use in reply.uses],
        reasoning_ids=reply.reasoning_ids, call_ids=[use.ids for use in reply.uses],
    )  # fmt: skip
    ledger.prune(["r1", "t1.1"])
    prompt = ledger.prompt()
    assert prompt.ids is not None
    text = layout.codec.decode(prompt.ids)
    assert f"<|im_start|>assistant\n{GREP}<|im_end|>\n<|im_start|>user\n<tool_response>" in text
    assert ledger.tokens == prompt.tokens == len(prompt.ids)
