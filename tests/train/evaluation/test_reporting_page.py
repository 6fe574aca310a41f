"""A report as one HTML file: its cells, and that nothing reaches it or leaves it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag
from hypothesis import given, settings
from hypothesis import strategies as st
from reporting_support import BASELINE, evaluation, hostile, many, one_set, sample, summary

from thresher.train.evaluation.reporting.page import page

ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "a", "header", "nav", "main", "footer", "section", "p"),
    *("h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "code", "div", "table", "thead", "tbody", "tr", "th", "td"),
    *("strong", "span", "bdi", "details", "summary", "figure", "figcaption", "img"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "href", "class", "id", "dir", "scope", "tabindex", "role"),
    *("aria-label", "aria-labelledby", "src", "alt"),
}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A picture that would run a script if it were part of the page."""
    file = tmp_path / "recall-context.svg"
    file.write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>', encoding="utf-8")
    return file


def soup(data: dict[str, Any], *plots: Path) -> BeautifulSoup:
    return BeautifulSoup(page(data, plots), "lxml")


def cells(part: Tag, title: str) -> list[list[str]]:
    listing = part.find("div", attrs={"aria-label": title})
    assert isinstance(listing, Tag)
    return [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in listing.find_all("tr")]


def section(data: dict[str, Any], name: str) -> Tag:
    [found] = [part for part in soup(data).find_all("section") if part.h2 and part.h2.get_text() == name]
    return found


def test_tables_are_those_of_the_markdown() -> None:
    musique = section(sample(), "musique")
    assert cells(musique, "Results")[2][:4] == ["rules", "69.3", "77.6", "14.4"]
    assert cells(musique, "Differences to one-search")[1][2] == "+13.6 (+11.0 to +16.3)"
    [*strong] = [item.get_text() for item in musique.find_all("strong")]
    assert strong == ["+13.6", "+31,000"]
    assert cells(section(sample(), "Failures (1)"), "Failures")[1][3] == "ToolError: it | broke\nhere"
    assert cells(section(sample(), "Overall"), "Results")[1][:3] == [BASELINE, "54.2", "63.9"]


def test_questions_that_were_won_and_lost_come_first() -> None:
    musique = section(sample(), "musique")
    groups = musique.find_all("details", class_="group")
    assert [group.summary.get_text() for group in groups] == ["Won (2)", "Lost (1)", "The same (1)", "Without gold (1)"]
    won = [question.summary for question in groups[0].find_all("details")]
    assert [said.bdi.get_text() for said in won] == ["won much", "won a little"]
    assert won[0].find("span", class_="good").get_text() == "+100.0 rules"
    assert groups[1].find("span", class_="bad").get_text() == "-50.0 rules"
    assert cells(groups[0], "Systems on won much") == [
        ["system", "recall@10", "sufficient", "searches", "peak context", "seconds", "ended by"],
        [BASELINE, "0.0", "–", "1", "900", "0.250", "finished"],
        ["rules", "100.0", "–", "1", "900", "0.250", "finished"],
    ]
    assert "recall@10" not in cells(groups[3], "Systems on open")[0]


def test_its_policy_allows_its_own_style_alone() -> None:
    found = soup(sample())
    meta = found.find("meta", attrs={"http-equiv": "Content-Security-Policy"})
    assert isinstance(meta, Tag)
    [style] = found.find_all("style")
    digest = base64.b64encode(hashlib.sha256(style.string.encode()).digest()).decode()
    assert meta["content"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_it_loads_nothing(picture: Path) -> None:
    found = soup(sample(), picture)
    assert found.find_all(["script", "link", "iframe", "object", "embed", "svg"]) == []
    assert "url(" not in found.style.string
    assert "@import" not in found.style.string
    for element in found.find_all(href=True):
        target = element["href"]
        assert target.startswith("#")
        assert found.find(id=target[1:]) is not None
    [image] = found.find_all(src=True)
    kind, encoded = image["src"].split(",")
    assert (image.name, kind) == ("img", "data:image/svg+xml;base64")
    assert base64.b64decode(encoded) == picture.read_bytes()


def test_a_page_without_pictures_and_rows() -> None:
    found = soup(many(10))
    assert found.find("figure") is None
    assert found.find("details") is None
    assert len(cells(section(many(10), "musique"), "Results")) == 12


@pytest.mark.parametrize(
    "data",
    [
        evaluation([]),
        {"object": "evaluation"},
        evaluation([one_set("nothing", {BASELINE: summary(stop_reasons={})}, with_gold=0, questions=0)]),
    ],
)
def test_nothing_measured(data: dict[str, Any]) -> None:
    assert soup(data).find("div", attrs={"aria-label": "Results"}) is None
    assert "How to read this" in page(data)


def shape(found: BeautifulSoup) -> list[str]:
    return [element.name for element in found.find_all(True)]


@cache
def harmless() -> list[str]:
    return shape(soup(hostile("x")))


HOSTILE = st.one_of(
    st.text(min_size=1, max_size=40),
    st.text(st.sampled_from("<>/\"'=&;! -scriptonload\x00\n\u202e\ud800"), min_size=1, max_size=40),
    st.sampled_from(
        [
            "</td></table><script>alert(1)</script>",
            '" onclick="alert(1)',
            "<!--",
            "]]>",
            "</style><img src=x onerror=alert(1)>",
            "&lt;b&gt;",
            "javascript:alert(1)",
            "<svg/onload=alert(1)>",
        ]
    ),
)


@settings(max_examples=40, deadline=None)
@given(HOSTILE)
def test_no_text_of_the_data_becomes_markup(text: str) -> None:
    if text in (BASELINE, "finished"):
        return
    found = soup(hostile(text))
    assert {element.name for element in found.find_all(True)} <= ELEMENTS
    assert {name for element in found.find_all(True) for name in element.attrs} <= ATTRIBUTES
    assert all(element["href"].startswith("#") for element in found.find_all(href=True))
    assert shape(found) == harmless()


def test_text_is_shown_as_it_is() -> None:
    found = soup(hostile("<b>&amp;\"'"))
    assert found.find("h2", id="set-0-title").get_text() == "<b>&amp;\"'"
    assert "<b>&amp;" in re.sub(r"\s+", " ", found.code.get_text())
