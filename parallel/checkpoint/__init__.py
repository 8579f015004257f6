"""Checkpoints: what training needs to go on later, on the same grid or another one, written while training goes on."""
