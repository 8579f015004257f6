"""The files in which measurements of this machine are stored, in a cache folder."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_path(name):
    """The path of the file `name` in the cache folder: GRIDGRAD_CACHE if that is set, else the user's cache directory."""
    return Path(os.environ.get("GRIDGRAD_CACHE") or user_cache_path("gridgrad")) / name
