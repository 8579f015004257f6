"""Plans: how layers with weights are placed along an axis of the grid, and placing a network with them."""
