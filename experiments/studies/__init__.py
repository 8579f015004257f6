"""The studies: each measures or compares something, and is run as `gridgrad study NAME`."""
