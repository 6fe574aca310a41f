"""Parsing and embedding on a Ray cluster. Only this process writes to the collection."""
