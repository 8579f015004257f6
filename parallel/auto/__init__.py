"""Automatic choices: the grid, the plan and the reduction, from measurements of this machine that are stored."""
