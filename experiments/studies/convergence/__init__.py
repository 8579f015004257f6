"""The study `convergence`: several ways to train, until they reach an accuracy."""
