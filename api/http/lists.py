"""Lists that are read page by page: `{"object": "list", "data", "has_more", "next"}`, and where a page goes on."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
After = Annotated[str | None, Query(max_length=4_000, description="`next` of the page before.")]


class Page(BaseModel, Generic[T]):
    """A page of a list. `next` is what to give as `after` for the page behind it; null on the last."""

    model_config = ConfigDict(frozen=True)

    object: Literal["list"] = "list"
    data: list[T]
    has_more: bool = Field(description="Whether there is a page behind it.")
    next: str | None


def page_of(data: list[T], more: bool, next_: str) -> Page[T]:
    """A page; `next_` is where the one behind it starts."""
    return Page(data=data, has_more=more, next=next_ if more else None)


def cursor(*place: Any) -> str:
    """A cursor for a place in an order, by the values that it is ordered by."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def read_cursor(text: str, *kinds: type) -> tuple[Any, ...]:
    """The values that `cursor` was made of, which must be of these kinds.

    Raises:
        ApiError: 422, it is no cursor of such a list.
    """
    try:
        values = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        if isinstance(values, list) and [type(value) for value in values] == list(kinds):
            json.dumps(values, ensure_ascii=False).encode()  # what no database can hold is none of ours
            return tuple(values)
    except (ValueError, binascii.Error, RecursionError):
        pass
    message = "after: this is no cursor of this list; pass the `next` of a page, or leave it out"
    raise ApiError(422, "invalid_field", message, param="after")
