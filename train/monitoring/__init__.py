"""Logs of a training run: what is written, the alarms that watch it, the plots made of it."""
