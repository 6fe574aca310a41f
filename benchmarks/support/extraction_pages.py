"""Pages whose main text is known, since they are made of it: boilerplate of many kinds around known paragraphs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from zlib import crc32

LANGUAGES = {
    "en": (
        "In {year} the harbour of {place} counted {n} ships, most of them loaded with grain from the north.",
        "The keeper {name} wrote down every storm, and {n} of these notes are still kept in {place}.",
        "Nobody in {place} believed that the bridge would stand longer than {n} winters.",
        "After the fire of {year} the yard was moved to {place}, where {name} led it for {n} years.",
        "A letter of {name} says that the engine cost {n} crowns and was never paid for.",
    ),
    "de": (
        "Im Jahr {year} zählte der Hafen von {place} {n} Schiffe, die meisten mit Getreide aus dem Norden beladen.",
        "Der Wärter {name} schrieb jeden Sturm auf; {n} dieser Blätter liegen noch heute in {place}.",
        "Niemand in {place} glaubte, dass die Brücke mehr als {n} Winter überstehen würde.",
        "Nach dem Brand von {year} zog die Werft nach {place}, wo {name} sie {n} Jahre lang führte.",
    ),
    "ru": (
        "В {year} году в гавани города {place} стояло {n} судов, и почти все они были гружены зерном.",
        "Смотритель {name} записывал каждую бурю, и {n} таких записей до сих пор хранятся в {place}.",
        "Никто в {place} не верил, что мост простоит дольше {n} зим.",
        "После пожара {year} года верфь перенесли в {place}, где ею {n} лет руководил {name}.",
    ),
    "zh": (
        "{year}年，{place}港共有{n}艘船，其中大部分装载着来自北方的粮食。",
        "看守人{name}记录了每一场风暴，其中{n}份笔记至今仍保存在{place}。",
        "{place}没有人相信这座桥能撑过{n}个冬天。",
        "{year}年的大火之后，船厂迁到了{place}，由{name}领导了{n}年。",
    ),
    "ar": (
        "في عام {year} كان في ميناء {place} نحو {n} سفينة، معظمها محمل بالحبوب القادمة من الشمال.",
        "كتب الحارس {name} عن كل عاصفة، ولا تزال {n} من هذه الأوراق محفوظة في {place}.",
        "لم يصدق أحد في {place} أن الجسر سيصمد أكثر من {n} شتاء.",
    ),
}
_PLACES = ("Port Ellin", "Holm", "Varnby", "Castra", "Oldmere", "Teviot", "Senlac", "Marhaven")
_NAMES = ("Edda Brask", "Tomas Corran", "Ilse Varga", "Jon Petrel", "Mina Okafor", "Ravi Alder")
_MENU = ("Home", "News", "Shop", "About us", "Careers", "Contact", "Press room", "Sign in")


@dataclass(frozen=True)
class Page:
    """A page. `wanted` are the lines of its main text; `either` may come or not (titles, dates, comments)."""

    kind: str
    language: str
    html: str
    wanted: tuple[str, ...]
    either: tuple[str, ...] = ()


class Words:
    """Text that does not repeat itself."""

    def __init__(self, language: str, seed: int) -> None:
        self.language = language
        self._random = random.Random(f"{language} {seed}")

    def sentence(self) -> str:
        form = self._random.choice(LANGUAGES[self.language])
        values = {"place": self._random.choice(_PLACES), "name": self._random.choice(_NAMES)}
        return form.format(year=self._random.randint(1700, 1999), n=self._random.randint(3, 9_999), **values)

    def paragraph(self) -> str:
        return " ".join(self.sentence() for _ in range(self._random.randint(2, 5)))

    def paragraphs(self, count: int) -> list[str]:
        return [self.paragraph() for _ in range(count)]


def pages(seeds: int = 3) -> list[Page]:
    """Every kind in every language, `seeds` times with other words."""
    return [make(Words(language, seed)) for make in KINDS for language in LANGUAGES for seed in range(seeds)]


def _page(kind: str, words: Words, body: str, wanted: list[str], either: tuple[str, ...] = ()) -> Page:
    title = f"{kind} – The Daily Example"
    head = (
        f'<meta charset="utf-8"><title>{escape(title)}</title><style>p{{}}</style><script>var a = "<p>no</p>";</script>'
    )
    html = f'<!doctype html><html lang="{words.language}"><head>{head}</head><body>{body}</body></html>'
    return Page(kind, words.language, html, tuple(wanted), (title, *either))


def _p(lines: list[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _items(names: tuple[str, ...] = _MENU) -> str:
    return "".join(f'<li><a href="/{index}">{name}</a></li>' for index, name in enumerate(names))


_FRAME_TOP = f'<header><a href="/">The Daily Example</a><nav><ul>{_items()}</ul></nav></header>'
_FRAME_END = "<footer><p>© 2024 The Daily Example Ltd. All rights reserved. Imprint. Privacy.</p></footer>"
_DIV_TOP = (
    '<div class="navbar"><div class="logo"><a href="/">The Daily Example</a></div>'
    f'<div class="menu-main">{"".join(f"<a href=/{n}>{name}</a> " for n, name in enumerate(_MENU))}</div></div>'
)
_DIV_END = (
    '<div class="footer" id="footer"><p>© 2024 The Daily Example Ltd. All rights reserved.</p>'
    '<p>Follow us on every network there is</p><a href="/imprint">Imprint</a> <a href="/privacy">Privacy</a></div>'
)
_COOKIES = (
    '<div id="cookie-banner" class="cookie-consent"><p>We and our 812 partners value your privacy and store '
    "information on your device. You can change your mind at any time.</p><button>Accept all</button></div>"
)
_NEWSLETTER = (
    '<div class="newsletter-signup"><h3>Never miss a story</h3><p>Get our best reading in your inbox every morning.</p>'
    '<form><input type="email"><button>Subscribe</button></form></div>'
)
_SHARE = '<div class="social-share"><a href="#">Share this on one network</a><a href="#">Tell it on another</a></div>'


def _teasers(words: Words, count: int = 5) -> str:
    cards = "".join(f'<div class="card"><a href="/{n}">{escape(words.sentence())}</a></div>' for n in range(count))
    return f'<div class="related-articles"><h3>Read more like this</h3>{cards}</div>'


def semantic(words: Words) -> Page:
    """HTML5 as it is meant, and an aside."""
    lines = words.paragraphs(5)
    other = Words(words.language, 900)
    body = (
        f"{_FRAME_TOP}<main><article><h1>The main heading of it</h1>{_p(lines)}</article></main>"
        f"<aside><h3>Most read</h3><ol>{''.join(f'<li><a href=/x>{other.sentence()}</a></li>' for _ in range(6))}</ol>"
        f"</aside>{_FRAME_END}"
    )
    return _page("semantic", words, body, ["The main heading of it", *lines])


def aside_inside(words: Words) -> Page:
    """Teasers, a newsletter and share buttons between the paragraphs of an article."""
    lines = words.paragraphs(6)
    extras = (_SHARE, _NEWSLETTER, _teasers(Words(words.language, 901)))
    inner = "".join(_p(lines[2 * n : 2 * n + 2]) + extra for n, extra in enumerate(extras))
    body = f"{_FRAME_TOP}<main><article><h1>The main heading of it</h1>{inner}</article></main>{_FRAME_END}"
    return _page("aside inside", words, body, ["The main heading of it", *lines])


def divs(words: Words) -> Page:
    """Only divs, whose classes say what they are."""
    lines = words.paragraphs(5)
    teasers = _teasers(Words(words.language, 902))
    body = (
        f'{_COOKIES}{_DIV_TOP}<div class="content"><h1>The main heading of it</h1>{_p(lines)}{_SHARE}</div>'
        f'<div class="sidebar">{_NEWSLETTER}{teasers}</div>{_DIV_END}'
    )
    return _page("divs", words, body, ["The main heading of it", *lines])


def unnamed(words: Words) -> Page:
    """Only divs, without classes: nothing but the text says what is main."""
    lines = words.paragraphs(5)
    menu = "".join(f"<div><a href=/{n}>{name}</a></div>" for n, name in enumerate(_MENU))
    body = (
        f"<div><div>{menu}</div><div><h1>The main heading of it</h1>{_p(lines)}</div>"
        "<div><div>© 2024 The Daily Example Ltd.</div><div><a href=/i>Imprint</a></div></div></div>"
    )
    return _page("unnamed", words, body, ["The main heading of it", *lines])


def layout_table(words: Words) -> Page:
    """A page of 1999: tables arrange it, `br` separates paragraphs."""
    lines = words.paragraphs(4)
    menu = "<br>".join(f"<a href=/{n}><font size=2>{name}</font></a>" for n, name in enumerate(_MENU))
    body = (
        f"<table width=100%><tr><td colspan=2><b>The Daily Example</b></td></tr><tr><td width=120>{menu}</td>"
        f"<td><h1>The main heading of it</h1>{'<br><br>'.join(map(escape, lines))}</td></tr>"
        "<tr><td colspan=2><font size=1>© 2024 The Daily Example Ltd.</font></td></tr></table>"
    )
    return _page("layout table", words, body, ["The main heading of it", *lines])


def data_table(words: Words) -> Page:
    """A paragraph and a table of figures, which is what the page is for."""
    intro = words.paragraph()
    rows = [(f"{place} {n}", str(1_000 + 37 * n), f"{n * 3.7:.1f} %") for n, place in enumerate(_PLACES * 3)]
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><caption>Ships by harbour</caption><tr><th>Harbour<th>Ships<th>Share</tr>{cells}</table>"
    body = f'{_DIV_TOP}<div id="content"><h1>The main heading of it</h1>{_p([intro])}{table}</div>{_DIV_END}'
    wanted = ["The main heading of it", intro, "Ships by harbour", "Harbour Ships Share", *map(" ".join, rows)]
    return _page("data table", words, body, wanted)


def recipe(words: Words) -> Page:
    """Short list items, of which the page consists."""
    things = [
        f"{n} g {name}" for n, name in enumerate(("flour", "butter", "barley", "dried plums", "salt", "malt"), 20)
    ]
    steps = [words.sentence() for _ in range(5)]
    listed = "<ul>" + "".join(f"<li>{thing}</li>" for thing in things) + "</ul>"
    ordered = "<ol>" + "".join(f"<li>{escape(step)}</li>" for step in steps) + "</ol>"
    body = (
        f'{_DIV_TOP}<div class="recipe"><h1>The main heading of it</h1><h2>What you need</h2>{listed}'
        f"<h2>What you do</h2>{ordered}</div>{_NEWSLETTER}{_DIV_END}"
    )
    wanted = ["The main heading of it", "What you need", *things, "What you do", *steps]
    return _page("recipe", words, body, wanted)


def documentation(words: Words) -> Page:
    """Code between paragraphs, a definition list, and a long menu inside `main`."""
    lines = words.paragraphs(2)
    code = ["def open_gate(harbour):", "for ship in harbour.ships:", "ship.signal(3)", "return len(harbour.ships)"]
    indented = f"{code[0]}\n    {code[1]}\n        {code[2]}\n    {code[3]}\n"
    chapters = tuple(f"Chapter {n} of the handbook" for n in range(24))
    terms = [(f"--depth-{n}", words.sentence()) for n in range(4)]
    defined = "<dl>" + "".join(f"<dt>{term}</dt><dd>{escape(text)}</dd>" for term, text in terms) + "</dl>"
    body = (
        f'{_FRAME_TOP}<main><div class="toc-sidebar"><ul>{_items(chapters)}</ul></div><h1>The main heading of it</h1>'
        f"{_p(lines[:1])}<pre><code>{indented}</code></pre>{_p(lines[1:])}<h2>Options</h2>{defined}</main>{_FRAME_END}"
    )
    wanted = ["The main heading of it", *lines, *code, "Options", *(part for term in terms for part in term)]
    return _page("documentation", words, body, wanted)


def forum(words: Words) -> Page:
    """A thread: every post is main text, names and buttons are not."""
    posts = words.paragraphs(6)
    shown = "".join(
        f'<div class="post"><div class="post-meta">user{n} · {n} days ago</div>'
        f'<div class="post-body">{escape(post)}</div><a href="#">Reply</a> <a href="#">Report</a></div>'
        for n, post in enumerate(posts)
    )
    body = f'{_DIV_TOP}<div class="thread"><h1>The main heading of it</h1>{shown}</div>{_DIV_END}'
    metas = tuple(f"user{n} · {n} days ago" for n in range(6))
    return _page("forum", words, body, ["The main heading of it", *posts], metas)


def commented(words: Words) -> Page:
    """A blog post with comments, which may come or not."""
    lines, comments = words.paragraphs(4), Words(words.language, 903).paragraphs(5)
    shown = "".join(f'<li class="comment"><p>{escape(comment)}</p></li>' for comment in comments)
    body = (
        f'{_DIV_TOP}<div class="post"><h1>The main heading of it</h1><div class="entry-content">{_p(lines)}</div></div>'
        f'<div id="comments"><h3>5 comments</h3><ol>{shown}</ol></div>{_COOKIES}{_DIV_END}'
    )
    return _page("commented", words, body, ["The main heading of it", *lines], ("5 comments", *comments))


def short(words: Words) -> Page:
    """Two sentences among much else."""
    lines = [words.sentence(), words.sentence()]
    teasers = _teasers(Words(words.language, 904), 10)
    body = (
        f'{_COOKIES}{_FRAME_TOP}<main><h1>The main heading of it</h1>{_p(lines)}</main><div class="sidebar">{teasers}'
        f"{_NEWSLETTER}</div>{_FRAME_END}"
    )
    return _page("short", words, body, ["The main heading of it", *lines])


def product(words: Words) -> Page:
    """A product: a price, features, specifications, and others that were looked at."""
    line, features = words.paragraph(), [f"Holds {n} litres of cold water" for n in range(2, 6)]
    specs = [("Weight", "4.2 kg"), ("Height", "31 cm"), ("Colour", "storm grey"), ("Made in", "Varnby")]
    rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in specs)
    listed = "".join(f"<li>{feature}</li>" for feature in features)
    body = (
        f'{_DIV_TOP}<div class="product"><h1>The main heading of it</h1><span class="price">129.00 crowns</span>'
        f"<div class=description>{escape(line)}</div><ul>{listed}</ul><table>{rows}</table></div>"
        f"{_teasers(Words(words.language, 905))}{_DIV_END}"
    )
    wanted = ["The main heading of it", "129.00 crowns", line, *features, *map(" ".join, specs)]
    return _page("product", words, body, wanted)


def questions(words: Words) -> Page:
    """Questions that unfold."""
    pairs = [(f"Question number {n}: who pays for it?", words.paragraph()) for n in range(5)]
    shown = "".join(f"<details><summary>{q}</summary><div>{escape(a)}</div></details>" for q, a in pairs)
    body = f"{_FRAME_TOP}<main><h1>The main heading of it</h1>{shown}</main>{_FRAME_END}{_COOKIES}"
    return _page("questions", words, body, ["The main heading of it", *(part for pair in pairs for part in pair)])


def linked(words: Words) -> Page:
    """An encyclopaedia: prose full of links, notes, a list of sources."""
    lines = words.paragraphs(5)
    prose = "".join(
        "<p>" + " ".join(f'<a href="/w">{w}</a>' if n % 3 == 0 else w for n, w in enumerate(line.split())) + "</p>"
        for line in lines
    )
    sources = [words.sentence() for _ in range(8)]
    listed = "".join(f'<li><a href="/s">{escape(source)}</a> (1987).</li>' for source in sources)
    body = (
        f'<div id="mw-panel" class="navigation"><ul>{_items()}</ul></div><div id="content" role="main">'
        f"<h1>The main heading of it</h1>{prose}<h2>Sources</h2><ol>{listed}</ol></div>{_DIV_END}"
    )
    either = ("Sources", *(f"{source} (1987)." for source in sources))
    return _page("linked", words, body, ["The main heading of it", *lines], either)


def broken(words: Words) -> Page:
    """Tags that are never closed, closed twice, or nested as they must not be."""
    lines = words.paragraphs(5)
    prose = "".join(f"<p><b><i>{escape(line)}</b>" for line in lines)
    menu = f"<div class=nav><ul>{_items()}</ul></div></div>"
    body = f"{menu}<div id=main><h1>The main heading of it{prose}<td></p></div></form>"
    return _page("broken", words, body, ["The main heading of it", *lines])


def in_a_form(words: Words) -> Page:
    """The whole page in one form, as some frameworks make it, with parts that are hidden."""
    lines, hidden = words.paragraphs(4), Words(words.language, 906).paragraphs(2)
    body = (
        f'<form id="aspnetForm">{_DIV_TOP}<div class="content"><h1>The main heading of it</h1>{_p(lines)}'
        f'<div style="display:none">{_p(hidden)}</div></div>{_DIV_END}</form>'
    )
    return _page("in a form", words, body, ["The main heading of it", *lines])


def several(words: Words) -> Page:
    """A front page: many short articles, all of them wanted."""
    lines = [words.sentence() for _ in range(8)]
    cards = "".join(f"<article><h2>Heading {n}</h2><p>{escape(line)}</p></article>" for n, line in enumerate(lines))
    body = f'{_FRAME_TOP}<div class="list">{cards}</div>{_FRAME_END}'
    return _page("several", words, body, lines, tuple(f"Heading {n}" for n in range(8)))


def nameless(make: Callable[[Words], Page]) -> Callable[[Words], Page]:
    """The same page as some build tools leave it: classes and ids are letters that mean nothing."""

    def renamed(words: Words) -> Page:
        page = make(words)
        html = re.sub(
            r"""(class|id)=("[^"]*"|[\w-]+)""", lambda match: f'{match[1]}="c{crc32(match[2].encode()):x}"', page.html
        )
        return replace(page, kind=f"{page.kind}, nameless", html=html)

    return renamed


KINDS: tuple[Callable[[Words], Page], ...] = (
    semantic, aside_inside, divs, unnamed, layout_table, data_table, recipe, documentation, forum, commented, short,
    product, questions, linked, broken, in_a_form, several,
    *map(nameless, (aside_inside, divs, data_table, recipe, forum, commented, short, product)),
)  # fmt: skip


def hostile() -> dict[str, bytes]:
    """Pages that a careless reader takes minutes for, or dies of."""
    rows = "<tr><td>cell</td><td><a href=/x>link</a></td></tr>"
    made = {
        "20,000 nested div": "<div>" * 20_000 + "the bottom" + "</div>" * 20_000,
        "5,000 nested lists of links": "<ul><li><a href=/x>a link</a>" * 5_000 + "the bottom",
        "2,000 nested tables": "<table><tr><td>" * 2_000 + "the bottom",
        "50,000 open b": "<b>word " * 50_000,
        "200,000 siblings": "<p>one word</p>" * 200_000,
        "100,000 links in one list": "<ul>" + "<li><a href=/x>a link</a></li>" * 100_000 + "</ul>the bottom",
        "50,000 rows": f"<table>{rows * 50_000}</table>",
        "20,000 attributes": "<p " + " ".join(f"a{n}=1" for n in range(20_000)) + ">the bottom</p>",
        "a comment of 5 MB": "<p>the bottom</p><!--" + "- " * 2_500_000 + "-->",
        "20,000 open comments": "<!--<p>" * 20_000 + "the bottom",
        "3,000 nested main": "<main>words " * 3_000,
        "3,000 nested article": "<article>words " * 3_000,
    }
    return {name: f"<html><body>{body}</body></html>".encode() for name, body in made.items()}
