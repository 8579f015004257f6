"""What layers compute with: matrix products, convolutions, windows, and the tables that say how a processor does them best."""
