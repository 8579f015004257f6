"""Texts that are made of templates, the files in `experiments/templates`: job scripts and pages."""

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gridgrad.experiments.common.programs import FOLDER


def environment(**filters):
    """A jinja2.Environment for these templates, with further filters; pages of HTML escape all texts that are not Markup."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"), undefined=StrictUndefined,
        autoescape=lambda name: name.endswith(".html.jinja"),
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters |= filters
    return made
