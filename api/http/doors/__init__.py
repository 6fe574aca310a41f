"""Endpoints in the shapes that other clients already speak, so that they need only another base URL."""
