"""What no client is told: where the server's files lie, and where on its network the servers are that it works with."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from thresher.corpus.paths import home

HOME = "THRESHER_HOME"
"""Stands for the folder of the server's files, wherever that is."""

ADDRESS = "[an address of the server's own]"

_URL = re.compile(r"\bhttps?://[^\s'\"<>`,;()]+", re.IGNORECASE)


def for_client(text: str) -> str:
    """A text that some layer wrote for whoever runs it, as a client may read it.

    The path of THRESHER_HOME becomes these words; a URL that only this machine or its network can resolve is left out.
    """
    for path in sorted({str(home().absolute()), str(home().resolve())}, key=len, reverse=True):
        if len(path) > 1:
            text = re.sub(re.escape(path) + r"(?![\w-]|\.\w)", HOME, text)
    return _URL.sub(lambda found: ADDRESS if _is_private(found[0]) else found[0], text)


def _is_private(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:  # whatever it is, it is no address that anybody could use
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith(_LOCAL)


_LOCAL = (".local", ".localhost", ".internal", ".intranet", ".lan", ".home.arpa", ".svc")
