"""Reinforcement learning on segments: the objective on TRL, the logprob gate, the way of weights to samplers."""
