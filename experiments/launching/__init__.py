"""Starting jobs with mpiexec and ending them: what the programs that start ranks use, and the ranks do not."""
