"""A client of the HTTP API: `Client` and `AsyncClient`."""
