"""The files in which measurements of this machine are stored, in a cache folder."""

import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def cache_path(name):
    """The path of the file `name` in the cache folder: GRIDGRAD_CACHE if that is set, else the user's cache directory."""
    return Path(os.environ.get("GRIDGRAD_CACHE") or user_cache_path("gridgrad")) / name


def write_whole(path, text):
    """Write a text file completely or, if that fails, not at all. Raises OSError if it can not be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # it goes, with what is in it, however this ends
        beside = Path(folder) / path.name
        beside.write_text(text)
        os.replace(beside, path)
