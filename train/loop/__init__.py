"""Learning from production: rounds of training, the gate, the canary, and the log of what was decided and why."""
