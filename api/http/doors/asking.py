"""What all doors share: the `thresher` object of a request, asking a search, and the account each answer gives."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from thresher.api.errors import ApiError
from thresher.api.http.hanging_up import cancelled_with
from thresher.api.http.parts import Parts
from thresher.api.schema import ResultModel, SearchResponse
from thresher.api.service.principal import Principal
from thresher.api.service.searching.bodies import MAX_COLLECTIONS, SearchBody
from thresher.engine.requests import MAX_QUERY_CHARACTERS, Effort

CLIENT_DEADLINE_S = 45.0
"""What a search through a door may take where the client gives up after a minute and gets nothing."""

_STEEPEST = 30.0

Query = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY_CHARACTERS)]


Outcome = Literal["found", "insufficient", "nothing_found", "incomplete"]


class Lenient(BaseModel):
    """Base of the bodies that other clients send: what they send beside is ignored, a wrong type is an error.

    Also one that could be read as the right one: whoever sends 0 for false may send "no" for false.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Options(BaseModel):
    """The `thresher` object, which a request of every door may carry: what the client's own fields cannot say.

    It is ours, so a field in it that does not exist is an error.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    collections: list[str] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_COLLECTIONS,
        description="Collections to search; left out, the server's default one.",
    )
    sources: list[Literal["corpus", "web"]] | None = Field(
        default=None, description="Where to look, as in `POST /v1/search`; left out, the server's own setting."
    )
    filters: dict[str, Any] | None = Field(default=None, description="Metadata filter, as in `POST /v1/search`.")
    effort: Annotated[Effort, Field(strict=False)] | None = Field(
        default=None, description="How hard to search; left out, as the door says."
    )
    deadline_s: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Seconds after which the search answers with what it has."
    )


class Account(BaseModel):
    """How the search behind an answer went. `outcome` says in a word what clients must not mix up.

    `found`: there are results; `insufficient`: there are, and the search says that they do not hold the answer;
    `nothing_found`: it searched all there is and found nothing; `incomplete`: it found nothing, but was stopped before
    it was done, or something could not be searched, as `warnings` say. That nothing could be searched is no outcome
    but an error with a status.
    """

    search_id: str = Field(description="`GET /v1/searches/{search_id}` has the whole search.")
    outcome: Outcome
    status: str
    stop_reason: str | None
    sufficient: bool | None
    missing: list[str]
    warnings: list[str]
    notices: list[str]


def outcome_of(response: SearchResponse) -> Outcome:
    """What came of a search that could search."""
    if response.results:
        return "insufficient" if response.sufficient is False else "found"
    whole = response.status == "completed" and not response.warnings
    return "nothing_found" if whole else "incomplete"


def account(responses: Sequence[SearchResponse], *, notices: Sequence[str] = ()) -> Account:
    """The account of one search, or of several that were asked at once: then it is as good as the best of them."""
    order: list[Outcome] = ["found", "insufficient", "incomplete", "nothing_found"]
    best = min(responses, key=lambda response: order.index(outcome_of(response)))
    return Account(
        search_id=best.id,
        outcome=outcome_of(best),
        status=best.status,
        stop_reason=best.stop_reason,
        sufficient=best.sufficient,
        missing=best.missing,
        warnings=list(dict.fromkeys(warning for response in responses for warning in response.warnings)),
        notices=list(dict.fromkeys([*notices, *(notice for response in responses for notice in response.notices)])),
    )


async def ask(request: Request, caller: Principal, server: Parts, bodies: Sequence[SearchBody]) -> list[SearchResponse]:
    """Run searches side by side, and wait for all.

    Raises:
        ApiError: 502, one of them could not search; whatever else a search raises.
    """
    runs = []
    try:
        for body in bodies:
            runs.append(await server.searches.start(caller, body))
    except BaseException:
        for run in runs:
            run.cancel()
        raise
    async with cancelled_with(request, *runs):
        return [checked(response) for response in await asyncio.gather(*(run.result() for run in runs))]


def checked(response: SearchResponse) -> SearchResponse:
    """The response, if it may stand for an answer.

    Raises:
        ApiError: 502, an error ended the search and it found nothing: that must not look like an empty result.
    """
    if response.status == "failed" and not response.results:
        reason = "; ".join(response.warnings) or "an error ended it before it found anything"
        message = f"the search failed, which does not mean that nothing exists: {reason}"
        raise ApiError(502, "search_failed", message, type="api_error")
    return response


def client_deadline(options: Options | None, server: Parts) -> float:
    """The deadline of a search for a client that waits for a minute and no longer."""
    if options is not None and options.deadline_s is not None:
        return options.deadline_s
    settings = server.settings
    return min(CLIENT_DEADLINE_S, settings.deadline_s or CLIENT_DEADLINE_S, settings.max_deadline_s)


def relevances(results: Sequence[ResultModel]) -> list[float]:
    """Scores in 0..1 for the results of one search, never rising from one to the next.

    A score says how a result compares with the first one of its search, which is its rank score divided by that of
    the first; where a reranker read them, it is what the reranker gave, brought to 0..1. None is a probability.
    """
    first = results[0].score if results else 0.0
    read = squashed([result.rerank for result in results if result.rerank is not None])
    values: list[float] = []
    for place, result in enumerate(results):
        value = read[place] if place < len(read) else result.score / first if first > 0 else 0.0
        values.append(max(0.0, min(value, values[-1] if values else 1.0)))
    return values


def squashed(scores: Sequence[float]) -> list[float]:
    """A reranker's scores in 0..1, in the same order: as they are if all lie there already, else by the logistic.

    Past 30 it would round to 1 and lose the order, so what grows with the length of a query (late interaction) is
    divided down first.
    """
    if all(0.0 <= score <= 1.0 for score in scores):
        return list(scores)
    most = max(abs(score) for score in scores)
    scale = most / _STEEPEST if most > _STEEPEST else 1.0
    return [1.0 / (1.0 + math.exp(-score / scale)) for score in scores]


def unsupported(param: str, message: str, status: int = 422) -> ApiError:
    """The refusal of a field that asks for something that cannot be done: better than to act as if it were."""
    return ApiError(status, "unsupported", message, param=param)


def both(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    """A filter that holds to two, either of which may be none."""
    given = [one for one in (first, second) if one is not None]
    return {"type": "and", "filters": given} if len(given) > 1 else given[0] if given else None


def search_body(query: str, **fields: Any) -> SearchBody:
    """The search that a door asks for; fields that are None take the server's settings.

    Raises:
        ApiError: 422, the question is too long or a value is out of range, which the door itself let pass.
    """
    try:
        return SearchBody.model_validate({"query": query, **fields})
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"]))
        raise ApiError(422, "invalid_field", f"{param}: {first['msg']}", param=param) from None
