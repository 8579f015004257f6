"""The study `pipelined`: pipelines beside the simulation of their schedules."""
