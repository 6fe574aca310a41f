"""Errors of training. Each message says what happened and what to do next."""

from __future__ import annotations


class TrainError(Exception):
    """Base of every error that training raises on purpose. `code` is stable and machine-readable."""

    code = "training_error"


class SettingsError(TrainError):
    """A run's settings cannot be used as given; the message names the key."""

    code = "invalid_settings"


class SyncError(TrainError):
    """New weights could not be brought to what samples."""

    code = "weight_sync_failed"


class RunError(TrainError):
    """A run cannot be started or gone on with as its folder is."""

    code = "run_refused"
