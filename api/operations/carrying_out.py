"""Carrying an operation out inside a server, in the calling thread: for a command, or for a job."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.api.operations.base import Cancelled, Document, Operation, Reporter
from thresher.api.operations.served import ServedTarget

if TYPE_CHECKING:
    from thresher.api.service.registry import Registry


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended: with a result, with an error, or, having neither, because it was told to stop."""

    result: Document | None = None
    error: BaseException | None = None

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop, and did before it had a result."""
        return self.result is None and self.error is None


def carry_out(
    operation: Operation[Any], request: Any, collection: str, registry: Registry, reporter: Reporter
) -> Outcome:
    """Run an operation on a collection of the registry; one that is `single` while no other such runs on it.

    Nothing is raised: whoever waits for the outcome would otherwise wait for ever.
    """
    right: AbstractContextManager[None] = nullcontext()
    if operation.single:
        right = registry.task(collection, operation.name)
    try:
        with right:
            result = operation.run(ServedTarget(collection, registry, operation.name), request, reporter)
    except Cancelled:
        return Outcome()
    except BaseException as error:
        return Outcome(error=error)
    return Outcome(result)
