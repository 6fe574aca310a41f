"""Trajectories as training rows: runs of turns in which each prompt extends the one before."""
