"""Errors of the engine. Each message says what happened and what to do next."""

from __future__ import annotations


class EngineError(Exception):
    """Base of every error that the engine raises on purpose. `code` is stable and machine-readable."""

    code = "engine_error"


class InvalidRequest(EngineError):
    """The request cannot be run as given; `param` names the field at fault."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PolicyError(EngineError):
    """The policy could not decide: a model server failed, or a script ran out."""

    code = "policy_error"


class ReplayMismatch(EngineError):
    """A recorded trajectory does not rebuild to the prompts it recorded."""

    code = "replay_mismatch"
