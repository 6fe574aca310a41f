"""The converted model: made once by whoever comes first, and it speaks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.serve
CONVERT = "import pathlib, smollm, sys; smollm.CACHE = pathlib.Path(sys.argv[1]); print(smollm.smollm_path())"


def test_two_processes_convert_it_once(tmp_path: Path, model: Path) -> None:
    command = [sys.executable, "-c", CONVERT, str(tmp_path / "build")]
    tests = Path(__file__).resolve().parents[1]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tests) for _ in range(2)]
    (made,) = {process.communicate(timeout=300)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert {path.name for path in (tmp_path / "build").iterdir()} == {Path(made).name, "smollm2.lock"}
    for path in model.iterdir():
        assert Path(made, path.name).read_bytes() == path.read_bytes()


def test_it_knows_what_it_learned(model: Path) -> None:
    """A wrong permutation, scale or token would leave nothing of this."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = AutoModelForCausalLM.from_pretrained(model).generate(**prompt, max_new_tokens=12, do_sample=False)
    reply = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])
    assert reply == "The capital of France is Paris.<|im_end|>"
