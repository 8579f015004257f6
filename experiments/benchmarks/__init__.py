"""The comparisons that `bench` runs."""
