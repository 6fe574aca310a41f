"""The policy that needs no model server; see `policy.py` for how it searches."""

from thresher.engine.policies.builtin.policy import BuiltinPolicy, Settings

__all__ = ["BuiltinPolicy", "Settings"]
