"""HTML to text that reads like markdown: the main content without scripts, navigation, footers and forms."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from bs4 import BeautifulSoup, Comment, Tag
from bs4.element import CData, Declaration, Doctype, NavigableString, ProcessingInstruction

from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.encoding import decode

_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]+)""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""^\s*<\?xml[^>]{0,100}?encoding\s*=\s*["']([A-Za-z0-9_:.-]+)""")
_DECLARATION_BYTES = 1 << 16

_CODE = {"script", "style", "noscript", "template", "head", "link", "meta"}
_MEDIA = {"svg", "math", "canvas", "iframe", "object", "embed", "applet", "audio", "video", "map"}
_CONTROLS = {"nav", "footer", "dialog", "button", "select", "option", "datalist", "input", "textarea"}
_NEVER = frozenset(_CODE | _MEDIA | _CONTROLS)
_BOILERPLATE_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "menu", "menubar", "dialog"})
_PROSE = {"p", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hgroup", "hr", "blockquote", "pre", "center", "address"}
_GROUPS = {"body", "main", "article", "section", "header", "aside", "figure", "figcaption", "details", "summary"}
_PARAGRAPHS = frozenset(_PROSE | _GROUPS | {"table", "ul", "ol", "dl", "form", "fieldset"})
_LINES = frozenset({"li", "tr", "dt", "dd", "caption", "br"})
_TABLE_PARTS = frozenset({"tr", "td", "th"})
_LONGEST_CELL = 400
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_NOT_TEXT = (Comment, Declaration, Doctype, ProcessingInstruction, CData)

# A <main> or <article> is trusted to be the content if it holds at least this share of the page's text.
_MAIN_SHARE = 0.3
# Names that pages give to their frame. A name counts only as a whole (`related-work` and `table-footer` are content),
# and what holds the page's heading or its <main> is never the frame, whatever it is called.
_WHERE = r"(?:(?:site|page|main|global|top|bottom|left|right|primary|secondary|post|article|entry|blog|mw)[-_]*)*"
_WHAT = (
    r"nav|navbar|nav[-_]?(?:bar|menu|links|list)|navigation|navbox|menu[-_]?(?:main|bar|primary|top)|side[-_]?bar|"
    r"bread[-_]?crumbs?|footer|colophon|masthead|cat[-_]?links|jump[-_]?link|skip[-_]?(?:link|nav|to[-_]content)|"
    r"(?:cookies?|consent|gdpr|privacy)[-_]?(?:banner|bar|notice|consent|popup|overlay|message|modal|wall)|"
    r"newsletter(?:[-_]?(?:sign[-_]?up|form|subscribe|subscription))?|"
    r"(?:social|share|sharing)[-_]?(?:share|sharing|buttons?|links|icons|bar|media|tools)|"
    r"(?:related|recommended|popular|trending|recent|more)[-_]?(?:articles|posts|stories|links|content|news|products|items)|"
    r"most[-_]?(?:read|popular|viewed)|ads?[-_]?(?:banner|slot|container|wrapper|unit)|advert(?:isement)?s?|sponsored|"
    r"portlet|print[-_]?footer|no[-_]?print"
)
_FRAME = re.compile(rf"{_WHERE}(?:{_WHAT})(?:[-_]+(?:container|wrapper|wrap|inner|outer|section|area|block|box|\d+))*")
_LONGEST_NAME = 60
_KEPT_WITHOUT_FRAME = 0.1
# Lists that are nearly all links are navigation, unless they are most of the page. Inside the main content, where
# "see also" lists look the same, they must also be called so.
_LINK_SHARE = 0.8
_LINK_LIST = 5
# A block with more than this share of the page's text is what the page is there for.
_LARGEST_FRAME = 0.5
_KEPT_SHARE = 0.3
_MENU_NAMES = frozenset({"nav", "navigation", "menu", "sidebar", "breadcrumb", "breadcrumbs", "toc", "social", "share"})
_MENU_ANCESTORS = 3


def extract_html(data: bytes, declared: str | None = None) -> Extracted:
    """The readable text of a page.

    Args:
        declared: the encoding that came with the page, as in a mail; the page's own word counts where there is none.

    Raises:
        NoText: nothing readable is in it (a page that scripts would fill, for instance).
        Unsupported: the bytes are not text.
    """
    soup = _parse(decode(data, declared or _declared(data)))
    title = _title(soup)
    metadata: dict[str, str] = {"format": "html"}
    language = soup.html.get("lang") if soup.html else None
    if isinstance(language, str) and language.strip():
        metadata["language"] = language.strip()[:35]
    text = _main_text(soup)
    if not text.strip():
        raise NoText("the page has no readable text; if scripts fill it, save it from a browser")
    return Extracted(text, title, metadata)


def _declared(data: bytes) -> str | None:
    head = data[:_DECLARATION_BYTES]
    found = _META_CHARSET.search(head) or _XML_ENCODING.search(head)
    return found.group(1).decode("ascii") if found else None


def _parse(markup: str) -> BeautifulSoup:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bs4 warns of markup that looks like a file name, a URL or XML
        return BeautifulSoup(markup, "lxml")


def _title(soup: BeautifulSoup) -> str:
    if soup.title and (title := one_line(normalise(soup.title.get_text()))):
        return title
    named = soup.find("meta", attrs={"property": "og:title"})
    if isinstance(named, Tag) and isinstance(content := named.get("content"), str) and content.strip():
        return one_line(normalise(content))
    heading = soup.find("h1")
    return one_line(normalise(heading.get_text(" "))) if heading else ""


def _main_text(soup: BeautifulSoup) -> str:
    root: Tag = soup.body or soup
    sizes = _sizes(root)
    holders = _holders(root)
    everything = _render(root, frozenset())
    frame = _frame(root, sizes, holders)
    whole = _render(root, frame) if frame else everything
    if len(whole) < _KEPT_WITHOUT_FRAME * len(everything) or not whole.strip():
        frame, whole = frozenset(), everything
    mains = [tag for tag in soup.find_all(["main", "article"]) if tag.name == "main"] or soup.find_all("article")
    if not mains:
        mains = soup.find_all(role="main")
    menus = _menus(root, sizes, holders)
    prose = _render(root, frame | {id(tag) for tag in menus}) if menus else whole
    if len(mains) == 1:
        text = _render(mains[0], frame | {id(tag) for tag in menus if _called_menu(tag)})
        if len(text) >= _MAIN_SHARE * len(prose) and text.strip():
            return text
    return prose if len(prose) >= _KEPT_SHARE * len(whole) and prose.strip() else whole


class _Size(NamedTuple):
    """What a tag holds: links, characters of text, and those of them that stand in links."""

    links: int
    text: int
    linked: int


def _sizes(root: Tag) -> dict[int, _Size]:
    """The size of every tag, in one pass: pages nest thousands deep, so none may be gone through for each around it."""
    sizes: dict[int, _Size] = {}
    links = text = linked = inside = 0  # so far, and how many links are open here
    stack: list[tuple[Tag | NavigableString, _Size | None]] = [(root, None)]  # with a size: leave what began there
    while stack:
        node, before = stack.pop()
        if isinstance(node, NavigableString):
            if type(node) is NavigableString:  # its subclasses are scripts, comments and the like
                size = len(node.strip())
                text += size
                linked += size if inside else 0
        elif before is None:
            stack.append((node, _Size(links, text, linked)))
            stack.extend((child, None) for child in _reversed(node.contents))
            if node.name == "a":
                links, inside = links + 1, inside + 1
        else:
            inside -= node.name == "a"
            sizes[id(node)] = _Size(links - before.links, text - before.text, linked - before.linked)
    return sizes


def _holders(root: Tag) -> set[int]:
    """What the page's heading and its <main> stand in, they included."""
    holders: set[int] = set()
    for tag in root.find_all(["h1", "main"]):
        for holder in (tag, *tag.parents):
            if id(holder) in holders:
                break
            holders.add(id(holder))
    return holders


def _largest(root: Tag, sizes: Mapping[int, _Size]) -> float:
    """How much text a part of the frame may hold. Most of the page is its content, unless a <main> says what is."""
    return sizes[id(root)].text * (1 if root.find("main") else _LARGEST_FRAME)


def _frame(root: Tag, sizes: Mapping[int, _Size], holders: set[int]) -> frozenset[int]:
    """What is called a part of the page's frame."""
    largest = _largest(root, sizes)
    named = (id(tag) for tag in root.find_all(_called_frame))
    return frozenset(key for key in named if key not in holders and sizes[key].text <= largest)


def _called_frame(tag: Tag) -> bool:
    classes, identifier = tag.get("class") or (), tag.get("id")
    names = [classes] if isinstance(classes, str) else [*classes]
    if isinstance(identifier, str):
        names.append(identifier)
    return any(len(name) <= _LONGEST_NAME and _FRAME.fullmatch(name.lower()) for name in names)


def _menus(root: Tag, sizes: Mapping[int, _Size], holders: set[int]) -> list[Tag]:
    """Lists that are nearly all links, and other blocks that are so and do not hold the page's heading."""
    largest = _largest(root, sizes)

    def is_menu(tag: Tag) -> bool:
        links, text, linked = sizes[id(tag)]
        if links < _LINK_LIST or linked < _LINK_SHARE * text:
            return False
        return tag.name in ("ul", "ol") or (id(tag) not in holders and text <= largest)

    return [tag for tag in root.find_all(["ul", "ol", "div", "section", "aside"]) if is_menu(tag)]


def _called_menu(tag: Tag) -> bool:
    """Whether the list, or something close around it, has a class or id that says navigation."""
    near = [tag, *islice(tag.parents, _MENU_ANCESTORS)]
    names = [f"{ancestor.get('class', '')} {ancestor.get('id', '')}" for ancestor in near]
    return not _MENU_NAMES.isdisjoint(re.split(r"[^a-z]+", " ".join(names).lower()))


def _dropped(tag: Tag, left_out: frozenset[int]) -> bool:
    if tag.name in _NEVER or id(tag) in left_out or tag.has_attr("hidden") or tag.get("aria-hidden") == "true":
        return True
    style = tag.get("style")
    if isinstance(style, str) and re.search(r"display\s*:\s*none", style, re.IGNORECASE):
        return True
    role = tag.get("role")
    return isinstance(role, str) and role.lower() in _BOILERPLATE_ROLES


def _render(root: Tag, left_out: frozenset[int]) -> str:
    """The text of `root` without the tags whose `id()` is in `left_out`, one block a paragraph.

    A stack instead of recursion: pages nest thousands deep.
    """
    out = _Writer()
    layouts: list[bool] = []  # per open table, whether it only arranges the page
    stack: list[tuple[str, Tag | NavigableString]] = [("", root)]  # a name: leave the tag, which was entered as that
    while stack:
        entered_as, node = stack.pop()
        if isinstance(node, NavigableString):
            if not isinstance(node, _NOT_TEXT):
                out.text(str(node))
        elif entered_as:
            out.leave(entered_as)
            if node.name == "table":
                layouts.pop()
        elif node is root or not _dropped(node, left_out):
            if node.name == "table":
                layouts.append(_is_layout(node))
            name = "div" if node.name in _TABLE_PARTS and layouts and layouts[-1] else node.name
            out.enter(name)
            stack.append((name, node))
            stack.extend(("", child) for child in _reversed(node.contents))
    return out.finish()


def _is_layout(table: Tag) -> bool:
    """Tables that hold tables, or prose, arrange a page; their cells are blocks, not values."""
    if table.find("table") or table.get("role") == "presentation":
        return True
    return any(len(cell.get_text()) > _LONGEST_CELL for cell in table.find_all(["td", "th"]))


def _reversed(children: Iterable[object]) -> Iterable[Tag | NavigableString]:
    return (child for child in reversed(list(children)) if isinstance(child, Tag | NavigableString))


class _Writer:
    """Collects text and puts the breaks that the tags ask for between it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._breaks = 0  # newlines owed before the next text
        self._prefix = ""
        self._space = False
        self._verbatim = 0
        self._cells: list[int] = []  # per open table row, how many cells began

    def enter(self, name: str) -> None:
        self._separate(name)
        if name == "tr":
            self._cells.append(0)
        elif name in ("td", "th") and self._cells:
            if self._cells[-1]:
                self._parts.append(" |")
                self._space = True
            self._cells[-1] += 1
        elif not self._cells:
            if name in _HEADINGS:
                self._prefix = _HEADINGS[name]
            elif name == "li":
                self._prefix = "- "
            elif name == "pre":
                self._verbatim += 1

    def leave(self, name: str) -> None:
        if name == "tr" and self._cells:
            self._cells.pop()
        elif name == "pre" and self._verbatim:
            self._verbatim -= 1
        self._separate(name)
        if name in _PARAGRAPHS:
            self._prefix = ""

    def _separate(self, name: str) -> None:
        """What the tag's edge puts between texts; inside a table row, at most a space."""
        if self._cells:
            self._space = self._space or name in _PARAGRAPHS or name in _LINES
        elif name in _PARAGRAPHS:
            self._breaks, self._space = max(self._breaks, 2), False
        elif name in _LINES:
            self._breaks, self._space = max(self._breaks, 1), False

    def text(self, text: str) -> None:
        if self._verbatim:
            if text.strip():
                self._put(text.strip("\n"))
            return
        words = text.split()
        if not words:
            self._space = self._space or bool(text)
            return
        self._space = self._space or text[0].isspace()
        self._put(" ".join(words))
        self._space = text[-1].isspace()

    def finish(self) -> str:
        lines = (line.rstrip(" |") for line in normalise("".join(self._parts)).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def _put(self, text: str) -> None:
        if self._breaks:
            if self._parts:
                self._parts.append("\n" * self._breaks)
            self._breaks = 0
        elif self._space and self._parts:
            self._parts.append(" ")
        self._space = False
        self._parts.append(self._prefix + text)
        self._prefix = ""
