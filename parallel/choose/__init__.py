"""What `parallelize` chooses where nothing is named: grid, plan, reduction and shares, by prediction or measurement."""
