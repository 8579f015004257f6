"""Parts of one program each, whose name they begin with, so that no file is too long to read."""
