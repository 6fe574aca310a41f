"""Policies that ask a language model: over a server's chat or completions door, or in this process."""
