"""What tools take and what they give, as agents see it: the source of every schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from thresher.api.service.searching.bodies import MAX_COLLECTIONS
from thresher.engine.requests import MAX_QUERY_CHARACTERS, Effort

DEADLINE_S = 45.0
"""How long `agentic_search` searches unless told otherwise: many clients give a call up after 60 s."""

LONGEST_DEADLINE_S = 600.0
LONGEST_WAIT_S = 50.0
GREP_LIMIT = 50


class Arguments(BaseModel):
    """Base of the arguments. Unknown ones are errors: a misspelt limit must not silently do nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Structured(BaseModel):
    """Base of the structured content. Fields that are None are left out of it."""

    model_config = ConfigDict(frozen=True)


Words = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY_CHARACTERS)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=63)]
Collections = Annotated[
    list[Name] | None,
    Field(
        min_length=1,
        max_length=MAX_COLLECTIONS,
        description="Collections to search; left out, the default one. list_collections names them.",
    ),
]
Collection = Annotated[Name | None, Field(description="The collection; left out, the default one.")]
MaxResults = Annotated[int | None, Field(ge=1, le=100, description="Passages at most; left out, the server's default.")]


class SearchArguments(Arguments):
    """Arguments of `search`."""

    query: Words = Field(description="What to look for, in natural language or key words.")
    collections: Collections = None
    max_results: Annotated[int, Field(ge=1, le=50, description="Documents at most.")] = 10


class FetchArguments(Arguments):
    """Arguments of `fetch`."""

    id: str = Field(min_length=1, max_length=4_000, description="An id as `search` gives it.")


class Question(Arguments):
    """Arguments of both ways to search over several turns."""

    question: Words = Field(description="The question, in full: it is all that the search knows of what you want.")
    collections: Collections = None
    effort: Annotated[
        Effort | None,
        Field(
            description="minimal is one plain search; low, medium and high search over up to 3, 8 and 32 turns. "
            "Left out, the server's default."
        ),
    ] = None
    max_results: MaxResults = None
    sources: Annotated[
        list[Literal["corpus", "web"]] | None,
        Field(description="Where to look, where the server can search the web too. Left out, the server's default."),
    ] = None


class AgenticSearchArguments(Question):
    """Arguments of `agentic_search`."""

    deadline_s: Annotated[
        float,
        Field(
            gt=0,
            le=LONGEST_DEADLINE_S,
            allow_inf_nan=False,
            description="Seconds after which it returns what it has found. Your client may give a call up after 60 s: "
            "take start_search for longer ones.",
        ),
    ] = DEADLINE_S


class StartSearchArguments(Question):
    """Arguments of `start_search`."""

    deadline_s: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Seconds after which it ends with what it has found."),
    ] = None


class GetSearchArguments(Arguments):
    """Arguments of `get_search`."""

    id: str = Field(min_length=1, max_length=200, description="The search's id.")
    start: Annotated[int, Field(ge=1, description="Rank of the first passage to show, from 1.")] = 1
    wait_s: Annotated[
        float,
        Field(
            ge=0, le=LONGEST_WAIT_S, allow_inf_nan=False, description="Seconds to wait for its end if it still runs."
        ),
    ] = 20.0


class SearchIdArguments(Arguments):
    """Arguments of `cancel_search`."""

    id: str = Field(min_length=1, max_length=200, description="The search's id.")


class GrepArguments(Arguments):
    """Arguments of `grep_corpus`."""

    pattern: str = Field(
        min_length=1, max_length=1_000, description="RE2 regular expression; start with (?i) to ignore case."
    )
    collection: Collection = None
    limit: Annotated[int, Field(ge=1, le=GREP_LIMIT, description="Passages at most.")] = 10


class ReadArguments(Arguments):
    """Arguments of `read_document`."""

    document_id: str = Field(min_length=1, max_length=4_000, description="The document's id, as searches give it.")
    collection: Collection = None
    start: Annotated[int, Field(ge=0, description="Character to read from: 0, or next_start of the call before.")] = 0


class NoArguments(Arguments):
    """A tool that takes none."""


class Hit(Structured):
    """One document that `search` found; `fetch` reads it around what was found."""

    id: str
    title: str
    url: str


class Hits(Structured):
    """What `search` found, best first."""

    results: list[Hit]
    notice: str | None = None


class Fetched(Structured):
    """A document, or the part of it that a reply has room for: `metadata.notice` then says how to go on."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, Any]


class Quote(Structured):
    """Words that carry the answer, byte-equal to the document's; offsets are characters."""

    start: int
    end: int
    text: str


class Passage(Structured):
    """A passage of a document; `start` and `end` are character offsets of `text` in it."""

    rank: int
    id: str | None = Field(default=None, description="Its id within its search, as answers cite it.")
    collection: str
    document_id: str
    title: str
    url: str
    start: int
    end: int
    page: int | None = None
    text: str
    cut: bool | None = Field(default=None, description="Whether the passage goes on in the document.")
    quotes: list[Quote] | None = None


class Found(Structured):
    """A search: how it stands or ended, and its passages, best first."""

    id: str
    status: str = Field(description="queued, running, completed, partial, failed or cancelled.")
    summary: str = Field(description="How it stands or ended, in words.")
    stop_reason: str | None = None
    sufficient: bool | None = Field(
        default=None, description="Whether the evidence covers the question, if that was judged."
    )
    answer: str | None = None
    missing: list[str] | None = None
    total: int = Field(description="Passages that the search found.")
    passages: list[Passage]
    left_out: str | None = Field(default=None, description="What this reply leaves out, and the call that brings it.")


class Matches(Structured):
    """Passages that a pattern matches, by document, then position."""

    collection: str
    matches: list[Passage]
    summary: str
    left_out: str | None = None


class Read(Structured):
    """A stretch of a document; `next_start` is where it goes on, None at its end."""

    collection: str
    document_id: str
    title: str
    url: str
    start: int
    end: int
    characters: int = Field(description="The document's length.")
    next_start: int | None = None
    text: str
    left_out: str | None = None


class CollectionModel(Structured):
    """One collection."""

    name: str
    default: bool = Field(description="Whether calls that name no collection go to it.")
    documents: int | None = None
    chunks: int | None = None
    unavailable: str | None = Field(default=None, description="Why it cannot be used now.")


class CollectionList(Structured):
    """The collections that this client may use."""

    collections: list[CollectionModel]
    left_out: str | None = None
