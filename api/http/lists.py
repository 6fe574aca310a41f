"""Lists as the API answers them: `{"object": "list", "data", "has_more", "next"}`."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from thresher.api.http.cursors import cursor, read_cursor

__all__ = ["After", "Limit", "Listing", "Page", "cursor", "page_of", "read_cursor"]

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
After = Annotated[str | None, Query(max_length=4_000, description="`next` of the page before.")]


class Page(BaseModel, Generic[T]):
    """A page of a list. `next` is what to give as `after` for the page behind it; null on the last."""

    model_config = ConfigDict(frozen=True)

    object: Literal["list"] = "list"
    data: list[T]
    has_more: bool = Field(description="Whether there is a page behind it.")
    next: str | None = None


Listing = Page


def page_of(data: list[T], more: bool, next_: str) -> Page[T]:
    """A page; `next_` is where the one behind it starts."""
    return Page(data=data, has_more=more, next=next_ if more else None)
