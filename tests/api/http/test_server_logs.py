"""How the server's log is written."""

from __future__ import annotations

import json
import logging
import sys

from thresher.api.http.logs import JsonFormatter, TextFormatter


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("thresher.api", logging.WARNING, "file.py", 1, message, args, None)
    made.__dict__.update(extra)
    return made


def failure() -> logging.LogRecord:
    try:
        raise ValueError("no key s3cret-key")
    except ValueError:
        made = record("request %s failed", "req_1")
        made.exc_info = sys.exc_info()
        return made


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record("model is %s\nnow", "down", fields={"route": "/v1/search", "status": 502}))
    assert "\n" not in line
    entry = json.loads(line)
    assert entry | {"time": ""} == {
        "time": "",
        "level": "warning",
        "logger": "thresher.api",
        "message": "model is down\nnow",
        "route": "/v1/search",
        "status": 502,
    }
    assert entry["time"].endswith("Z")
    assert "ValueError" in json.loads(JsonFormatter().format(failure()))["exception"]


def test_text_is_for_people() -> None:
    line = TextFormatter().format(record("model is %s", "down", fields={"route": "/v1/search", "error": None}))
    assert line.endswith(" warning model is down route=/v1/search")
    assert TextFormatter().format(failure()).splitlines()[1].startswith("Traceback")


def test_secrets_are_masked() -> None:
    for formatter in (TextFormatter(["s3cret-key"]), JsonFormatter(["s3cret-key", ""])):
        for made in (failure(), record("Bearer s3cret-key"), record("x", fields={"header": "s3cret-key"})):
            line = formatter.format(made)
            assert "s3cret" not in line
            assert "[secret]" in line
