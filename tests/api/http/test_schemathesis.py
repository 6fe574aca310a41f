"""Requests made from the OpenAPI document, good and bad ones, against a server with a real collection."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from live_support import live_server

from thresher.api.client import Client

pytest.importorskip("schemathesis")
pytestmark = pytest.mark.slow

CONFIG = """
continue-on-failure = true
max-stream-events = 20
request-timeout = 60
[generation]
deterministic = true
max-examples = 8
database = "none"
[phases]
stateful.enabled = false

[checks]
enabled = false
not_a_server_error.enabled = true
status_code_conformance.enabled = true
content_type_conformance.enabled = true
response_headers_conformance.enabled = true
response_schema_conformance.enabled = true
negative_data_rejection.enabled = true
unsupported_method.enabled = true
# The doors take what their clients send, much of which means nothing here.
[[operations]]
include-tag-regex = "^door"
checks.negative_data_rejection.enabled = false

# What is made up names nothing that there is, so some of it does.
[dictionaries.collections]
values = ["harbour"]
[dictionaries.documents]
values = ["ferry.md", "brask.md", "gone.md", "a/../b", "..", "%00", "x\\u0000y"]
[dictionaries.searches]
values = ["{search}"]
[dictionaries.jobs]
values = ["{job}"]
[parameters]
"path.collection" = {{ dictionary = "collections", probability = 0.7 }}
"path.vector_store_id" = {{ dictionary = "collections", probability = 0.7 }}
"path.document_id" = {{ dictionary = "documents", probability = 0.7 }}
"path.search_id" = {{ dictionary = "searches", probability = 0.7 }}
"path.job_id" = {{ dictionary = "jobs", probability = 0.7 }}
"""


def test_no_request_breaks_the_server_or_the_document(harbour: str, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", "--no-color"]
    with live_server(effort="minimal", save_traces=False) as url:
        with Client(url) as client:
            search, job = client.start("Edda Brask"), client.maintain(harbour, "verify")
            search.wait(60)
            job.wait(60)
        config.write_text(CONFIG.format(search=search.id, job=job.id))
        done = subprocess.run(
            [*command, f"{url}/openapi.json"], capture_output=True, text=True, timeout=900, check=False, cwd=tmp_path
        )
    said = done.stdout[-20_000:] + done.stderr[-2_000:]
    assert done.returncode == 0, said
    selected = re.search(r"Operations: +(\d+) selected / (\d+) total", done.stdout)
    assert selected, said
    assert int(selected[1]) == int(selected[2]) > 40, said
    assert f"Tested: {selected[1]}" in done.stdout, said
