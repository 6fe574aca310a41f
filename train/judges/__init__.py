"""Judges: models that say how good a search is, where no rule can. That comes on top of what rules can check."""
