"""Starting the ranks of a job, and ending all of them together."""
