"""Networks by name, those of published papers among them, and weights that were pruned."""
