"""Predictions beside those of another simulator."""
