"""The page of a trace: complete by itself, sound as HTML, and nothing that a document says can become markup."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from face_support import Outcome
from trace_support import finish_step, prune_step, search_step, searched

from thresher.api.traces import find_trace, read_answer, with_trace_saved
from thresher.api.tracing import Prices, read_trace
from thresher.api.tracing.page import trace_page
from thresher.api.tracing.style import SCRIPT, STYLE
from thresher.context import Citation
from thresher.engine.policy import Decision, ToolUse
from thresher.engine.requests import Answer, SearchResult
from thresher.engine.trajectory import Trajectory
from thresher.train.markup import join, raw, tag, web_address

VOID = {"meta", "rect", "line", "br"}
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "' onmouseover='alert(5)",
    "</style></title></summary></details><iframe src=javascript:alert(6)>",
    "<!-- --><![CDATA[ ]]>&lt;b&gt;&#60;",
    "<a href='javascript:alert(7)'>x</a>",
    "\x1b[2J\x00\x07\u202egnirts\u2066",
)
EVIL = " marine engines ".join(HOSTILE)


class Page(HTMLParser):
    """A page, parsed: its elements, its text, and whether every element was closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.comments: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return "".join(self.text)


def trajectory_of(result: SearchResult) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


def hostile(folder: Path) -> Trajectory:
    """A search for hostile words, in hostile documents, with hostile arguments, titles, ids and addresses."""

    def odd_calls(view: object) -> Decision:
        return Decision(
            (
                ToolUse("search_corpus", {"query": EVIL}),
                ToolUse(f"no_such_tool{HOSTILE[2]}", {HOSTILE[0]: [HOSTILE[3]]}),
                ToolUse("prune_chunks", {"ids": [HOSTILE[1], HOSTILE[4]]}),
                ToolUse("grep_corpus", f"{{broken {EVIL}"),
            ),
            reasoning=EVIL,
            faults=(EVIL,),
        )

    texts = {"ferry.md": f"A ferry. {EVIL} Edda Brask.", "brask.md": f"{EVIL}\n\n{EVIL}"}
    trajectory = trajectory_of(
        searched(
            folder,
            odd_calls,
            search_step(EVIL),
            prune_step("brask.md"),
            finish_step("Edda Brask"),
            texts=texts,
            query=EVIL,
        )
    )
    addresses = ("javascript:alert(8)", "data:text/html,<script>alert(9)</script>", 'https://x/"onclick="alert(10)')
    spiked = tuple(
        replace(e, title=EVIL, document_id=EVIL, uri=addresses[n % 3], query=EVIL, agent=EVIL)
        for n, e in enumerate(trajectory.evidence)
    )
    changes = {
        "evidence": spiked,
        "id": f"search_{HOSTILE[0]}",
        "policy": EVIL,
        "profile": EVIL,
        "started_at": HOSTILE[2],
        "stop_reason": HOSTILE[3],
        "justification": EVIL,
        "error": EVIL,
    }
    evil = trajectory.model_copy(update=changes)
    agent = evil.model_copy(update={"id": f"{evil.id}/{HOSTILE[1]}"})
    return evil.model_copy(update={"subagents": (agent,)})


def answer_to(trajectory: Trajectory, text: str) -> Answer:
    source = next(e for e in trajectory.evidence if "Edda Brask" in e.text)
    start = source.start + source.text.index("Edda Brask")
    return Answer(text, (Citation(source.id, source.document_id, source.uri, start, start + 10, "Edda Brask"),))


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    trajectory = hostile(tmp_path)
    html = trace_page(read_trace(trajectory, answer_to(trajectory, EVIL)), Prices(1.0, 2.0, currency="<b>$</b>"))
    page = Page(html)
    counts = Counter(name for name, _ in page.elements)
    assert counts["script"] == counts["style"] == 1
    assert not counts.keys() & {"img", "iframe", "object", "embed", "form", "base", "link", "audio", "video"}
    assert page.comments == []
    assert f"<script>{SCRIPT}</script>" in html
    for name, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key in ("style", "src", "srcset", "action")], (
            name
        )
    for link in page.all("a"):
        assert re.match(r"#[a-z0-9-]+$|https?://", link["href"] or ""), link
    for words in HOSTILE[:8]:
        assert words in page.words, "it can be read as it stands in the document"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_the_page_is_complete_by_itself(tmp_path: Path) -> None:
    trajectory = hostile(tmp_path)
    page = Page(trace_page(read_trace(trajectory)))
    [policy] = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    for kind, content in (("style", STYLE), ("script", SCRIPT)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|innerHTML|eval\(", STYLE + SCRIPT)


def test_links_inside_lead_somewhere_and_ids_are_unique(tmp_path: Path) -> None:
    trajectory = trajectory_of(searched(tmp_path))
    agent = trajectory.model_copy(update={"id": f"{trajectory.id}/alpha"})
    nested = trajectory.model_copy(update={"subagents": (agent.model_copy(update={"subagents": (agent,)}), agent)})
    page = Page(trace_page(read_trace(nested, answer_to(trajectory, "Edda Brask."))))
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert [name for name, count in ids.items() if count > 1] == []
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch("h[1-6]", name)]
    assert all(below <= above + 1 for above, below in pairwise(levels)), "no heading is skipped"
    targets = {(link["href"] or "")[1:] for link in page.all("a") if (link["href"] or "").startswith("#")}
    assert targets <= ids.keys()
    described = {attributes["aria-labelledby"] for _, attributes in page.elements if "aria-labelledby" in attributes}
    assert described <= ids.keys()


def test_what_the_page_tells(tmp_path: Path) -> None:
    result = searched(tmp_path)
    trajectory = trajectory_of(result)
    html = trace_page(read_trace(trajectory, answer_to(trajectory, "It was Edda Brask.")), Prices(1.0, 2.0))
    page = Page(html)
    assert "Brask works founder" in page.words
    assert "Recovered: the name had a prefix" in page.words
    assert re.search(r"prune; removed c\d+", page.words)
    assert "1,500 of them in the server's cache" in page.words
    assert "USD" in page.words
    assert "checked: it stands there word for word" in page.words
    assert html.count("<mark>Edda Brask</mark>") == 3  # in the citation, in its source, among the passages
    assert len([1 for attributes in page.all("svg") if attributes.get("role") == "img"]) == 1
    assert [attributes.get("lang") for attributes in page.all("html")] == ["en"]
    assert len(page.all("h1")) == 1
    scrolling = [attributes for _, attributes in page.elements if "scroll" in (attributes.get("class") or "").split()]
    assert [attributes.get("tabindex") for attributes in scrolling] == ["0"] * 3, "keys reach what scrolls"
    for fate in ("★ returned 1", "• kept", "✗ pruned"):
        assert fate in page.words
    total = f"{trajectory.turns[-1].tokens_after:,}"
    assert total in page.words


def test_no_answer_is_told_with_its_reason(tmp_path: Path) -> None:
    trajectory = trajectory_of(searched(tmp_path))
    page = Page(trace_page(read_trace(trajectory, Answer("", withheld_reason="the evidence is silent"))))
    assert "No answer was given: the evidence is silent." in page.words


def test_a_trace_without_turns_has_a_page(tmp_path: Path) -> None:
    trajectory = trajectory_of(searched(tmp_path))
    bare = trajectory.model_copy(update={"turns": (), "opening": (), "evidence": (), "returned": (), "live": ()})
    assert "Search trace" in Page(trace_page(read_trace(bare))).words


def test_long_searches_keep_their_labels_apart(tmp_path: Path) -> None:
    trajectory = trajectory_of(searched(tmp_path))
    many = tuple(trajectory.turns[0].model_copy(update={"index": n, "events": ()}) for n in range(1, 201))
    html = trace_page(read_trace(trajectory.model_copy(update={"turns": many})))
    labels = re.findall(r'class="tick middle"', html)
    assert 10 <= len(labels) <= 24


def test_export_writes_one_page(tmp_path: Path, thresher_home: Path) -> None:
    result = searched(tmp_path)
    trajectory = trajectory_of(result)
    with_trace_saved(replace(result, answer=answer_to(trajectory, "It was Edda Brask.")))
    target = tmp_path / "trace.html"
    outcome = Outcome("trace", "export", "last", "--html", target, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json == {
        "object": "trace_export",
        "id": result.id,
        "file": str(target),
        "bytes": target.stat().st_size,
    }
    assert "It was Edda Brask." in Page(target.read_text(encoding="utf-8")).words
    again = Outcome("trace", "export", result.id, "--html", target)
    assert again.code == 2
    assert "add --overwrite" in again.err
    assert "is a folder; name a file in it" in Outcome("trace", "export", "last", "--html", thresher_home).err
    assert Outcome("trace", "export", result.id, "--html", target, "--overwrite").code == 0
    assert "answer: It was Edda Brask." in Outcome("trace", "show", "last").out


def test_an_answer_that_was_damaged_is_an_error(tmp_path: Path, thresher_home: Path) -> None:
    result = searched(tmp_path)
    with_trace_saved(result)
    path = find_trace("last")
    assert read_answer(path) is None
    path.with_suffix(".answer.json").write_text("{")
    outcome = Outcome("trace", "show", "last")
    assert outcome.code == 1
    assert "is not an answer: remove it" in outcome.err


def test_a_file_of_several_searches_has_no_page(tmp_path: Path) -> None:
    line = trajectory_of(searched(tmp_path)).model_dump_json()
    file = tmp_path / "two.jsonl"
    file.write_text(f"{line}\n{line}\n")
    outcome = Outcome("trace", "export", file, "--html", tmp_path / "x.html")
    assert outcome.code == 2
    assert "holds 2 searches" in outcome.err
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize("name", ["onclick", "on_load", "x y", 'a"b'])
def test_attributes_that_no_page_may_have(name: str) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        tag("p", **{name: "x"})


def test_markup_is_made_by_tags_alone() -> None:
    assert join("<b>", tag("i", "&"), None, [tag("br"), "'"]) == "&lt;b&gt;<i>&amp;</i><br>&#x27;"
    assert tag("a", "x", href='"><script>', hidden=True, open=False) == (
        '<a href="&quot;&gt;&lt;script&gt;" hidden>x</a>'
    )
    with pytest.raises(ValueError, match="no name of an element"):
        tag("b><script")
    with pytest.raises(ValueError, match="closing tag"):
        raw("script", "x </script>")


@pytest.mark.parametrize(
    ("uri", "leads"),
    [
        ("https://example.org/a", True),
        ("HTTP://example.org", True),
        ("javascript:alert(1)", False),
        (" javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,x", False),
        ("file:///etc/passwd", False),
        ("//example.org", False),
        ("http:alert", False),
        ("https://[broken", False),
    ],
)
def test_only_web_addresses_become_links(uri: str, leads: bool) -> None:
    assert (web_address(uri) is not None) is leads
