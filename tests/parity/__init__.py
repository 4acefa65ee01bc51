"""Ours beside transformers on the same weights and inputs."""
