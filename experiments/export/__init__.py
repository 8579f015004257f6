"""Writing a training step for other simulators: a file for each format."""
