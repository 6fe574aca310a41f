"""The child process that parses: its limits, its crashes, its restarts."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest
from input_files import make_pdf

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders import NoText, ParserProcess
from thresher.corpus.loaders.base import Part
from thresher.corpus.loaders.formats import Format
from thresher.corpus.loaders.isolation import _receive_until

PAGE = b"<p>hello</p>"


def text_of(parser: ParserProcess, data: bytes, kind: Format = Format.HTML) -> str:
    (item,) = parser.parts(data, kind)
    assert isinstance(item, Part)
    return item.text


def child_of(parser: ParserProcess) -> subprocess.Popen[bytes]:
    assert parser._child is not None
    return parser._child


def test_one_child_is_used_again() -> None:
    with ParserProcess() as parser:
        assert text_of(parser, PAGE) == "hello"
        first = child_of(parser)
        assert text_of(parser, make_pdf(["page"]), Format.PDF) == "page"
        assert child_of(parser) is first
    assert first.poll() is not None, "closing ends the child"


def test_errors_keep_their_kind() -> None:
    with ParserProcess() as parser:
        with pytest.raises(NoText):
            text_of(parser, make_pdf([""]), Format.PDF)
        with pytest.raises(LoaderError, match="damaged"):
            text_of(parser, b"%PDF-1.4 nothing", Format.PDF)


def test_a_hang_is_stopped_and_the_next_file_is_read() -> None:
    with ParserProcess(time_s=6.0) as parser:
        text_of(parser, PAGE)
        hung = child_of(parser)
        os.kill(hung.pid, signal.SIGSTOP)
        with pytest.raises(LoaderError, match="longer than 6 s"):
            text_of(parser, PAGE)
        assert hung.poll() is not None
        assert text_of(parser, PAGE) == "hello"


def test_a_crash_costs_one_file() -> None:
    with ParserProcess() as parser:
        text_of(parser, PAGE)
        child = child_of(parser)
        os.kill(child.pid, signal.SIGSTOP)
        killer = threading.Timer(0.3, child.kill)
        killer.start()
        with pytest.raises(LoaderError, match="crashed"):
            text_of(parser, PAGE)
        assert text_of(parser, PAGE) == "hello"


def test_a_child_that_died_between_files_is_replaced() -> None:
    with ParserProcess() as parser:
        text_of(parser, PAGE)
        child_of(parser).kill()
        child_of(parser).wait()
        assert text_of(parser, PAGE) == "hello"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not enforce RLIMIT_AS")
def test_memory_is_limited() -> None:
    with ParserProcess(memory_bytes=300 * 2**20) as parser:
        with pytest.raises(LoaderError, match=r"memory|crashed"):
            text_of(parser, b"<p>word<b>x</b></p>" * 600_000)
        assert text_of(parser, PAGE) == "hello"


def test_the_child_ends_when_its_parent_is_killed() -> None:
    code = (
        "import os, signal\n"
        "from thresher.corpus.loaders import ParserProcess\nfrom thresher.corpus.loaders.formats import Format\n"
        "p = ParserProcess(); list(p.parts(b'<p>x</p>', Format.HTML)); print(p._child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pid = int(done.stdout)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and os.path.exists(f"/proc/{pid}/exe"):
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}/exe")


def test_the_child_does_not_load_the_models() -> None:
    code = "import sys, thresher.corpus.loaders.worker, thresher.corpus.loaders.html, thresher.corpus.loaders.pdf\n"
    code += "print(sorted({'torch', 'chromadb', 'tantivy', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_process_with_many_open_files_reads_what_its_child_says() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = 1_500
    if hard != resource.RLIM_INFINITY and hard <= high:
        pytest.skip(f"at most {hard} descriptors are allowed here")
    ours, theirs = os.pipe()
    try:
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, high + 1), hard))
        os.dup2(ours, high)
        os.write(theirs, b"\0\0\0\5frame")
        os.close(theirs)
        assert _receive_until(high, time.monotonic() + 5.0) == b"frame"
        assert _receive_until(high, time.monotonic() + 5.0) is None
    finally:
        os.close(ours)
        os.close(high)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
