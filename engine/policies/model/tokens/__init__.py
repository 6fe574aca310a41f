"""Policies that work with token ids: over `/v1/completions`, or with a model in this process."""
