"""Tasks, answer matching and metrics, and the evaluation that runs them through the engine."""
