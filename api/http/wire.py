"""HTTP/1.1 as uvicorn speaks it, with bounds on what a client may send before anybody has looked at its key."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 64 * 1024
"""Bytes of a request's line and headers, or of the trailers of a body. uvicorn has a bound only with its slower parser:
with this one, a client without a key could fill the memory with a request that never gets to its body."""

HEAD_S = 30.0
"""How long a client may take for them. A connection that never asks anything would be kept for good."""


class BoundedHttp(HttpToolsProtocol):
    """The protocol of one connection."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_head = True
        self._advanced = False
        self._pending = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._time()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        super().connection_lost(exc)
        self._in_head = False
        self._time()

    def data_received(self, data: bytes) -> None:
        """Read on. What counts is how much came since the last time that a part of a request was whole."""
        self._advanced = False
        super().data_received(data)
        self._pending = 0 if self._advanced else self._pending + len(data)
        self._time()
        if self._pending > LONGEST_HEAD and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.send_400_response(f"The head of a request may have {LONGEST_HEAD} bytes.")
            self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._advanced = self._in_head = True

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._advanced, self._in_head = True, False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of its body has come."""
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._advanced = True
        super().on_message_complete()

    def _time(self) -> None:
        """Measure the time while a head is not whole, and only then."""
        if self._in_head and self._patience is None:
            self._patience = self.loop.call_later(HEAD_S, self._late)
        elif not self._in_head and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _late(self) -> None:
        """Hang up, but not amid the answer to the request before."""
        self._patience = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self._time()
