"""The HTTP API: `create_app` makes it, `run` serves it."""

from thresher.api.http.app import create_app

__all__ = ["create_app"]
