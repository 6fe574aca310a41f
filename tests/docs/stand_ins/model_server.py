"""Servers of models, played: the command line is checked, then the tests' stub model answers on the server's port.

Whatever is asked, it searches for the question once and returns the first passages that come, or quotes the first of
them. It takes the place of an earlier one on its port, as after a Ctrl-C in the other terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from stub_model import Reply, serve_model  # noqa: E402

CHUNK = re.compile(r'<chunk id="([^"]+)"[^>]*>\n(.*?)\n</chunk>', re.DOTALL)
DOCUMENT = re.compile(r"^# DOCUMENT ID: (\S+) \(\d+ tokens\)", re.MULTILINE)


def vllm() -> argparse.ArgumentParser:
    """The options of `vllm serve` that pages use; tests/serve/test_documented_commands.py holds them to vLLM itself."""
    parser = argparse.ArgumentParser(prog="vllm serve")
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name")
    parser.add_argument("--tool-call-parser", choices=["hermes", "openai"])
    parser.add_argument("--logprobs-mode", choices=["processed_logprobs"])
    parser.add_argument("--lora-modules", nargs="+")
    parser.add_argument("--weight-transfer-config", type=json.loads)
    parser.add_argument("--dtype", choices=["bfloat16", "float32", "auto"])
    for number in ("max-model-len", "max-lora-rank", "max-loras", "tensor-parallel-size", "data-parallel-size",
                   "max-num-seqs"):  # fmt: skip
        parser.add_argument(f"--{number}", type=int)
    parser.add_argument("--gpu-memory-utilization", type=float)
    for switch in ("enable-prompt-tokens-details", "enable-auto-tool-choice", "enable-lora", "enable-prefix-caching",
                   "no-enable-chunked-prefill", "enforce-eager"):  # fmt: skip
        parser.add_argument(f"--{switch}", action="store_true")
    return parser


def llama_server() -> argparse.ArgumentParser:
    """Options of llama.cpp's server, by its README."""
    parser = argparse.ArgumentParser(prog="llama-server")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-c", "--ctx-size", type=int)
    parser.add_argument("-np", "--parallel", type=int)
    parser.add_argument("-ngl", "--n-gpu-layers", type=int)
    parser.add_argument("-a", "--alias")
    parser.add_argument("--jinja", action="store_true")
    return parser


def main(program: str, arguments: list[str]) -> None:
    if program == "ollama":
        if arguments[:1] in (["pull"], ["rm"], ["show"]) and len(arguments) == 2:
            return
        if arguments != ["serve"]:
            sys.exit(f"this stand-in knows ollama serve and pull, not {' '.join(arguments)}")
        serve("stub", 11434)
        return
    if program == "vllm":
        if arguments[:1] != ["serve"]:
            sys.exit(f"this stand-in knows vllm serve, not {' '.join(arguments)}")
        told = vllm().parse_args(arguments[1:])
        if told.enable_auto_tool_choice != (told.tool_call_parser is not None):
            sys.exit("--enable-auto-tool-choice and --tool-call-parser belong together")
        serve(told.served_model_name or told.model, told.port)
        return
    told = llama_server().parse_args(arguments)
    serve(told.alias or Path(told.model).name, told.port)


def serve(name: str, port: int) -> None:
    """Answer on the port until a signal comes."""
    taken = Path(os.environ["TMPDIR"], f"stand-in-{port}.pid")
    if taken.exists():
        with suppress(ProcessLookupError):
            os.kill(int(taken.read_text()), signal.SIGKILL)
    taken.write_text(str(os.getpid()))
    style = None

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal style
        if "prompt" not in body:
            return chat_reply(body)
        if style is None:
            from thresher.engine.policies.model.tokens.styles import style_for

            style = style_for(body["model"])
        return token_reply(body, style)

    with serve_model(always=answer, port=port, name=name):
        print(f"serving {name} on port {port}", flush=True)
        while True:
            time.sleep(3600)


def chat_reply(body: dict[str, Any]) -> Reply:
    """Search for the question, then finish with what was found; without tools an answer with a quote."""
    texts = [str(message.get("content") or "") for message in body["messages"]]
    question = next(str(message["content"]) for message in body["messages"] if message["role"] == "user")
    shown = [found for text in texts[1:] for found in CHUNK.findall(text)]
    tools = {tool["function"]["name"] for tool in body.get("tools", [])}
    if "finish" in tools:
        if not shown and not any(message["role"] == "tool" for message in body["messages"]):
            return Reply(
                calls=[(name, {"query": question}) for name in ("search_corpus", "search_web") if name in tools]
            )
        ids = [name for name, _ in shown[:3]]
        return Reply(calls=[("finish", {"evidence_ids": ids, "sufficient": bool(ids)})])
    if shown and '"claims"' in texts[0]:
        name, text = shown[0]
        sentence = text.strip().split("\n")[-1].split(". ")[0][:200]
        return Reply(json.dumps({"claims": [{"text": sentence, "quotes": [{"id": name, "quote": sentence}]}]}))
    return Reply("yes")


def token_reply(body: dict[str, Any], style: Any) -> Reply:
    """The same in tokens: harmony, with the final answer of the published profile where that is spoken, or ChatML."""
    prompt = style.format.codec.decode(body["prompt"])
    harmony = "<|start|>" in prompt
    begin, end = ("<|start|>user<|message|>", "<|end|>") if harmony else ("<|im_start|>user\n", "<|im_end|>")
    question = prompt.partition(begin)[2].partition(end)[0].strip()
    asked = prompt.partition(begin)[2].partition(end)[2]
    ids = [*DOCUMENT.findall(asked), *(name for name, _ in CHUNK.findall(asked))][:3]
    searched = "search_corpus" in asked
    call = (
        ("finish", {"evidence_ids": ids, "sufficient": bool(ids)})
        if searched
        else ("search_corpus", {"query": question})
    )
    if harmony and searched and style.final_call is not None:
        documents = [f'<Document id="{name}"><Justification>It says so.</Justification></Document>' for name in ids]
        text = f"<|channel|>final<|message|>{chr(10).join(documents)}<|return|>"
    elif harmony:
        text = f"<|channel|>commentary to=functions.{call[0]} <|constrain|>json<|message|>{json.dumps(call[1])}<|call|>"
    else:
        text = f"<tool_call>\n{json.dumps({'name': call[0], 'arguments': call[1]})}\n</tool_call><|im_end|>"
    sampled = style.format.codec.encode_framing(text)
    return Reply(ids=sampled, logprobs=[-0.1] * len(sampled))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
