"""The study `servers`: parameter servers: steps, access, and how many workers they serve."""
