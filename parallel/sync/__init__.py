"""How the gradients of parameters that several ranks hold are summed, and how these ranks keep the parameters equal."""
