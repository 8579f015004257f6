"""Code that several programs use. What one long program alone uses is in `experiments/parts`."""
