"""Where the remote Chroma is, and who asks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from thresher.corpus.remote.errors import RemoteCredentials

CLOUD = "https://api.trychroma.com"

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_DEFAULT_TENANT = "default_tenant"
_DEFAULT_DATABASE = "default_database"


@dataclass(frozen=True, slots=True)
class Address:
    """A database of a tenant on a server.

    Attributes:
        url: scheme, host and port, without a path.
        api_key: sent as `X-Chroma-Token`; empty for none. Kept out of every message.
    """

    url: str
    tenant: str
    database: str
    api_key: str = field(default="", repr=False)

    @property
    def identity(self) -> str:
        """Names the place without telling the key."""
        return f"{self.url}/{self.tenant}/{self.database}"


def cloud_address(url: str | None = None, environment: Mapping[str, str] | None = None) -> Address:
    """The address from CHROMA_API_KEY, CHROMA_TENANT and CHROMA_DATABASE; `url` or CHROMA_HOST names another host.

    Chroma Cloud needs all three. Another host, a distributed Chroma of one's own, may do without: no key, and Chroma's
    own default tenant and database.

    Raises:
        RemoteCredentials: something is missing, or the host is not a URL; names it.
    """
    given = os.environ if environment is None else environment
    host = _checked(url or given.get("CHROMA_HOST", "").strip() or CLOUD)
    values = {name: given.get(name, "").strip() for name in ("CHROMA_API_KEY", "CHROMA_TENANT", "CHROMA_DATABASE")}
    missing = [name for name, value in values.items() if not value]
    if missing and host == CLOUD:
        raise RemoteCredentials(
            f"Chroma Cloud needs {', '.join(values)}; not set: {', '.join(missing)}. Set them as environment variables "
            "(Chroma Cloud shows them under Settings), or choose another place for the indexes"
        )
    if values["CHROMA_API_KEY"] and host.startswith("http:") and urlsplit(host).hostname not in _LOOPBACK:
        raise RemoteCredentials(f"CHROMA_API_KEY would go to {host} unencrypted: use https://, or unset the key")
    if not values["CHROMA_API_KEY"].isascii():
        raise RemoteCredentials("CHROMA_API_KEY holds characters that no key has: copy it again")
    return Address(
        host,
        values["CHROMA_TENANT"] or _DEFAULT_TENANT,
        values["CHROMA_DATABASE"] or _DEFAULT_DATABASE,
        values["CHROMA_API_KEY"],
    )


def _checked(url: str) -> str:
    text = url if "://" in url else f"https://{url}"
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/")
        port = parts.port
    except ValueError:
        sound, port = False, None
    if not sound or parts.query or parts.fragment or parts.username:
        raise RemoteCredentials(f"{url!r} is not the address of a Chroma server: use https://HOST or https://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")
