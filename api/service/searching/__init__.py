"""Searches that go on independent of who listens: asked for, queued, run, followed, kept and judged."""
