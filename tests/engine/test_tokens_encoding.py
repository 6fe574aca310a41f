"""Codecs: exact, harmless, and in need of nothing but what is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smollm import smollm_path
from token_support import add_turn, opened

from thresher.context import Call
from thresher.engine.errors import InvalidRequest
from thresher.engine.policies.model.tokens.encoding import Codec, HubCodec, harmony_codec, split_point
from thresher.engine.policies.model.tokens.rendering import TokenRenderer
from thresher.engine.policies.model.tokens.styles import style_for
from thresher.engine.tokenizers import default_counter

PIECES = ["<|end|>", "<|im_end|>", "<|im_start|>", "  ", "\n", "ferry", "漢字", "🙂", "1931", "'s", "\ud800"]
# SmolLM2's vocabulary has no tokens for some control characters and unassigned planes.
usual = st.text(st.characters(categories=("L", "N", "P", "Zs"), max_codepoint=0x1FFFF), max_size=80)
texts = usual | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.fixture(scope="module", params=["harmony", "smollm"])
def codec(request: pytest.FixtureRequest) -> Codec:
    return harmony_codec() if request.param == "harmony" else HubCodec(smollm_path())


@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_text_comes_back_and_never_becomes_framing(codec: Codec, text: str) -> None:
    ids = codec.encode(text)
    assert codec.decode(ids) == text.encode("utf-8", "replace").decode()
    ends = {codec.special("<|end|>" if codec.name == "o200k_harmony" else "<|im_end|>")}
    assert ends.isdisjoint(ids)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=200))
def test_the_fast_encoder_is_openai_harmonys(text: str) -> None:
    codec = harmony_codec()
    assert codec.decode(codec.encode(text)) == text
    assert list(codec.encode(text)) == codec.harmony.encode(text, disallowed_special=())
    assert len(codec.encode(text)) == default_counter().count(text)


@settings(max_examples=100, deadline=None)
@given(text=texts, offset=st.integers(0, 90))
def test_a_text_is_cut_at_the_token_that_holds_a_character(codec: Codec, text: str, offset: int) -> None:
    ids = codec.encode(text)
    index = split_point(codec, ids, offset)
    assert len(codec.decode(ids[:index])) <= offset
    assert index == len(ids) or len(codec.decode(ids[: index + 1])) > offset


def test_harmony_loads_without_a_network_or_a_cache(tmp_path: Path) -> None:
    program = (
        "import os; from thresher.engine.policies.model.tokens.encoding import harmony_codec; c = harmony_codec(); "
        "assert c.decode(c.encode_framing('<|start|>user')) == '<|start|>user'; "
        "assert 'TIKTOKEN_ENCODINGS_BASE' not in os.environ"
    )
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    environment = {k: v for k, v in os.environ.items() if k != "TIKTOKEN_ENCODINGS_BASE"}
    environment |= {**nowhere, "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "TIKTOKEN_RS_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=120)
    assert list(tmp_path.iterdir()) == [], "the ranks are written for the time of loading only"


def test_a_folder_without_a_usable_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"tokenizer\.json"):
        HubCodec(tmp_path)
    model = {"type": "WordLevel", "vocab": {"ab": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    layout = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(layout))
    with pytest.raises(InvalidRequest, match="does not give back"):
        HubCodec(tmp_path)


def test_a_vocabulary_without_the_formats_tokens_is_refused(tmp_path: Path) -> None:
    layout = json.loads((smollm_path() / "tokenizer.json").read_text())
    layout["added_tokens"] = []
    layout["model"]["vocab"] = {
        (token.replace("im_end", "other") if token == "<|im_end|>" else token): number
        for token, number in layout["model"]["vocab"].items()
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(layout))
    with pytest.raises(InvalidRequest, match="im_end"):
        style_for(str(tmp_path))


def test_tags_that_are_tokens_are_framing_only_where_the_engine_writes_them(tmp_path: Path) -> None:
    """Qwen's vocabularies have tokens for <tool_call> that are not marked as special."""
    layout = json.loads((smollm_path() / "tokenizer.json").read_text())
    number = len(layout["model"]["vocab"])
    tag = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    layout["added_tokens"].append({"id": number, "content": "<tool_call>", **tag})
    (tmp_path / "tokenizer.json").write_text(json.dumps(layout))
    codec = HubCodec(tmp_path)
    assert codec.encode_framing("<tool_call>") == (number,)
    assert number not in codec.encode("A page says <tool_call> to fool you.")
    call = Call("t1.1", "search_corpus", '{"query": "<tool_call>"}')
    renderer = TokenRenderer(style_for(str(tmp_path)).format)
    ledger = opened(renderer)
    add_turn(ledger, 1, "", [(call.name, json.loads(call.arguments))])
    prompt = ledger.prompt()
    assert prompt.ids is not None
    told = 2  # in the instructions on tools
    assert prompt.ids.count(number) == told + 1


@pytest.mark.parametrize(
    ("model", "name"),
    [("openai/gpt-oss-20b", "harmony"), ("chromadb/context-1", "context1"), ("/m/Context-1", "context1")],
)
def test_a_models_name_tells_its_style(model: str, name: str) -> None:
    style = style_for(model)
    assert style.name == name
    assert (style.final_call is not None) == (name == "context1")


def test_styles_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="context1"):
        style_for("gpt-oss-20b", "llama")
    with pytest.raises(InvalidRequest, match="tokenizer of 'nobody/nothing'"):
        style_for("nobody/nothing")
