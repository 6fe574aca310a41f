"""Policies that cheat, and what a reward teaches: every shipped profile must rank them below honest work."""
