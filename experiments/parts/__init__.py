"""Parts of long programs, each in a file whose name begins with that of its program."""
