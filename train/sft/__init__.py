"""Supervised fine-tuning on trajectories that found the evidence: the warm start of reinforcement learning."""
