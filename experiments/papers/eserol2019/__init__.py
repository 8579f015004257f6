"""Eserol 2019: its experiments, its tables and figures as items, and its claims."""
