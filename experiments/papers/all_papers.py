"""The papers whose experiments are repeated: a folder each, with a module of the same name for each part of it."""

from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class Paper(NamedTuple):
    """The modules of a paper: its experiments, its tables and figures as items, and what is found of its claims."""

    experiments: ModuleType
    items: ModuleType
    claims: ModuleType


def of_folder(name):
    """The Paper in a folder."""
    return Paper(*(import_module(f"gridgrad.experiments.papers.{name}.{part}") for part in Paper._fields))


PAPERS = {name: of_folder(name) for name in ("laugier2018", "grabaskas2018", "hegde2016", "marques2016", "eserol2019")}
