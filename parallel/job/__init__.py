"""The ranks of a job: waiting for each other, and ending together."""
