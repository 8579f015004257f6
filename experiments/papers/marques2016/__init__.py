"""Marques 2016: its experiments, its tables and figures as items, and its claims."""
