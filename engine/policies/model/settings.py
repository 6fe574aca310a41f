"""What a user may say about a model and its server; the same for every kind of model policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from thresher.engine.errors import InvalidRequest

DEFAULT_URL = "http://localhost:8000/v1"
"""Where `vllm serve` listens unless told otherwise."""
URL_VARIABLES = ("THRESHER_MODEL_URL", "OPENAI_BASE_URL")
KEY_VARIABLES = ("THRESHER_MODEL_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A model, where it runs, and how it is asked.

    Attributes:
        model: its name as the server knows it, or a path for `hf`; a policy's spec sets it.
        url: up to and including `/v1`; None takes THRESHER_MODEL_URL, OPENAI_BASE_URL, or `DEFAULT_URL`. An address
            without a path gets `/v1`.
        api_key: sent as a bearer token and never shown; None takes THRESHER_MODEL_API_KEY, or OPENAI_API_KEY.
        temperature, top_p: None leaves them to the policy (`tokens`: 1.0) or the server (`chat`).
        max_reply_tokens: the most a model may write in one turn, reasoning included; the context may allow less.
        timeout_s: how long one whole answer may take; for a streamed one, how long the server may say nothing.
        connect_s: how long a connection may take.
        attempts: how often one request is sent before the server counts as unavailable.
        first_wait_s, longest_wait_s: the bounds of waits between attempts; they double in between.
        seed: sent to servers that take one.
        profile: how prompts are written, for policies that work with tokens (`context1`, `chatml`).
        tools: for `chat`, how it starts out: `native` calls, or `text` for a server whose template ignores tools in
            silence. One that refuses them is noticed.
        tool_choice: `auto`, or `required` for a server that can force a call, which helps small models.
        keep_reasoning: whether the model reads its past reasoning in later turns (`chat`; `tokens` always keeps it).
        stream: whether replies are streamed even when nobody listens.
        extra: more fields for the body of each request (`{"reasoning_effort": "low"}`), for what a server knows.
    """

    model: str = ""
    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float | None = None
    top_p: float | None = None
    max_reply_tokens: int = 4_096
    timeout_s: float = 300.0
    connect_s: float = 10.0
    attempts: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    seed: int | None = None
    profile: str | None = None
    tools: str = "native"
    tool_choice: str = "auto"
    keep_reasoning: bool = True
    stream: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("timeout_s", "connect_s", "longest_wait_s"):
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"{name} must be positive, got {getattr(self, name)}", param=name)
        if not self.first_wait_s >= 0:
            raise InvalidRequest(f"first_wait_s must not be negative, got {self.first_wait_s}", param="first_wait_s")
        for name in ("max_reply_tokens", "attempts"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {getattr(self, name)}", param=name)
        for name, choices in (("tools", ("native", "text")), ("tool_choice", ("auto", "required"))):
            if getattr(self, name) not in choices:
                raise InvalidRequest(f"{name} must be one of {', '.join(choices)}", param=name)
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise InvalidRequest(f"temperature must lie in 0..2, got {self.temperature}", param="temperature")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InvalidRequest(f"top_p must lie in 0..1, got {self.top_p}", param="top_p")

    def resolved(self, environment: Mapping[str, str] | None = None) -> ModelSettings:
        """These settings with address and key filled in from the environment, where they were not given.

        Raises:
            InvalidRequest: the address is no http(s) URL.
        """
        env = os.environ if environment is None else environment
        url = self.url or next((value for name in URL_VARIABLES if (value := env.get(name))), DEFAULT_URL)
        key = self.api_key or next((value for name in KEY_VARIABLES if (value := env.get(name))), None)
        return replace(self, url=checked_url(url), api_key=key)


def checked_url(url: str) -> str:
    """A server's base URL, without a trailing slash and with `/v1` if it has no path.

    Raises:
        InvalidRequest: it is no http(s) URL.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port  # raises for what is no number
    except ValueError as error:
        raise InvalidRequest(f"the model URL cannot be read ({error}): use http://HOST:PORT/v1", param="url") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InvalidRequest(f"{shown_url(url)!r} is no model URL: use http(s)://HOST:PORT/v1", param="url")
    if parts.query or parts.fragment:
        raise InvalidRequest(
            f"the model URL ends at its path, without {'?' if parts.query else '#'}…: what a server wants besides "
            "cannot be sent; put a proxy before it that adds it",
            param="url",
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/completions") or "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def shown_url(url: str) -> str:
    """`url` as messages may show it: without a user name or password in it."""
    head, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{head}{separator}{place.rpartition('@')[2]}{slash}{path}" if separator else url.rpartition("@")[2]
