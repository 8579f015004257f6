"""Where what was measured on this machine is remembered: a folder of the user's, or GRIDGRAD_CACHE."""

import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def cache_path(name):
    """The path of a file there, which need not exist."""
    return Path(os.environ.get("GRIDGRAD_CACHE") or user_cache_path("gridgrad")) / name


def write_whole(path, text):
    """Write a file whole or not at all. OSError where that is not possible."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as beside:
        beside.write(text)
    os.replace(beside.name, path)
