"""Training in the engine that serves: tasks, rewards, rollouts, segments, trainers, and the evaluation of policies."""
