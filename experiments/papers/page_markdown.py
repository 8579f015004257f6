"""The page of all papers as Markdown."""

import re

from gridgrad.experiments.common.tables import cell
from gridgrad.experiments.common.templates import environment
from gridgrad.experiments.papers import page_words as words
from gridgrad.experiments.papers.items import MISSING, deviation


def render(page):
    """The text of the page. page: a `page.Page`."""
    made = environment(anchor=anchor, cell=cell, cell_text=cell_text)
    return made.get_template("page.md.jinja").render(page=page, words=words, deviation=deviation, MISSING=MISSING)


def anchor(heading):
    """The anchor that readers of Markdown make of a heading: small letters, hyphens for spaces, no marks."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def cell_text(text):
    """A text that may stand in the cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")
