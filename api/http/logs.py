"""How the server logs: lines for people, or a JSON object a line for machines, on stderr."""

from __future__ import annotations

import json
import logging
import logging.config
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

_LOGGERS = ("thresher", "uvicorn")
MASK = "[secret]"


class _Formatter(logging.Formatter):
    """Puts a mask over secrets, wherever in a record they stand."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = [secret for secret in secrets if secret]

    def format(self, record: logging.LogRecord) -> str:
        text = self._line(record)
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def _line(self, record: logging.LogRecord) -> str:
        raise NotImplementedError

    @staticmethod
    def _time(record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _exception(self, record: logging.LogRecord) -> str | None:
        return self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else record.exc_text


class TextFormatter(_Formatter):
    """`TIME LEVEL message name=value …`, an exception below it."""

    def _line(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        shown = "".join(f" {name}={value}" for name, value in fields.items() if value not in (None, ""))
        line = f"{self._time(record)} {record.levelname.lower():7} {record.getMessage()}{shown}"
        exception = self._exception(record)
        return f"{line}\n{exception}" if exception else line


class JsonFormatter(_Formatter):
    """One JSON object: time, level, logger, message, and the fields of the record."""

    def _line(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": self._time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if exception := self._exception(record):
            entry["exception"] = exception
        return json.dumps(entry, ensure_ascii=False, default=str)


def configure_logging(format: str, level: str, *, secrets: Sequence[str] = ()) -> None:
    """Have the loggers of this package and of uvicorn write to stderr. Libraries' own loggers are left alone.

    Args:
        format: `text` or `json`.
        level: the least that is written: debug, info, warning or error. Access lines are info.
        secrets: never written, whatever a message holds.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(secrets) if format == "json" else TextFormatter(secrets))
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    # An access line says all that uvicorn's own would, and when it starts is said already.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger("uvicorn").level))
