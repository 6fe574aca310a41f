"""Which policy serves a request: what is live, or, for a share of the users, a canary."""
