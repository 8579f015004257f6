"""Starting the ranks of a job together, waiting for each other, and ending them together."""
