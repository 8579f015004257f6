"""The network of one rank, its training steps, and how the samples reach it."""
