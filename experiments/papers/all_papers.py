"""The papers whose experiments are repeated, by name."""

from importlib import import_module

from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.paper import FOLDER, paper

NAMES = "laugier2018", "grabaskas2018", "hegde2016", "marques2016", "eserol2019"


class FolderPaper:
    """A paper of a folder of modules."""

    def __init__(self, name):
        parts = (import_module(f"gridgrad.experiments.papers.{name}.{part}") for part in ("experiments", "items", "claims"))
        self.module, items, claims = parts
        self.known, self.minutes = published(name), None
        self.items, self.claims, self.where = items.items, claims.claims, items.measured_on
        self.draw = self.module.draw
        self.verdict = ""
        self.title, self.about, self.described = items.TITLE, items.ABOUT, items.DESCRIBED


def paper_of(name):
    """The Paper of a name. ValueError for a mistake in its file."""
    return paper(name) if (FOLDER / f"{name}.toml").exists() else FolderPaper(name)
