"""Starting the ranks of a job together and ending them together."""
