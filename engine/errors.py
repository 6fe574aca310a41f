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


class ModelUnavailable(PolicyError):
    """A model server gave no answer, after every attempt. `status`: the last HTTP status, None if there was none."""

    code = "model_unavailable"

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelInterrupted(ModelUnavailable):
    """A reply broke off in the middle; nothing of it was run."""

    code = "model_interrupted"


class ModelRefused(PolicyError):
    """A model server will not take a request: the same one would fail again. `reason`: its own words."""

    code = "model_refused"

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
