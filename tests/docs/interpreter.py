"""Runs Python blocks of a page in one namespace. A line on stdin is a block; the answer to it is its status."""

from __future__ import annotations

import json
import linecache
import os
import sys
import traceback
import types


def main() -> None:
    answers = os.fdopen(int(sys.argv[1]), "w")
    os.set_inheritable(answers.fileno(), False)
    blocks = os.fdopen(os.dup(0), "r")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # where pickle and get_type_hints look for what a block defines
    sys.path.insert(0, "")
    for line in blocks:
        block = json.loads(line)
        output = os.open(block["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.update(block["env"])
        os.chdir(block["cwd"])
        status = run(block, module)
        sys.stdout.flush()
        sys.stderr.flush()
        print(status, file=answers, flush=True)


def run(block: dict, module: types.ModuleType) -> int:
    name = f"{block['page']}:{block['line']}"
    text = block["text"]
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        exec(compile(text, name, "exec"), module.__dict__)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
