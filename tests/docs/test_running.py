"""The harness itself: what it must notice, and what it must leave behind, which is nothing."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pages import Block, Command, Page, Program, Saved, blocks, code_spans
from running import Done, PageFailed, Runner, left_by, port_of

Run = Callable[..., list[Done]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "kept.txt").write_text("kept\n")
    (root / "made.log").write_text("ignored\n")
    (root / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


@pytest.fixture
def run(repository: Path, tmp_path: Path) -> Run:
    def run_page(*parts: str, **fields: object) -> list[Done]:
        source = "\n".join(parts)
        page = Page("docs/page.md", source, tuple(blocks(source)))
        folder = tmp_path / "page"
        folder.mkdir()
        try:
            return Runner(page, folder, root=repository, **fields).run()  # type: ignore[arg-type]
        finally:
            assert left_by(folder) == []

    return run_page


def console(*lines: str) -> str:
    return "\n".join(["", "```console", *lines, "```", ""])


def python(*lines: str, info: str = "") -> str:
    return "\n".join(["", f"```python{info}", *lines, "```", ""])


def test_one_shell_and_one_interpreter_go_through_the_page(run: Run) -> None:
    done = run(
        console("$ export NAME=harbour; mkdir work; cd work", "$ count=3"),
        python("import os, pathlib", "name = os.environ['NAME']", "here = pathlib.Path.cwd().name"),
        console("$ echo $count $NAME > seen.txt", "3 harbour"),
        python("assert (name, here) == ('harbour', 'work')", "assert open('seen.txt').read() == '3 harbour\\n'"),
    )
    assert [step.step.line for step in done] == [3, 4, 9, 16, 22]


def test_the_page_starts_in_a_clone_with_an_empty_home(run: Run, repository: Path) -> None:
    run(
        console(
            "$ test -f kept.txt && test ! -e made.log && test ! -e .git",
            '$ test -z "$(ls $THRESHER_HOME 2>/dev/null)" && test "$THRESHER_HOME" = ~/.thresher',
            "$ echo changed > kept.txt",
        )
    )
    assert (repository / "kept.txt").read_text() == "kept\n"


def test_what_is_titled_is_written_and_not_run(run: Run) -> None:
    run(
        python("raise SystemExit('this was run')", info=' title="tool/tool.py"'),
        python("# other.py", "raise SystemExit('this was run')"),
        '```toml title="~/.thresher/config.toml"\nport = 1\n```',
        "```csv\n# questions.csv\nquestion,answer\nWho?,Pell\n```",
        console("$ grep -q run tool/tool.py && grep -q run other.py", "$ grep -q port ~/.thresher/config.toml"),
        console('$ test "$(head -1 questions.csv)" = question,answer'),
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "docs/page.md:3: false exited with 1"),
        ("echo so it goes; false | cat", "so it goes"),
        ("exit 3", "exited with 3"),
        ("true    # exit 4", "exited with 0, where the page says 4"),
        ("echo 'Traceback (most recent call last):'", "showed a traceback"),
        ("nobody-has-this", "exited with 127"),
        ("python -c 'import sys; sys.exit(9)' &", ""),
        ("python -m http.server --nonsense 8420 &", "before it listened"),
    ],
)
def test_a_command_that_does_otherwise_fails_with_its_line(run: Run, command: str, said: str) -> None:
    if not said:
        said = "ended with 9 before it listened"
    with pytest.raises(PageFailed) as failed:
        run(console(f"$ {command}", "$ touch never"))
    assert str(failed.value).startswith("docs/page.md:3: ")
    assert said in str(failed.value)


def test_announced_statuses_are_right(run: Run) -> None:
    run(console("$ (exit 4)   # exit 4", "$ echo '# exit 3'", "$ false   # there is none: exit 1"))


def test_a_program_that_raises_fails_with_the_line_of_the_page(run: Run) -> None:
    with pytest.raises(PageFailed) as failed:
        run("", python("x = 1"), python("y = x", "print('before')", "z = y / 0"))
    assert str(failed.value).startswith("docs/page.md:9: y = x exited with 1")
    assert "before" in str(failed.value)
    assert "z = y / 0" in str(failed.value)


@pytest.mark.parametrize("part", [console("$ sleep 600"), python("import time", "time.sleep(600)")])
def test_what_never_ends_hits_its_limit(run: Run, part: str) -> None:
    started = time.monotonic()
    with pytest.raises(PageFailed, match=r"did not end within 2 s"):
        run(part, limit_s=2)
    assert time.monotonic() - started < 120


def test_a_command_that_asks_gets_no_answer(run: Run) -> None:
    with pytest.raises(PageFailed, match="exited with 1"):
        run(console("$ read -r answer"))


SERVER = """\
import http.server, signal, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else signal.SIG_DFL)
time.sleep(1)
http.server.HTTPServer(("127.0.0.1", 8420), http.server.SimpleHTTPRequestHandler).serve_forever()"""


def test_a_server_is_waited_for_and_ended_with_its_children(run: Run, tmp_path: Path) -> None:
    done = run(
        python(*SERVER.split("\n"), info=' title="server.py"'),
        console("$ python server.py &", "$ curl -s localhost:8420/kept.txt > got.txt", "$ grep -q kept got.txt"),
    )
    assert done[1].seconds > 0.9
    assert left_by(tmp_path / "page") == []


def test_an_answer_of_404_fails_its_command(run: Run) -> None:
    with pytest.raises(PageFailed, match=r"curl .* exited with 22"):
        run(
            python(*SERVER.split("\n"), info=' title="server.py"'),
            console("$ python server.py &", "$ curl -s localhost:8420/nothing"),
        )


def test_what_is_not_run_is_passed_over(run: Run) -> None:
    done = run(console("$ false", "$ true"), python("1 / 0", "print()"), python("print(1)"), not_run=["false", "1 / 0"])
    assert [step.step.line for step in done] == [4, 15]


def test_a_wrong_flag_fails_the_page(run: Run) -> None:
    with pytest.raises(PageFailed, match=r"docs/page.md:3: thresher doctor --nonsense exited with 2"):
        run(console("$ thresher doctor --nonsense"))


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("pip install thresher[web]", 0),
        ("pip install thresher[wbe]", 1),
        ("pip install -e '.[train]'", 1),
        ("pip install nobody-has-this", 1),
        ("pip install vllm", 0),
        ("python -m pip install --nonsense", 1),
        ("vllm serve chromadb/context-1 --max-model-len 40960 --nonsense", 2),
        ("vllm serve model --enable-auto-tool-choice", 1),
        ("make nothing", 2),
        ("docker compose --profile tpu up --detach", 2),
        ("docker compose --profile cpu up", 2),
        ("docker compose --profile cpu up --build --detach", 0),
    ],
)
def test_stand_ins_look_at_what_they_are_given(run: Run, repository: Path, command: str, status: int) -> None:
    project = '[project]\nname = "thresher"\ndependencies = []\n[project.optional-dependencies]\n'
    (repository / "pyproject.toml").write_text(project + 'web = ["ddgs>=9"]\nserve = ["vllm>=0.11"]\n')
    (repository / "compose.yaml").write_text("services: {thresher: {profiles: [cpu]}}\n")
    run(console(f"$ {command}" + (f"   # exit {status}" if status else "")))


def test_networks_are_apart(run: Run) -> None:
    from running import _unshare

    if _unshare() is None:
        pytest.skip("no network namespaces here: pages use the machine's own network, one after another")
    with pytest.raises(PageFailed, match=r"exited with [67]"):
        run(console("$ curl -s --max-time 60 http://192.0.2.1/"))


def test_without_networks_of_their_own_pages_want_the_ports_for_themselves(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("running._unshare", lambda: None)
    with socket.socket() as other:
        with suppress(OSError):  # or somebody has it already
            other.bind(("127.0.0.1", 11434))
            other.listen()
        with pytest.raises(AssertionError, match=r"port \d+, which pages name, is in use"):
            run(console("$ true"))


# The parser


def test_blocks_stand_where_the_page_has_them() -> None:
    source = """\
Text with `thresher ls`.

1. A list

   ```console
   $ cd /tmp
   ```

!!! note "Title"
    Inside:

    ```toml title="a/b.toml" linenums="1"
    x = 1
    ```

    ??? tip
        ```json
        {}
        ```

Back, with ``thresher a|b``.

    indented

````markdown
```console
$ not a command
```
````
"""
    assert list(blocks(source)) == [
        Block(6, "console", "$ cd /tmp"),
        Block(13, "toml", "x = 1", {"title": "a/b.toml", "linenums": "1"}),
        Block(18, "json", "{}"),
        Block(23, "indented", "indented"),
        Block(26, "markdown", "```console\n$ not a command\n```"),
    ]
    assert [text for _, text in code_spans(source)] == ["thresher ls", "thresher a|b"]


def test_commands_go_on_over_lines() -> None:
    source = console(
        "$ curl x \\",
        "    -d '{",
        "}' | jq .",
        "output",
        "$ cat > f <<'END'",
        "$ not a prompt",
        "END",
        "$ for i in 1 2; do",
        "  echo $i",
        "done",
        "1",
    )
    with pytest.raises(Exception, match=r"docs/page.md:7: the command has no end"):
        Page("docs/page.md", source, tuple(blocks(source))).commands  # noqa: B018
    source = source.replace("$ not a prompt", "a line")
    commands = Page("docs/page.md", source, tuple(blocks(source))).commands
    assert [(command.line, command.text.count("\n")) for command in commands] == [(3, 2), (7, 2), (10, 2)]


def test_steps_tell_programs_from_files() -> None:
    source = python("# tool.py", "x = 1") + python("# a comment", "y = 1") + '```yaml title="Not a file"\na: 1\n```\n'
    steps = Page("docs/page.md", source, tuple(blocks(source))).steps
    assert steps == [Saved(3, "tool.py", "# tool.py\nx = 1"), Program(8, "# a comment\ny = 1")]


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("thresher serve &", 8420),
        ("thresher serve -c default --port 8500 &", 8500),
        ("VLLM_X=1 vllm serve m \\\n  --port 8001 &", 8001),
        ("OLLAMA_CONTEXT_LENGTH=40960 ollama serve &", 11434),
        ("python -m http.server 8000 &", 8000),
        ("python site.py &", 0),
        ("thresher train watch runs/rl --follow &", None),
    ],
)
def test_where_servers_listen(text: str, port: int | None) -> None:
    assert port_of(text) == port


@pytest.mark.parametrize(
    ("text", "background"),
    [
        ("thresher serve &", True),
        ("thresher serve &   # in the background", True),
        ("a && b", False),
        ("echo '&'", False),
        ("a 2>&1", False),
    ],
)
def test_background(text: str, background: bool) -> None:
    assert Command(1, text).background is background
