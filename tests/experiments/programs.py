"""Starting programs as a user would."""

import subprocess
import sys


def program(*arguments):
    """A program, run alone: `program("experiments.plot", "speedup", path)`."""
    return subprocess.run([sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, timeout=300)
