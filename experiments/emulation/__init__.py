"""Several hosts that one machine plays: namespaces and a shaped network."""
