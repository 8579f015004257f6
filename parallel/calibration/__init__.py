"""Measuring what a machine takes for the parts of a training step."""
