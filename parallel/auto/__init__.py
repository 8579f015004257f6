"""What is chosen by measuring, and remembered: the machine of this job, the grid, the plan and the reduction."""
