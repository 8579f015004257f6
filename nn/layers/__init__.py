"""Layers: what a network consists of, each with its forward and its backward pass."""
