"""The experiments of the papers, which `reproduce` runs."""
