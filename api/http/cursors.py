"""Lists that are read page by page, and where a page goes on: a text that clients pass back as it is."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict

from thresher.api.errors import ApiError

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
After = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]


class Listing(BaseModel, Generic[T]):
    """One page. `next` is what `after` takes for the next one; null at the end."""

    model_config = ConfigDict(frozen=True)

    object: Literal["list"] = "list"
    data: list[T]
    has_more: bool
    next: str | None


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
