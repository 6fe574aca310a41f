"""Runs a page as a reader would: in a copy of the repository, step by step, with each command's status looked at.

All console blocks of a page go through one bash, all Python blocks through one interpreter. Both have a home of their
own, and where the kernel allows it a network of their own with nothing in it but loopback: the ports that pages name
clash with nobody, and no command reaches anything real. What no machine of ours has is played by `stand_ins/`, which
come first on PATH.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from face_support import interruptible
from pages import ROOT, Command, Page, Program, Saved, Step, without_comment

HERE = Path(__file__).resolve().parent
STAND_INS = HERE / "stand_ins"
LIMIT_S = 600.0
"""For one command or program. A busy machine is no failure; a command that waits for input or for ever is."""
SHOWN = 6_000
"""Characters of output that a failure shows."""
PORTS = {"thresher serve": 8420, "vllm serve": 8000, "chroma run": 8000, "llama-server": 8080, "ollama serve": 11434}
"""Servers that pages leave running, and where they listen unless `--port` says otherwise."""
MARK = "DOCS_TEST_PAGE"
"""In the environment of all that a page starts, so that it can be found and ended."""
_TRACEBACK = "Traceback (most recent call last)"


class PageFailed(AssertionError):
    """A step did not do what the page says. The message begins with page and line."""


@dataclass(frozen=True)
class Done:
    """A step that was run, and how long it took."""

    step: Step
    seconds: float


@dataclass(frozen=True)
class _Result:
    status: int | None
    """None where the limit passed."""
    output: Path


@dataclass
class Runner:
    """Runs the steps of one page. `folder` is empty at first; afterwards it holds the page's clone and home."""

    page: Page
    folder: Path
    limit_s: float = LIMIT_S
    not_run: Collection[str] = ()
    """Steps that are passed over, by `key_of`."""
    root: Path = ROOT
    _number: int = 0
    _background: list[tuple[Command, Path]] = field(default_factory=list)

    def run(self) -> list[Done]:
        """Run all steps.

        Raises:
            PageFailed: one did not end as the page says, or within the limit.
        """
        clone = self.folder / "thresher"
        copy_tree(self.root, clone)
        self.environment = environment(self.folder)
        self.clone = clone
        done = []
        with network() as inside, _ended(self.folder):
            self.shell = Shell(inside, clone, self.environment)
            self.interpreter: Interpreter | None = None
            self.inside = inside
            try:
                for step in self.page.steps:
                    if key_of(step) in self.not_run:
                        continue
                    started = time.monotonic()
                    self._step(step)
                    done.append(Done(step, time.monotonic() - started))
                self._look_at_background()
            finally:
                self.shell.close()
                if self.interpreter is not None:
                    self.interpreter.close()
        return done

    def _step(self, step: Step) -> None:
        self._number += 1
        output = self.folder / "steps" / f"{self._number}.out"
        output.parent.mkdir(exist_ok=True)
        if isinstance(step, Saved):
            self._save(step)
        elif isinstance(step, Command):
            self._command(step, output)
        else:
            self._program(step, output)

    def _save(self, step: Saved) -> None:
        path = Path(self.environment["HOME"], step.file[2:]) if step.file.startswith("~/") else self.clone / step.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.content + "\n", "utf-8")

    def _command(self, step: Command, output: Path) -> None:
        before = self.shell.listening()
        result = self.shell.run(step.text, output, self.limit_s)
        self._check(step, result, step.status)
        if step.background:
            self._background.append((step, output))
            self._await_server(step, before, result)

    def _program(self, step: Program, output: Path) -> None:
        if self.interpreter is None:
            self.interpreter = Interpreter(self.inside, self.clone, self.environment)
        state = self.folder / "steps" / "environment"
        self.shell.run(f"env -0 > {shlex.quote(str(state))}; pwd > {shlex.quote(str(state))}.cwd", output, self.limit_s)
        exported = dict(
            line.split("=", 1) for line in state.read_text("utf-8").split("\0") if "=" in line and line[:1] != "_"
        )
        where = Path(f"{state}.cwd").read_text("utf-8").rstrip("\n")
        result = self.interpreter.run(step, self.page.path, exported, where, output, self.limit_s)
        self._check(step, result, 0)

    def _check(self, step: Step, result: _Result, wanted: int) -> None:
        if result.status is None:
            self._fail(step, f"did not end within {self.limit_s:g} s", result.output)
        if result.status != wanted:
            told = f", where the page says {wanted}" if wanted else ""
            self._fail(step, f"exited with {result.status}{told}", result.output)
        if _TRACEBACK in text_of(result.output):
            self._fail(step, "exited as it should, but showed a traceback", result.output)

    def _await_server(self, step: Command, before: set[int], result: _Result) -> None:
        port = port_of(step.text)
        if port is None:
            return
        deadline = time.monotonic() + self.limit_s

        def listens() -> bool:
            now = self.shell.listening()
            return port in now if port else bool(now - before)

        while not listens():
            if (status := self.shell.ended_job()) is not None:
                self._fail(step, f"ended with {status} before it listened", result.output)
            if time.monotonic() > deadline:
                self._fail(step, f"did not listen on {port or 'any port'} within {self.limit_s:g} s", result.output)
            time.sleep(0.1)

    def _look_at_background(self) -> None:
        for step, output in self._background:
            if _TRACEBACK in text_of(output):
                self._fail(step, "showed a traceback while it ran in the background", output)

    def _fail(self, step: Step, what: str, output: Path) -> None:
        shown = [f"{self.page.path}:{step.line}: {name_of(step)} {what}", _tail(text_of(output))]
        for server, log in self._background:
            if log != output:
                shown += [f"--- {server.text} (line {server.line}) wrote:", _tail(text_of(log))]
        raise PageFailed("\n".join(shown))


def name_of(step: Step) -> str:
    """How messages, and the list of what is not run, call a step."""
    if isinstance(step, Saved):
        return step.file
    return step.text if isinstance(step, Command) else step.text.split("\n")[0]


def key_of(step: Step) -> str:
    """How the list of what is not run calls a step: without the comment behind it."""
    name = name_of(step)
    return without_comment(name) if isinstance(step, Command) and "\n" not in name else name


def port_of(text: str) -> int | None:
    """Where a background command will listen: 0 for a port that is not known before, None for what is no server."""
    text = text.replace("\\\n", " ")
    named = re.search(r"--port[= ](\d+)", text)
    for server, port in PORTS.items():
        if re.search(rf"(^|[\s/]){re.escape(server)}\b", text):
            return int(named[1]) if named else port
    if web := re.search(r"http\.server\s+(\d+)?", text):
        return int(web[1] or 8000)
    if re.search(r"\bpython3?\s|\bthresher runs\b.*--serve", text):
        return int(named[1]) if named else 0
    return None


def copy_tree(root: Path, target: Path) -> None:
    """Copy the tracked files and those that git does not ignore, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        if name and (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, target / name)


def environment(folder: Path) -> dict[str, str]:
    """A reader's environment: nothing of ours but a PATH, on which `thresher` and `python` are those of the tests."""
    home = folder / "home"
    for made in (home, folder / "tmp", folder / "site"):
        made.mkdir(parents=True)
    # An answer of 400 or more fails the command that asked.
    (home / ".curlrc").write_text("fail-with-body\nshow-error\n")
    path = [str(STAND_INS), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {
        "PATH": os.pathsep.join(path),
        "HOME": str(home),
        "THRESHER_HOME": str(home / ".thresher"),
        "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", str(folder / "tmp")),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "ANONYMIZED_TELEMETRY": "False",
        "OMP_NUM_THREADS": "1",
        "STAND_IN_PYTHON": sys.executable,
        # Where the stand-in of pip installs a page's own package.
        "PYTHONPATH": str(folder / "site"),
        "STAND_IN_SITE": str(folder / "site"),
        "STAND_IN_CLONE": str(folder / "thresher"),
        MARK: str(folder),
    }


@dataclass(frozen=True)
class Network:
    """How processes get into the page's network; `own` is whether it has one."""

    own: bool
    holder: int = 0

    def enter(self, command: list[str]) -> list[str]:
        """The command that runs another one inside."""
        if not self.own:
            return command
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self.holder), "--net", *user, "--", *command]


@cache
def _unshare() -> list[str] | None:
    """The command that starts another one in a network of its own; None where the kernel does not let us."""
    command = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "--"]
    try:
        tried = subprocess.run([*command, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return command if tried.returncode == 0 else None


@contextmanager
def network() -> Iterator[Network]:
    """A network with loopback alone. Where that cannot be had, pages run one after another, on ports that are free."""
    command = _unshare()
    if command is None:
        with Path("/tmp/thresher-docs-tests.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for port in sorted({*PORTS.values()}):
                with socket.socket() as probe:
                    assert probe.connect_ex(("127.0.0.1", port)), f"port {port}, which pages name, is in use"
            yield Network(own=False)
        return
    # It waits for the end of its input, so that it goes with us however we end; so does the shell, with its jobs.
    up = "ip link set lo up && echo up && exec cat"
    holder = subprocess.Popen([*command, "sh", "-c", up], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        yield Network(own=True, holder=holder.pid)
    finally:
        holder.kill()
        holder.communicate()


class _Fed:
    """A process that is fed steps through a pipe, and tells of each on another one."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._answers, answering = os.pipe()
        self._answering = answering
        self.process = subprocess.Popen(
            [part.replace("{answers}", str(answering)) for part in command],
            stdin=subprocess.PIPE,
            cwd=cwd,
            env=env,
            pass_fds=(answering,),
            start_new_session=True,
            preexec_fn=interruptible,
        )
        os.close(answering)
        self._unread = b""

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, limit_s: float) -> str | None:
        """The next line of its answers; None where none came in time. Empty if it ended."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            read = os.read(self._answers, 65_536)
            if not read:
                return ""
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        """End it, with what it has in the foreground."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
                break
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self._answers)


class Shell(_Fed):
    """One bash, which keeps variables, directory and jobs between commands."""

    def __init__(self, network: Network, cwd: Path, env: dict[str, str]) -> None:
        super().__init__(network.enter(["bash", "--noprofile", "--norc"]), cwd, env)
        self.tell("set -o pipefail; trap 'kill $(jobs -p) 2>/dev/null' EXIT")

    def run(self, text: str, output: Path, limit_s: float) -> _Result:
        script = output.with_suffix(".sh")
        script.write_text(text + "\n", "utf-8")
        self.tell(
            f". {shlex.quote(str(script))} >{shlex.quote(str(output))} 2>&1 </dev/null {self._answering}>&-;"
            f' echo "$?" >&{self._answering}'
        )
        said = self.hear(limit_s)
        if said == "":
            return _Result(self.process.wait(10), output)
        return _Result(int(said) if said is not None else None, output)

    def ended_job(self) -> int | None:
        """Status of the job that was started last, if it has ended."""
        self.tell(f'kill -0 "$!" 2>/dev/null && echo runs >&{self._answering} || '
                  f'{{ wait "$!"; echo "$?" >&{self._answering}; }}')  # fmt: skip
        said = self.hear(60)
        return None if said in (None, "", "runs") else int(said)

    def listening(self) -> set[int]:
        """Ports on which something listens, in the network of the shell."""
        found = set()
        for table in ("tcp", "tcp6"):
            with suppress(OSError):
                for line in Path(f"/proc/{self.process.pid}/net/{table}").read_text().splitlines()[1:]:
                    _, local, _, state, *_ = line.split()
                    if state == "0A":
                        found.add(int(local.rpartition(":")[2], 16))
        return found


class Interpreter(_Fed):
    """One Python, which keeps its names between blocks; tracebacks have the lines of the page."""

    def __init__(self, network: Network, cwd: Path, env: dict[str, str]) -> None:
        command = [sys.executable, str(HERE / "interpreter.py"), "{answers}"]
        super().__init__(network.enter(command), cwd, env)

    def run(self, step: Program, page: str, env: dict[str, str], cwd: str, output: Path, limit_s: float) -> _Result:
        said: Any = {"text": step.text, "line": step.line, "page": page, "env": env, "cwd": cwd, "output": str(output)}
        self.tell(json.dumps(said))
        answer = self.hear(limit_s)
        if answer == "":
            return _Result(self.process.wait(10), output)
        return _Result(int(answer) if answer is not None else None, output)


@contextmanager
def _ended(folder: Path) -> Iterator[None]:
    """End what the page left running: politely first, since servers have children and locks."""
    try:
        yield
    finally:
        for sign, patience_s in ((signal.SIGTERM, 30), (signal.SIGKILL, 30)):
            for pid in left_by(folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, sign)
            deadline = time.monotonic() + patience_s
            while left_by(folder) and time.monotonic() < deadline:
                time.sleep(0.05)


def left_by(folder: Path) -> list[int]:
    """Processes that the page in `folder` has started and that are still there."""
    mark = os.fsencode(f"{MARK}={folder}") + b"\0"
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry.name != str(os.getpid()) and mark in (entry / "environ").read_bytes() + b"\0":
                found.append(int(entry.name))
    return found


def text_of(path: Path) -> str:
    """Output as text; empty where there is none."""
    return path.read_text("utf-8", errors="replace") if path.exists() else ""


def _tail(text: str) -> str:
    return text if len(text) <= SHOWN else f"…{text[-SHOWN:]}"
