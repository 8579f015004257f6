"""Shares for ranks of unequal speed: measured as functions of the share, chosen exactly, and changed while training runs."""
