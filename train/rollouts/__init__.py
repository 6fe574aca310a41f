"""Searches run for training, beside each other, while the weights change."""
