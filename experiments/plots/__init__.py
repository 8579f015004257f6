"""The figures that `plot` draws."""
