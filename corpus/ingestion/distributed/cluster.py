"""Joining a Ray cluster, and finding out whether its nodes are fit for the work."""

from __future__ import annotations

import logging
import os
import platform
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from thresher.corpus.errors import ClusterError
from thresher.corpus.release import release

LOCAL = "local"
"""Instead of an address: start a cluster on this machine for the run."""

PROBE_S = 120.0
_CONNECT_S = 5.0
_AFRESH = "or use `local` for a cluster on this machine"


class Cluster:
    """A connection to a cluster. One that was there before (this program called `ray.init`) is used and left alone.

    Args:
        address: `auto`, `HOST:PORT`, `ray://HOST:PORT`, or `local`.

    Raises:
        ClusterError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if address != LOCAL and "RAY_AUTH_MODE" not in os.environ and _has_token():
            os.environ["RAY_AUTH_MODE"] = "token"  # `ray start` then asks for it, but `ray.init(address)` does not look
        try:
            import ray
        except ImportError as error:
            raise ClusterError("Ray is not installed here: run `pip install 'thresher[ray]'`") from error
        self.ray: Any = ray
        self._address = address
        self._joined = not ray.is_initialized()
        if not self._joined:
            return
        _check_address(address)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
        if address == LOCAL:
            options["include_dashboard"] = False
        else:
            options["address"] = address
        try:
            ray.init(**options)
        except Exception as error:  # ConnectionError, RuntimeError, ValueError, whatever its layers raise
            raise ClusterError(
                f"no Ray cluster can be joined at {address!r} ({_first_line(error)}). Nothing was changed; check the "
                f"address, that `ray status` shows it running, and RAY_AUTH_TOKEN if it asks for a token, {_AFRESH}"
            ) from error

    def cpus(self) -> int:
        """CPUs that the cluster lends, at least 1."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def gpus(self) -> int:
        """GPUs that the cluster lends."""
        return int(self.ray.cluster_resources().get("GPU", 0))

    def close(self) -> None:
        """Leave the cluster, if this object joined it."""
        if self._joined and self.ray.is_initialized():
            self.ray.shutdown()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def build_of_this_process() -> dict[str, str]:
    """What must be equal on every node, so that a result does not depend on where it was computed."""
    return {"thresher": release(), "python": ".".join(platform.python_version_tuple()[:2])}


def _has_token() -> bool:
    """Whether Ray would find a token for its clusters (see its documentation on token authentication)."""
    named = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    return named or (Path.home() / ".ray" / "auth_token").exists()


def _check_address(address: str) -> None:
    """Ask whether anybody listens: Ray itself tries for minutes."""
    if address in (LOCAL, "auto"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ClusterError(
            f"{address!r} is no address of a Ray cluster: use `auto`, HOST:PORT or ray://HOST:PORT, {_AFRESH}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"nothing answers at {address!r} ({error}). Nothing was changed; start the cluster (`ray start --head`) or "
            f"correct the address, {_AFRESH}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
