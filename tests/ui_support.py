"""The page as tests and screenshots use it: a real server in this process, and a real Chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.corpus.collection import Collection
from thresher.engine.policies import make_policy
from thresher.engine.policy import Decision, Policy, View

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

PATIENCE_S = 60
WAIT_MS = float(os.environ.get("THRESHER_TEST_WAIT_MS", "30000"))

QUESTION = (
    "At which university did the principal investigator of the grant that paid for the buoy found drifting off Orrin "
    "take her doctorate?"
)

HOSTILE = "hostile/😈 notes.txt"
QUOTE = "The keeper of the Zwarte lamp was paid 4 🪙 a week by Ottoline Quarles."
HOSTILE_TEXT = (
    "🦭🦭🦭 <script>window.hacked = 'script'</script> <img src=x onerror=\"window.hacked = 'image'\">\n\n"
    "The Zwarte lamp 🔦 stood on the mole. </p></li></main> &lt;b&gt; &amp; \u202erevo dna revo\u202c 👩‍👩‍👧‍👦\n\n"
    f"{QUOTE} Nobody else was paid at all.\n\n"
    '<a href="javascript:window.hacked=1">press</a> {{7*7}} ${window.hacked = 2}\n'
)


def chromium() -> str | None:
    """A Chromium on this machine; THRESHER_TEST_CHROMIUM names one that is not on PATH."""
    named = os.environ.get("THRESHER_TEST_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return named or next((found for name in names if (found := shutil.which(name))), None)


def launch(playwright: Playwright, path: str) -> Browser:
    """Start it. Chromium's sandbox does not work for root, who runs tests in containers."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=path, args=sandbox)


@contextmanager
def page_server(
    policy: Callable[[Collection], Policy] | None = None, *, port: int = 0, **settings: Any
) -> Iterator[str]:
    """Serve the application on a port of loopback, 0 for a free one, in a thread; the base URL."""
    # By the rules: these tests are of the page, and want a question that is answered.
    usual = {"chroma": "in-process", "embedder": "wordllama", "policy": "builtin:rules"}
    app = create_app(Settings(**{**usual, **settings}), policy=policy)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()  # who comes early waits
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not stop"


class Gate:
    """Lets policies take as many turns as it is told to, so that a test sees what stands between two of them."""

    def __init__(self, turns: int = 0) -> None:
        self._turns = turns
        self._lock = threading.Lock()

    def let(self, turns: int = 1) -> None:
        """Let them go on."""
        with self._lock:
            self._turns += turns

    async def passed(self) -> None:
        """Wait for one turn's leave."""
        while True:
            with self._lock:
                if self._turns > 0:
                    self._turns -= 1
                    return
            await asyncio.sleep(0.01)

    def policy(self, collection: Collection) -> Policy:
        """The builtin policy behind the gate, by its rules."""
        return _Gated(make_policy("builtin:rules")(collection), self)


class _Gated:
    def __init__(self, inner: Policy, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def decide(self, view: View) -> Decision:
        await self._gate.passed()
        return await self._inner.decide(view)


def sample_documents() -> Path:
    """The packaged sample corpus."""
    from importlib.resources import files

    return Path(str(files("thresher.corpus"))) / "sample" / "docs"


@dataclass
class Watched:
    """A page, and all that went on in it. `tolerated` are console messages that a test brings about."""

    page: Any
    origin: str = ""
    tolerated: tuple[str, ...] = ()
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def open(self, base: str, place: str = "/ui") -> Any:
        """Go to a server's page; the page."""
        self.origin = base
        self.page.goto(base + place)
        return self.page

    def check(self) -> None:
        """Nothing was asked of anybody but the server, and nothing broke."""
        strangers = [url for url in self.requests if not url.startswith(f"{self.origin}/")]
        assert not strangers, f"asked for {strangers}"
        left = [problem for problem in self.problems if not any(words in problem for words in self.tolerated)]
        assert not left, left
        assert self.page.evaluate("window.hacked") is None


def ask(page: Any, question: str, *, effort: str = "Medium") -> None:
    """Search by mouse."""
    page.get_by_label("Question").fill(question)
    page.get_by_label(effort, exact=True).check()
    page.get_by_role("button", name="Search", exact=True).click()


def search_id(page: Any) -> str:
    return str(page.evaluate("location.hash.split('/')[2]"))


def wait_for_end(page: Any) -> None:
    page.locator("#result .verdict").wait_for()
