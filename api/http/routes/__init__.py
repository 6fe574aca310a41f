"""Thresher's own endpoints, a module each for what belongs together."""
