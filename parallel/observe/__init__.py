"""Observing a run: traces, profiles and the durations of steps."""
