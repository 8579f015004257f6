"""Each option has one text and one default, on the command line and in Python; docs/options.md lists them all."""

import inspect

import numpy as np
import pytest

from docs.list_options import DESCRIBED, PAGE, SAME, page
from gridgrad.experiments.common.options import described
from gridgrad.experiments.common.programs import FRONT, parser_of, studies

PRESETS = "lr", "momentum"  # of the optimizers of train, which a script names
OPTIONS = {action.dest: action for action in parser_of("train")._actions}
NAMES = {"trace_steps": "steps", "watchdog": "seconds"}  # what a class that is all about the option calls it
SAID = {"keep": 3, "trace_steps": 20, "nesterov": False}  # defaults that --help says in words, since an option must be given


def test_the_page_lists_every_option_as_the_programs_have_them():
    assert PAGE.read_text() == page(), "run python -m docs.list_options"
    assert all(f"\n## {program}\n" in PAGE.read_text() for program in FRONT)


@pytest.mark.parametrize("name", SAME)
def test_an_option_and_the_argument_of_that_name_have_one_default(name):
    parameter = inspect.signature(SAME[name]).parameters[NAMES.get(name, name)]
    if name not in PRESETS and parameter.default is not parameter.empty:
        default = SAID.get(name, OPTIONS[name].default)
        assert default == parameter.default or name == "dtype" and np.dtype(default) == parameter.default
        assert name not in SAID or f"(default: {default})" in OPTIONS[name].help or not default


@pytest.mark.parametrize("name", DESCRIBED)
def test_an_option_and_the_argument_of_that_name_have_one_text(name):
    assert OPTIONS[name].help == described(DESCRIBED[name], name) and len(OPTIONS[name].help) > 20


def test_every_option_is_described():
    for program in (*FRONT, *studies()):
        for action in parser_of(program)._actions:
            assert action.help or not action.option_strings, (program, action.option_strings)
