"""Connections of the tests to a remote Chroma."""

from __future__ import annotations

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.remote.address import cloud_address
from thresher.corpus.remote.database import RemoteDatabase
from thresher.corpus.remote.homes import RemoteServer
from thresher.corpus.remote.session import Patience

CREDENTIALS = ("CHROMA_API_KEY", "CHROMA_TENANT", "CHROMA_DATABASE")
QUICK = Patience(total_s=3.0, first_wait_s=0.01, longest_wait_s=0.05, lost_attempts=2, timeout_s=20.0)


def cloud_server() -> RemoteServer:
    """Chroma Cloud by the credentials of the environment; a test that calls this is marked `cloud`."""
    return RemoteServer(cloud_address())


def server_at(url: str, patience: Patience = QUICK) -> RemoteServer:
    """A Chroma server of the tests, without credentials."""
    return RemoteServer(cloud_address(url, {}), lambda address: RemoteDatabase(address, patience=patience))


def unit(rows: int, dimension: int = 8, seed: int = 0) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
