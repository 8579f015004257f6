"""The version of gridgrad. Its one source is pyproject.toml, which the metadata of an installed package repeat."""

import tomllib
from importlib import metadata
from pathlib import Path


def version():
    """The version, such as "1.0.0": of the package gridgrad where this is part of it, else of the folder."""
    if __name__.startswith("gridgrad."):
        return metadata.version("gridgrad")
    settings = Path(__file__).resolve().parents[2] / "pyproject.toml"
    return tomllib.loads(settings.read_text(encoding="utf-8"))["project"]["version"]
