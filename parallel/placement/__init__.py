"""Where the parts of every array are, how they move, and how a plan turns a serial network into that of one rank."""
