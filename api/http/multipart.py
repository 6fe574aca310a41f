"""Files of a multipart body, written to disk as they come: of none is more than a piece in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fastapi import Request
from python_multipart.exceptions import FormParserError, MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from thresher.api.errors import ApiError
from thresher.api.service.jobs.spool import Spool

MAX_FILES = 1_000
"""Files of one request."""

FIELDS = ("files", "file")
"""What the parts that are files may be called."""


async def receive_files(request: Request, spool: Spool) -> None:
    """Write the files of a body into a spool. What has come is in it also after an error; the caller discards it.

    Raises:
        ApiError: 415, the body is no multipart form; 422, it is a broken one, has other fields, or no files.
        ClientDisconnect: the client went before its end.
        OSError: the files cannot be written.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        message = "send the files as multipart/form-data, each as a part named `files` with a file name"
        raise ApiError(415, "unsupported_media_type", message)
    form = _Form(spool)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": form.on_part_begin,
                "on_header_field": form.on_header_field,
                "on_header_value": form.on_header_value,
                "on_header_end": form.on_header_end,
                "on_headers_finished": form.on_headers_finished,
                "on_part_data": form.on_part_data,
                "on_part_end": form.on_part_end,
                "on_end": form.on_end,
            },
        )
        async for piece in request.stream():
            if piece:
                await asyncio.to_thread(parser.write, piece)  # parsing and writing: neither belongs into the loop
        parser.finalize()
    except (MultipartParseError, FormParserError) as error:
        raise ApiError(422, "invalid_multipart", f"the body is not valid multipart/form-data: {error}") from error
    if not form.ended:
        raise ApiError(422, "invalid_multipart", "the body ends before its last boundary; send it again")
    if not spool.names:
        message = "there is no file in the body: send each as a part named `files` with a file name"
        raise ApiError(422, "invalid_field", message, param="files")


@dataclass(slots=True)
class _Form:
    """What the parser calls, in the order of the body; an error raised here ends the parsing."""

    spool: Spool
    ended: bool = False
    _name: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)
    _headers: dict[bytes, bytes] = field(default_factory=dict)

    def on_part_begin(self) -> None:
        self._headers = {}

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b"").decode("latin-1"))
        name = _text(options.get(b"name", b""))
        if name not in FIELDS:
            message = f"there is no field {name!r}; files go into `files`"
            raise ApiError(422, "unknown_field", message, param=name or None)
        if b"filename" not in options:
            raise ApiError(422, "invalid_field", "each part named `files` needs a file name", param="files")
        if len(self.spool.names) >= MAX_FILES:
            raise ApiError(422, "too_many_files", f"at most {MAX_FILES:,} files a request; send several", param="files")
        # Browsers write a quotation mark like this; nothing else is escaped.
        self.spool.begin(_text(options[b"filename"]).replace("%22", '"'))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.spool.write(data[start:end])

    def on_part_end(self) -> None:
        self.spool.end()

    def on_end(self) -> None:
        self.ended = True


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


__all__ = ["FIELDS", "MAX_FILES", "ClientDisconnect", "receive_files"]
