"""Partitions of the work of a network: hypergraphs, partitioners, and what a partition costs."""
