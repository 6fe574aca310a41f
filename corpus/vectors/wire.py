"""Chroma's HTTP interface (v2), as much of it as a dense index needs.

Not `chromadb.HttpClient`: that one waits for ever (its time-out cannot be set), and a server that hangs must cost a
search a bounded wait. Everything sent here may be sent twice without harm, so a broken connection is tried again.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx

from thresher.corpus.documents import Vectors
from thresher.corpus.errors import CorpusError, IndexUnreachable
from thresher.corpus.vectors.base import IndexDamaged

_TRIES = 3
_PAUSE_SECONDS = 0.2
_BUSY = {429, 502, 503, 504}
_REFUSED = {401, 403}
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Address:
    """A Chroma server and the database to use there."""

    base: str
    tenant: str = "default_tenant"
    database: str = "default_database"
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.base} ({self.tenant}/{self.database})"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds: for a connection, for an answer to a query, for a change to be taken."""

    connect: float = 3.0
    answer: float = 10.0
    change: float = 120.0


class HangingServer(IndexUnreachable):
    """The server took the request and did not answer in time."""


def parse_address(url: str) -> Address:
    """The address in `http(s)://[user:password@]host[:port][/path][?tenant=…&database=…]`.

    Raises:
        CorpusError: it is no such URL.
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        options = {name: values[-1] for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
    except ValueError as error:
        raise CorpusError(f"{url!r} is no address of a Chroma server ({error}): use http://HOST:PORT") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or options.keys() - {"tenant", "database"}:
        raise CorpusError(
            f"{url!r} is no address of a Chroma server: use http://HOST:PORT, if need be with "
            "USER:PASSWORD@ and ?tenant=NAME&database=NAME"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    credentials = (parts.username, parts.password or "") if parts.username else None
    return Address(f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}", credentials=credentials, **options)


class ChromaServer:
    """A connection to a Chroma server. Thread-safe; connects when first used."""

    def __init__(self, address: Address, patience: Patience) -> None:
        self.address = address
        self._patience = patience
        self._client = httpx.Client(
            base_url=f"{address.base}/api/v2",
            auth=address.credentials,
            limits=httpx.Limits(max_connections=32, keepalive_expiry=30.0),
            # A proxy of the environment must not come between this process and its own child.
            trust_env=not address.base.startswith("http://127.0.0.1"),
        )
        self._prefix = f"/tenants/{quote(address.tenant, safe='')}/databases/{quote(address.database, safe='')}"

    def beat(self) -> None:
        """Raise `IndexUnreachable` unless a Chroma server answers."""
        try:
            answer = self.request("GET", "/heartbeat", tries=1)
        except (IndexDamaged, RuntimeError) as error:
            raise IndexUnreachable(f"no Chroma server answers at {self.address} ({error})") from error
        if not isinstance(answer, dict) or "nanosecond heartbeat" not in answer:
            raise IndexUnreachable(f"{self.address} is no Chroma server ({str(answer)[:80]!r})")

    def max_batch(self) -> int:
        """How many records the server takes in one call."""
        return int(self.request("GET", "/pre-flight-checks")["max_batch_size"])

    def collection(self, name: str) -> ServerCollection | None:
        """A collection by name, or None."""
        try:
            found = self.request("GET", f"{self._prefix}/collections/{quote(name, safe='')}")
        except IndexDamaged:
            return None
        return ServerCollection(self, f"{self._prefix}/collections/{found['id']}")

    def create(self, name: str, configuration: Mapping[str, Any]) -> ServerCollection:
        """A collection of that name, made if need be."""
        body = {"name": name, "configuration": configuration, "get_or_create": True}
        made = self.request("POST", f"{self._prefix}/collections", body, slow=True)
        return ServerCollection(self, f"{self._prefix}/collections/{made['id']}")

    def delete(self, name: str) -> None:
        """Delete a collection; one that is not there is ignored."""
        try:
            self.request("DELETE", f"{self._prefix}/collections/{quote(name, safe='')}", slow=True)
        except IndexDamaged:
            return

    def names(self) -> list[str]:
        """Names of all collections of the database."""
        found: list[str] = []
        while True:
            page = self.request("GET", f"{self._prefix}/collections?limit={_PAGE}&offset={len(found)}")
            found += [collection["name"] for collection in page]
            if len(page) < _PAGE:
                return found

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        slow: bool = False,
        tries: int = _TRIES,
    ) -> Any:
        """One request, its body JSON or to be made that, and its JSON answer.

        Raises:
            HangingServer: no answer in time.
            IndexUnreachable: no connection, or the server is busy, full or refuses these credentials.
            IndexDamaged: what was asked for is not there.
            RuntimeError: any other answer.
        """
        wait = self._patience.change if slow else self._patience.answer
        timeout = httpx.Timeout(wait, connect=self._patience.connect)
        content = json.dumps(body, separators=(",", ":")).encode() if isinstance(body, Mapping) else body
        headers = {} if body is None else {"Content-Type": "application/json"}
        for left in reversed(range(tries)):
            try:
                answer = self._client.request(method, path, content=content, headers=headers, timeout=timeout)
            except httpx.ConnectTimeout as error:
                raise IndexUnreachable(f"the Chroma server at {self.address} cannot be reached") from error
            except httpx.TimeoutException as error:
                raise HangingServer(f"the Chroma server at {self.address} did not answer in {wait:g} s") from error
            except (httpx.TransportError, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
                if left and not isinstance(error, (httpx.ConnectError, RuntimeError)):
                    continue
                raise IndexUnreachable(f"the Chroma server at {self.address} cannot be reached ({error})") from error
            if answer.status_code in _BUSY and left:
                time.sleep(_PAUSE_SECONDS * (_TRIES - left))
                continue
            return self._parsed(answer)
        raise IndexUnreachable(f"the Chroma server at {self.address} cannot be reached")

    def _parsed(self, answer: httpx.Response) -> Any:
        if answer.is_success:
            try:
                return answer.json()
            except ValueError as error:
                raise IndexUnreachable(f"{self.address} is no Chroma server ({answer.text[:80]!r})") from error
        what = f"{answer.status_code}: {answer.text[:300]}"
        if answer.status_code in _REFUSED:
            raise IndexUnreachable(f"the Chroma server at {self.address} refuses access ({what})")
        if answer.status_code in _BUSY or "disk is full" in answer.text:
            raise IndexUnreachable(f"the Chroma server at {self.address} is busy or full ({what})")
        if answer.status_code == 404:
            raise IndexDamaged(f"the Chroma server at {self.address} does not have it ({what})")
        raise RuntimeError(f"the Chroma server at {self.address} answered {what}")


class ServerCollection:
    """A collection on a server, with the methods of Chroma's own that `ChromaRows` uses."""

    def __init__(self, server: ChromaServer, path: str) -> None:
        self._server = server
        self._path = path

    def add(self, *, ids: Sequence[str], embeddings: Vectors) -> None:
        """Add rows, shape (len(ids), dimension); ids that are there already keep what they have."""
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in embeddings]
        self._post("add", {"ids": list(ids), "embeddings": rows}, slow=True)

    def delete(self, *, ids: Sequence[str]) -> None:
        """Delete by id."""
        self._post("delete", {"ids": list(ids)}, slow=True)

    def get(
        self, *, ids: Sequence[str] | None = None, include: Sequence[str] = (), limit: int | None = None
    ) -> dict[str, Any]:
        """`ids` (those of the given ones that are there, or all) and what `include` names."""
        body = {"ids": None if ids is None else list(ids), "include": list(include), "limit": limit}
        found: dict[str, Any] = self._post("get", body, slow=True)
        return found

    def query(self, *, query_embeddings: Sequence[Any], n_results: int, include: Sequence[str]) -> dict[str, Any]:
        """Per query its nearest `ids` and `distances`."""
        # Nine digits are all of a float32; written like this they take half the time of `json.dumps`.
        vectors = ",".join(f"[{','.join(map('%.9g'.__mod__, _floats(vector)))}]" for vector in query_embeddings)
        options = json.dumps({"n_results": n_results, "include": list(include)})
        body = f'{{"query_embeddings":[{vectors}],{options[1:]}'.encode()
        found: dict[str, Any] = self._post("query", body)
        return found

    def count(self) -> int:
        """How many rows there are."""
        return int(self._server.request("GET", f"{self._path}/count", slow=True))

    def rename(self, name: str) -> None:
        """Give the collection another name."""
        self._server.request("PUT", self._path, {"new_name": name}, slow=True)

    def _post(self, what: str, body: Mapping[str, Any] | bytes, *, slow: bool = False) -> Any:
        return self._server.request("POST", f"{self._path}/{what}", body, slow=slow)


def _floats(vector: Any) -> list[float]:
    values: list[float] = vector.tolist() if hasattr(vector, "tolist") else vector
    return values
