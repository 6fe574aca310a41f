"""The record: one SQLite database that holds everything, from which every other index can be rebuilt."""
