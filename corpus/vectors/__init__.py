"""Nearest neighbours over chunk vectors: derived indexes, rebuilt from the record whenever they are in doubt."""
