"""Opt-in collection: which searches are kept to learn from, with what they led to, and how they are erased."""
