"""What a model wrote, made into calls that the engine can run, with an account of what was wrong with it."""
