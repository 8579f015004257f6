"""How the gradients of parameters that several ranks hold are summed, and the parameters updated."""
