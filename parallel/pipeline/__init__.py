"""Schedules of pipelines as data: which rank computes which part of the network for which samples, in which order, and when."""
