"""The body of a search request; it is the service's, which every face uses."""

from __future__ import annotations

from thresher.api.service.searching.bodies import REQUEST_FIELDS, SearchBody

__all__ = ["REQUEST_FIELDS", "SearchBody"]
