"""What a training step costs on a machine: workload, prices, planner and simulation."""
