"""Predicting what a step takes on a machine, and the plan that takes least."""
