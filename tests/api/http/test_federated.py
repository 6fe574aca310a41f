"""One search of several collections."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from keyed_support import code_of
from search_support import QUESTION, Gate, frames, look, serving
from support import prepare

from thresher.api.traces import read_traces, trace_path
from thresher.api.tracing import read_trace
from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.embedders import load_embedder
from thresher.corpus.paths import collection_path
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View

LETTERS = {
    "will.md": "In her will of 1961 Edda Brask left the Brask works to her niece Ione.",
    "ferry.md": "Dear Ione, the ferry Alma sails again. The founder of the line is dead.",
}
BOTH = {"query": QUESTION, "collections": ["harbour", "letters"]}


@pytest.fixture(scope="module")
def letters_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    embedder = load_embedder("wordllama")
    path = tmp_path_factory.mktemp("template") / "letters"
    with Collection.create(path, embedder, name="letters") as collection:
        for document_id, text in LETTERS.items():
            document = Document(document_id, f"file:///letters/{document_id}", document_id, text, {}, document_id)
            collection.upsert([prepare(document, embedder=embedder)], source_id=document_id)
    return path


@pytest.fixture(autouse=True)
def both(harbour: str, letters_template: Path) -> None:
    shutil.copytree(letters_template, collection_path("letters"))


def taking_all(_: Collection) -> ScriptedPolicy:
    """Search, then finish with all that was found and a quote of the founder."""

    def finish(view: View) -> Decision:
        found = [e.id for e in view.live]
        quotes = {e.id: "Edda Brask" for e in view.live if "Edda Brask" in e.text}
        fields = {"evidence_ids": found, "quotes": quotes, "sufficient": bool(quotes), "justification": "All of it."}
        return Decision((ToolUse("finish", fields),))

    return ScriptedPolicy([look, finish])


async def test_results_say_which_collection_they_stand_in(harbour: str) -> None:
    async with serving(taking_all) as (http, _):
        body = (await http.post("/v1/search", json=BOTH)).json()
    assert (body["status"], body["stop_reason"], body["sufficient"]) == ("completed", "finished", True)
    assert body["collections"] == ["harbour", "letters"]
    found = body["results"]
    assert [item["id"] for item in found] == [f"c{n}" for n in range(1, len(found) + 1)]
    assert {(item["collection"], item["document_id"]) for item in found} >= {
        ("harbour", "brask.md"),
        ("harbour", "ferry.md"),
        ("letters", "will.md"),
        ("letters", "ferry.md"),
    }
    assert [item["score"] for item in found] == sorted((item["score"] for item in found), reverse=True)
    assert {item["collection"] for item in found[:2]} == {"harbour", "letters"}  # fused by rank: the first of each
    texts = {item["id"]: item for item in found}
    assert {texts[citation["id"]]["collection"] for citation in body["citations"]} == {"harbour", "letters"}
    for citation in body["citations"]:
        start = citation["start"] - texts[citation["id"]]["start"]
        assert texts[citation["id"]]["text"][start:].startswith("Edda Brask")
    assert body["usage"]["turns"] == 4


@pytest.mark.parametrize("effort", ["minimal", "low"])
async def test_the_list_is_cut_to_what_was_asked_for(effort: str) -> None:
    async with serving(policy=None) as (http, _):
        body = (await http.post("/v1/search", json={**BOTH, "effort": effort, "max_results": 3})).json()
    assert len(body["results"]) == 3
    assert {item["collection"] for item in body["results"]} == {"harbour", "letters"}
    assert len({item["id"] for item in body["results"]}) == 3


async def test_the_trace_holds_a_search_of_each(harbour: str) -> None:
    async with serving(taking_all) as (http, _):
        body = (await http.post("/v1/search", json={**BOTH, "include_trace": True})).json()
        trace = (await http.get(f"/v1/searches/{body['id']}/trace")).json()
        page = await http.get(f"/v1/searches/{body['id']}/trace", params={"format": "html"})
    assert trace == body["trajectory"]
    assert trace["returned"] == [item["id"] for item in body["results"]]
    assert [each["id"] for each in trace["subagents"]] == [
        f"{body['id']}/collection:harbour",
        f"{body['id']}/collection:letters",
    ]
    kept = {each["id"]: each for each in trace["evidence"]}
    for item in body["results"]:
        assert kept[item["id"]]["text"] == item["text"]
        assert kept[item["id"]]["agent"] == f"collection:{item['collection']}"
    [stored] = read_traces(trace_path(body["id"]))
    assert [agent.name for agent in read_trace(stored).agents] == ["collection harbour", "collection letters"]
    assert "collection letters" in page.text


async def test_events_say_which_collection_they_are_of(harbour: str) -> None:
    async with (
        serving(taking_all) as (http, _),
        http.stream("POST", "/v1/search", json={**BOTH, "stream": True}) as response,
    ):
        told = [frame async for frame in frames(response)]
    assert [frame.event for frame in told].count("search.created") == 1
    assert told[0].data["collections"] == ["harbour", "letters"]
    assert {frame.data["search_id"] for frame in told} == {told[0].data["search_id"]}
    for kind in ("turn.started", "tool.called", "tool.result", "result.added"):
        assert {frame.data["collection"] for frame in told if frame.event == kind} == {"harbour", "letters"}
    added = [frame.data["id"] for frame in told if frame.event == "result.added"]
    assert added == [item["id"] for item in told[-1].data["response"]["results"]]


async def test_an_answer_is_written_from_all_of_it() -> None:
    async with serving(policy=None) as (http, _):
        body = (
            await http.post(
                "/v1/search",
                json={**BOTH, "query": "Who founded the Brask works?", "include_answer": True, "effort": "low"},
            )
        ).json()
    assert body["answer"] or body["answer_withheld"]
    ids = {item["id"] for item in body["results"]}
    assert {citation["id"] for citation in body["citations"]} <= ids


async def test_feedback_takes_the_ids_of_the_fused_list() -> None:
    async with serving(taking_all) as (http, _):
        body = (await http.post("/v1/search", json=BOTH)).json()
        evidence = {item["id"]: item["collection"] == "letters" for item in body["results"]}
        response = await http.post(f"/v1/searches/{body['id']}/feedback", json={"rating": 1, "evidence": evidence})
    assert response.status_code == 201


async def test_a_collection_that_is_not_there_refuses_all() -> None:
    async with serving(taking_all) as (http, _):
        refused = await http.post("/v1/search", json={**BOTH, "collections": ["harbour", "nowhere"]})
        assert (refused.status_code, code_of(refused)) == (404, "collection_not_found")
        twice = (await http.post("/v1/search", json={**BOTH, "collections": ["harbour", "harbour"]})).json()
    assert twice["collections"] == ["harbour"]
    assert {item["collection"] for item in twice["results"]} == {"harbour"}


async def test_a_collection_that_cannot_be_searched_is_a_warning() -> None:
    def only_letters(collection: Collection) -> ScriptedPolicy:
        if collection.name == "harbour":
            raise RuntimeError("secret detail")
        return taking_all(collection)

    async with serving(only_letters) as (http, _):
        body = (await http.post("/v1/search", json=BOTH)).json()
    assert body["status"] == "completed"
    assert {item["collection"] for item in body["results"]} == {"letters"}
    assert [w for w in body["warnings"] if w.startswith("collection 'harbour' could not be searched: ")]
    assert "secret" not in str(body)


@pytest.mark.parametrize("left", [["harbour"], ["harbour", "copy"]])
async def test_a_collection_that_cannot_be_opened_is_a_warning(left: list[str], thresher_home: Path) -> None:
    shutil.copytree(collection_path("harbour"), collection_path("copy"))
    (collection_path("letters") / "manifest.json").write_text("damaged")
    (collection_path("letters") / "corpus.db").write_text("damaged")
    async with serving(taking_all) as (http, _):
        body = (await http.post("/v1/search", json={**BOTH, "collections": ["letters", *left]})).json()
        alone = await http.post("/v1/search", json={**BOTH, "collections": ["letters"]})
    assert body["status"] == "completed"
    assert {item["collection"] for item in body["results"]} <= set(left)
    assert body["results"]
    assert [w for w in body["warnings"] if w.startswith("collection 'letters' could not be searched: ")]
    assert str(thresher_home) not in str(body)
    assert code_of(alone) == "collection_damaged"


async def test_if_none_can_be_searched_it_is_an_error() -> None:
    def broken(_: Collection) -> ScriptedPolicy:
        raise RuntimeError("secret detail")

    async with serving(broken) as (http, _):
        response = await http.post("/v1/search", json=BOTH)
    assert (response.status_code, code_of(response)) == (500, "internal_error")


async def test_a_deadline_ends_all_of_them() -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, _):
        await http.post("/v1/search", json={**BOTH, "effort": "minimal"})  # both are open now
        body = (await http.post("/v1/search", json={**BOTH, "deadline_s": 1.5})).json()
    assert (body["status"], body["stop_reason"]) == ("partial", "deadline")
    assert {item["collection"] for item in body["results"]} == {"harbour", "letters"}


async def test_rollouts_of_several_collections() -> None:
    async with serving(taking_all) as (http, _):
        body = (await http.post("/v1/search", json={**BOTH, "rollouts": 2, "include_trace": True})).json()
    assert body["status"] == "completed"
    assert {item["collection"] for item in body["results"]} == {"harbour", "letters"}
    assert [len(each["subagents"]) for each in body["trajectory"]["subagents"]] == [2, 2]
