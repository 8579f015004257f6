"""Grabaskas 2018: its experiments, its tables and figures as items, and its claims."""
