"""Update protocols: when gradients or parameters travel between workers, and whose are the newest."""
