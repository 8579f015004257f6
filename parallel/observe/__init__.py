"""What watches a run: spans of time, traces and profiles."""
