"""Where the server is and with which key, from arguments or the environment."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

import httpx

URL_VARIABLE = "THRESHER_URL"
KEY_VARIABLE = "THRESHER_CLIENT_KEY"
DEFAULT_URL = "http://127.0.0.1:8420"


@dataclass(frozen=True, slots=True)
class Place:
    """A server and the key for it, which is never shown."""

    base_url: str
    key: str | None = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@lru_cache(maxsize=1)
def certificates() -> ssl.SSLContext:
    """What TLS connections are checked by: read once, since that takes longer than a plain search."""
    return httpx.create_ssl_context()


def place(base_url: str | None, api_key: str | None) -> Place:
    """What is given, else what THRESHER_URL and THRESHER_CLIENT_KEY say, else the server's own default address.

    Raises:
        ValueError: the URL is none, or a secret stands in it, or the key cannot be sent in a header.
    """
    url = (base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).strip().rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url must be like {DEFAULT_URL}; give the address that `thresher serve` prints")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"base_url is scheme, host, port and path only; a key goes into api_key or {KEY_VARIABLE}")
    key = api_key if api_key is not None else os.environ.get(KEY_VARIABLE) or None
    if key is not None and not (key.strip().isascii() and key.strip().isprintable() and key.strip()):
        raise ValueError("the key is blank or has characters that no HTTP header can carry; copy it again")
    return Place(url, key.strip() if key else None)
