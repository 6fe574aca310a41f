"""The Python client, blocking and asynchronous, against a real server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from keyed_support import make_key
from live_support import live_server

from thresher.api.client import (
    AsyncClient,
    AuthenticationError,
    Client,
    ConnectionFailed,
    Event,
    InvalidReply,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    RateLimited,
    RequestTimeout,
    ResultAdded,
    Retries,
    SearchCreated,
    SearchEnded,
    ThresherError,
    ToolCalled,
    ToolResult,
    TurnStarted,
)
from thresher.api.client.errors import retry_after
from thresher.api.client.events import Parser
from thresher.api.config import load_settings
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.policy import Decision, View

QUESTION = "Who founded the Brask works?"
NEVER = Retries(limit=0)
QUICK = Retries(limit=20, first_s=0.05, longest_s=5)


class Gate:
    """Makes policies that wait in their first turn until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> None:
        while not self._opened.is_set():  # noqa: ASYNC110  another thread opens it
            await asyncio.sleep(0.005)

    def __call__(self, collection: Any) -> Any:
        gate, own = self, BuiltinPolicy(collection)

        class Waiting:
            name = "waiting"

            async def decide(self, view: View) -> Decision:
                gate.reached.set()
                await gate.passed()
                return await own.decide(view)

        return Waiting()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def client(harbour_url: str) -> Iterator[Client]:
    with Client(harbour_url, retries=NEVER) as made:
        yield made


def test_search_answers_with_types(client: Client) -> None:
    found = client.search(QUESTION, effort="low", include_answer=True, collections="harbour", max_results=3)
    assert found.status == "completed"
    assert found.answer is not None
    assert "Edda Brask" in found.answer
    assert found.citations
    assert {result.collection for result in found.results} == {"harbour"}
    assert len(found.results) <= 3


def test_streamed_search_tells_typed_events_and_ends_with_the_response(client: Client) -> None:
    with client.stream(QUESTION, effort="low") as events:
        told = list(events)
    assert [event.number for event in told] == list(range(1, len(told) + 1))
    created, last = told[0], told[-1]
    assert isinstance(created, SearchCreated)
    assert (created.query, created.effort) == (QUESTION, "low")
    assert isinstance(last, SearchEnded)
    assert last.response.id == created.search_id
    assert last.response.results[0].id == next(event.id for event in told if isinstance(event, ResultAdded))
    assert all(type(event) is not Event for event in told), [event for event in told if type(event) is Event]
    assert {TurnStarted, ToolCalled, ToolResult} <= {type(event) for event in told}


def test_leaving_a_stream_ends_the_search(harbour: str, gate: Gate) -> None:
    with live_server(policy=gate) as url, Client(url) as client:
        with client.stream(QUESTION, effort="low") as events:
            search_id = next(iter(events)).data["search_id"]
            assert gate.reached.wait(30)
        ended = client.searching(search_id).wait(30)
    assert ended.status == "cancelled"


def test_background_search_is_waited_for_followed_again_and_listed(harbour: str, gate: Gate) -> None:
    with live_server(policy=gate) as url, Client(url) as client:
        search = client.start(QUESTION, effort="low")
        assert gate.reached.wait(30)
        assert search.get().status == "running"
        with pytest.raises(RequestTimeout, match="goes on"):
            search.wait(0.05)
        gate.open()
        seen: list[Event] = []
        found = search.wait(30, on_event=seen.append)
        assert found.status == "completed"
        assert found == search.get()
        half = len(seen) // 2
        # Another process, which knows the id only, goes on where this one stopped.
        with Client(url) as other:
            rest = list(other.searching(search.id).events(after=seen[half - 1].number))
            assert rest == seen[half:]
            assert list(other.searching(search.id).events(after=seen[-1].number)) == []
        assert [summary.id for summary in client.searches()] == [search.id]
        assert search.trace()["turns"]
        search.delete()
        with pytest.raises(NotFound):
            search.get()


def test_background_search_is_cancelled(harbour: str, gate: Gate) -> None:
    with live_server(policy=gate) as url, Client(url) as client:
        search = client.start(QUESTION, effort="low")
        assert gate.reached.wait(30)
        assert search.cancel().status == "cancelled"
        assert search.wait(30).status == "cancelled"


def test_events_go_on_over_a_server_that_was_restarted(harbour: str, gate: Gate) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    first_went, told = threading.Event(), []

    def follow() -> None:
        with Client(f"http://127.0.0.1:{port}", retries=QUICK) as client:
            for event in client.searching(search.id).events(timeout_s=60):
                told.append(event)
                first_went.set()

    with live_server(policy=gate, port=port, grace_s=0, shutdown_grace_s=0.1) as url, Client(url) as client:
        search = client.start(QUESTION, effort="low")
        listening = threading.Thread(target=follow)
        listening.start()
        assert first_went.wait(30)
    with live_server(port=port):
        listening.join(60)
    assert not listening.is_alive()
    assert isinstance(told[-1], SearchEnded)
    assert told[-1].response.status == "completed"
    assert "search.restarted" in [event.type for event in told]
    numbers = [event.number for event in told]
    assert numbers == sorted(set(numbers))


def test_feedback_retrieve_and_fetch(client: Client) -> None:
    found = client.search("Edda Brask", effort="minimal")
    assert client.feedback(found.id, "up", evidence={found.results[0].id: True}, comment="as it should be")
    assert client.signal(found.id, "opened", found.results[0].id) is False  # this server collects nothing
    assert client.signal(found.id, "abandoned") is False
    with pytest.raises(InvalidRequest, match="evidence_id"):
        client.signal(found.id, "cited")
    assert client.retrieve("Edda Brask", max_results=2).results[0].document_id == "brask.md"
    grepped = client.retrieve(r"Port\s+Ellin", mode="grep", collections=["harbour"])
    assert {result.document_id for result in grepped.results} == {"corran.md"}
    fetched = client.fetch("brask.md", max_tokens=8)
    assert (fetched.start, fetched.title) == (0, "Brask")
    text = fetched.text
    while fetched.next_start is not None:
        fetched = client.fetch("brask.md", start=fetched.next_start, max_tokens=8)
        text += fetched.text
    assert "The founder of the Brask works was Edda Brask." in text


def test_collections_and_documents(client: Client) -> None:
    client.create_collection("letters")
    assert [found.name for found in client.collections()] == ["harbour", "letters"]
    ids = ["plain", "a/../b", "folder/with spaces?#%2F", "…/ü", ".."]
    put = client.put_documents(
        "letters",
        [{"id": name, "text": f"The letter {n} speaks of fog.", "metadata": {"n": n}} for n, name in enumerate(ids)],
    )
    assert [(one.id, one.status) for one in put.results] == [(name, "written") for name in ids]
    report = client.put_documents(
        "letters", [{"id": "plain", "text": "The letter 0 speaks of fog."}, {"id": "no", "text": ""}]
    )
    assert (report.refused, report.results[1].status) == (1, "refused")
    assert report.results[1].reason
    assert {document.id for document in client.documents("letters")} == set(ids)
    for n, name in enumerate(ids):
        document = client.document("letters", name)
        assert (document.id, document.metadata) == (name, {"n": n} if n else {})
        assert document.text == f"The letter {n} speaks of fog."
        client.delete_document("letters", name)
        with pytest.raises(NotFound):
            client.document("letters", name)
    assert list(client.documents("letters")) == []
    client.delete_collection("letters")
    with pytest.raises(NotFound):
        client.collection("letters")


def test_lists_are_read_page_by_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.api.client.calls.PAGE", 2)
    assert [document.id for document in client.documents("harbour")] == ["brask.md", "corran.md", "ferry.md"]


def test_upload_is_a_job_whose_progress_is_told(client: Client, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("The lighthouse of Holm was lit in 1902.")
    job = client.upload("harbour", note, ("second.md", b"# Fog\n\nThe fog of 1903 lasted a week."))
    seen: list[str] = []
    done = job.wait(60, on_progress=lambda one: seen.append(one.status))
    assert done.status == "succeeded"
    assert seen[-1] == "succeeded"
    assert done.files == ["note.txt", "second.md"]
    found = client.search("When was the lighthouse lit?", effort="minimal", max_results=1)
    assert "1902" in found.results[0].text
    assert [one.id for one in client.jobs()] == [job.id]
    assert client.job(job.id).job == done
    assert client.maintain("harbour", "verify").wait(60).status == "succeeded"


def test_errors_have_their_class_and_all_that_the_server_says(client: Client) -> None:
    with pytest.raises(NotFound) as missing:
        client.search("fog", collections=["nowhere"], effort="minimal")
    error = missing.value
    assert (error.status, error.code, error.param) == (404, "collection_not_found", "collections")
    assert error.type == "not_found_error"
    assert error.request_id is not None
    assert error.request_id in str(error)
    with pytest.raises(InvalidRequest) as invalid:
        client.search("fog", max_results=0)
    assert invalid.value.param == "max_results"
    with pytest.raises(InvalidRequest, match="unicode"):
        client.search("fog \ud800", effort="minimal")
    with pytest.raises(ValueError, match="surrogates"):
        client.document("harbour", "\ud800")
    with pytest.raises(ValueError, match="empty"):
        client.delete_document("harbour", "")


def test_keys_and_scopes(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = make_key(tenant="", scopes=["search"])
    with live_server(require_key=True) as url:
        with Client(url, retries=NEVER) as client, pytest.raises(AuthenticationError) as refused:
            client.search("fog", effort="minimal")
        assert refused.value.status == 401
        monkeypatch.setenv("THRESHER_URL", url)
        monkeypatch.setenv("THRESHER_CLIENT_KEY", key)
        load_settings()  # the client's variables are no mistake on the server's side
        with Client(retries=NEVER) as client:
            assert client.base_url == url
            assert client.search("fog", effort="minimal").status == "completed"
            with pytest.raises(PermissionDenied) as denied:
                client.delete_document("harbour", "ferry.md")
            assert denied.value.code == "missing_scope"
            shown = f"{client!r} {client.__dict__!r} {denied.value!r}"
    assert key not in shown


@pytest.mark.parametrize(
    "url", ["localhost:8420", "ftp://x", "http://key:secret@host", "http://h?key=secret", "http://"]
)
def test_addresses_that_cannot_be_are_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match="base_url") as refused:
        Client(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["", "  ", "two\nlines", "schlüssel"])
def test_keys_that_no_header_can_carry_are_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match="key") as refused:
        Client("http://localhost", key)
    assert "schl" not in str(refused.value)


def test_a_full_server_is_tried_again_when_it_says_so(harbour: str, gate: Gate) -> None:
    with live_server(policy=gate, max_searches=1) as url, Client(url) as client:
        first = threading.Thread(target=client.search, args=(QUESTION,), kwargs={"effort": "low"})
        first.start()
        assert gate.reached.wait(30)
        with Client(url, retries=NEVER) as hasty, pytest.raises(RateLimited) as full:
            hasty.search("fog", effort="minimal")
        assert (full.value.status, full.value.code, full.value.retry_after) == (429, "too_many_searches", 1)
        with Client(url, retries=Retries(limit=5, longest_s=0.5)) as impatient, pytest.raises(RateLimited):
            impatient.search("fog", effort="minimal")  # the server asks for a longer wait than this one takes
        opening = threading.Timer(0.2, gate.open)
        opening.start()
        with Client(url, retries=QUICK) as patient:
            assert patient.search("fog", effort="minimal").status == "completed"
        first.join()


def test_a_request_that_was_sent_twice_is_one_search(client: Client) -> None:
    once = client.search("fog", effort="minimal", idempotency_key="the-same")
    again = client.search("fog", effort="minimal", idempotency_key="the-same")
    assert once.id == again.id
    assert [summary.id for summary in client.searches()] == [once.id]
    assert client.search("fog", effort="minimal").id != once.id


class Flaky:
    """A listener that answers each connection with the next of `replies`, or breaks it off where there is none."""

    def __init__(self, *replies: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self._replies = replies
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Flaky:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)
        self._listener.close()

    def _serve(self) -> None:
        for reply in self._replies:
            connection, _ = self._listener.accept()
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65_536)
                self.requests.append(request)
                connection.sendall(reply)


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


LIST = b'{"object":"list","data":[],"has_more":false,"next":null}'
JOB = b'{"id":"job_1","kind":"verify","status":"queued"}'


def test_a_broken_connection_is_made_again_where_that_is_safe() -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"
    with Flaky(b"", cut, answer("200 OK", LIST)) as flaky, Client(flaky.url, retries=QUICK) as client:
        assert list(client.collections()) == []
    assert len(flaky.requests) == 3
    with (
        Flaky(b"") as flaky,
        Client(flaky.url, retries=QUICK) as client,
        pytest.raises(ConnectionFailed, match="cannot talk to http://127") as lost,
    ):
        client.feedback("search_1", "up")  # twice it would count twice
    assert isinstance(lost.value.__cause__, httpx.TransportError)
    turned_away = answer("429 Too Many Requests")
    with Flaky(turned_away, answer("201 Created", b'{"id":"fb_1"}')) as flaky, Client(flaky.url) as client:
        assert client.feedback("search_1", "up") == "fb_1"  # what was turned away has not been counted


def test_a_search_is_sent_again_under_the_same_key() -> None:
    with (
        Flaky(b"", answer("503 Service Unavailable", b"<html>"), answer("200 OK", b"{}")) as flaky,
        Client(flaky.url, retries=QUICK) as client,
        pytest.raises(InvalidReply, match="base_url"),
    ):
        client.search("fog")
    keys = {
        line.split(b": ", 1)[1]
        for request in flaky.requests
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"idempotency-key:")
    }
    assert len(flaky.requests) == 3
    assert len(keys) == 1


def test_answers_that_are_none_of_ours_say_so() -> None:
    with (
        Flaky(answer("404 Not Found", b"<h1>nginx</h1>", "X-Request-ID: proxy-1")) as flaky,
        Client(flaky.url) as client,
        pytest.raises(NotFound) as missing,
    ):
        client.collection("harbour")
    assert (missing.value.code, missing.value.request_id) == ("", "proxy-1")
    with (
        Flaky(answer("302 Found", b"", "Location: http://127.0.0.1:1/")) as flaky,
        Client(flaky.url, "a-key") as client,
        pytest.raises(InvalidReply, match="redirects"),
    ):
        client.collection("harbour")  # the key is not carried elsewhere


def test_a_dead_server_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    once = Retries(limit=1, first_s=0.01)
    with Client(url, retries=once) as client, pytest.raises(ConnectionFailed, match=f"{url}.*thresher serve"):
        client.search("fog")


def test_waits_grow_are_spread_and_never_undercut_the_server() -> None:
    retries = Retries(limit=5, first_s=1, longest_s=8)
    error = ThresherError("x")
    for again, ceiling in enumerate([1, 2, 4, 8, 8], 1):
        waits = [retries.wait(again, error) or 0 for _ in range(200)]
        assert ceiling / 2 <= min(waits) < max(waits) <= ceiling
        assert len(set(waits)) > 100
    assert retries.wait(6, error) is None
    assert (retries.wait(1, ThresherError("x", retry_after=5)) or 0) >= 5
    assert retries.wait(1, ThresherError("x", retry_after=9)) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("-3", 0.0),
        ("nan", None),
        ("soon", None),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, now=datetime(2026, 11, 30, 12, tzinfo=UTC)) == seconds


def test_events_are_read_however_they_are_cut_and_whatever_ends_their_lines() -> None:
    stream = (
        ': hello\n\nevent: turn.started\nid: 1\ndata: {"turn":1,"prompt_tokens":9}\n\n'
        'event: x.y\nid: 2\ndata: {"a":\ndata:  "\u2028 ü"}\n\n: keep-alive\n\n'
        'data: {}\n\nevent: cut\ndata: {"lost":1}\n'
    )
    for text in (stream, stream.replace("\n", "\r\n"), stream.replace("\n", "\r")):
        raw = text.encode()
        for size in (1, 2, 3, 7, len(raw)):
            parser = Parser()
            told = [event for at in range(0, len(raw), size) for event in parser.feed(raw[at : at + size])]
            known = [(event.number, event.type, event.data) for event in told]
            assert known[0] == (1, "turn.started", {"turn": 1, "prompt_tokens": 9})
            assert known[1] == (2, "x.y", {"a": "\u2028 ü"})
            assert known[2:] == [(0, "message", {})]
            assert isinstance(told[0], TurnStarted)
    with pytest.raises(InvalidReply, match="not JSON"):
        list(Parser().feed(b"data: {\n\n"))


async def test_the_asynchronous_client_does_the_same(harbour_url: str, tmp_path: Path) -> None:
    async with AsyncClient(harbour_url, retries=NEVER) as client:
        found, same = await asyncio.gather(
            client.search(QUESTION, effort="low", include_answer=True), client.search(QUESTION, effort="minimal")
        )
        assert "Edda Brask" in (found.answer or "")
        assert same.results
        async with client.stream(QUESTION, effort="low") as events:
            told = [event async for event in events]
        assert isinstance(told[-1], SearchEnded)
        search = await client.start(QUESTION, effort="low")
        ended = await search.wait(30)
        assert ended == await search.get()
        again = [event async for event in search.events(after=3)]
        assert again[0].number == 4
        assert search.id in [summary.id async for summary in client.searches()]
        assert (await client.fetch("brask.md")).next_start is None
        assert (await client.retrieve("Edda Brask")).results
        assert await client.feedback(found.id, -1)
        assert await client.signal(found.id, "cited", found.results[0].id) is False
        assert (await client.search("Edda Brask", effort="minimal", collect=False, session="s")).results
        note = tmp_path / "note.txt"
        note.write_text("The lighthouse of Holm was lit in 1902.")
        job = await client.upload("harbour", note)
        progress: list[str] = []
        assert (await job.wait(60, on_progress=lambda one: progress.append(one.status))).status == "succeeded"
        assert progress[-1] == "succeeded"
        assert {document.id async for document in client.documents("harbour")} >= {"brask.md"}
        with pytest.raises(NotFound):
            await client.document("harbour", "none")
        assert repr(client) == f"AsyncClient('{harbour_url}')"


def test_both_clients_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)


def test_importing_the_client_loads_nothing_of_the_server() -> None:
    heavy = (
        "fastapi",
        "starlette",
        "uvicorn",
        "torch",
        "chromadb",
        "numpy",
        "tantivy",
        "thresher.corpus",
        "thresher.engine",
    )
    code = f"import sys, thresher.api.client; print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
