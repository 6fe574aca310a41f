"""A policy run over a set and scored, beside one plain search."""
