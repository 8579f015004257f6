"""Options: one text and one default on the command line and in Python, a screen of help, and every name in `gridgrad help`."""

import inspect

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.experiments.common.command import topics
from gridgrad.experiments.common.options import described, parsers
from gridgrad.experiments.common.programs import FRONT, parser_of, studies
from gridgrad.nn import SGD, Sequential
from gridgrad.nn.zoo.network_names import ACTIVATIONS, ZOO
from gridgrad.parallel import PROTOCOLS, Trace, Watchdog, parallelize, resumable_steps, use_device
from gridgrad.parallel.grid.process_grid import AXES

DESCRIBED = {  # option of train: the function whose argument of this name it is, and whose docstring has its text
    **dict.fromkeys(("grid", "plan", "memory", "reduction", "update", "reduce_dtype", "batch_size", "shares"), parallelize),
    **dict.fromkeys(("pipeline", "micro_batches", "cuts"), parallelize),
    **dict.fromkeys(("device", "tf32"), use_device),
}  # fmt: skip
SAME = DESCRIBED | {
    **dict.fromkeys(("checkpoint", "checkpoint_steps", "checkpoint_minutes", "keep"), resumable_steps),
    **dict.fromkeys(("lr", "momentum", "nesterov", "l1", "l2"), SGD),
    **dict.fromkeys(("seed", "dtype"), Sequential),
    "trace_steps": Trace,
    "watchdog": Watchdog,
}
PRESETS = "lr", "momentum"  # of the optimizers of train, which a script names
OPTIONS = {action.dest: action for action in parser_of("train")._actions}
NAMES = {"trace_steps": "steps", "watchdog": "seconds"}  # what a class that is all about the option calls it
SAID = {"keep": 3, "trace_steps": 20, "nesterov": False}  # defaults that --help says in words, since an option must be given
SCREEN = 45  # lines


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


def test_every_option_is_described_and_help_fits_a_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for program in (*FRONT, *studies()):
        for parser in parsers(parser_of(program)):
            for action in parser._actions:
                assert action.help or not action.option_strings, (program, action.option_strings)
            if program in FRONT:
                assert parser.format_help(whole=False).count("\n") <= SCREEN, parser.prog
    assert parser_of("train").format_help().count("\n") > SCREEN


def test_help_has_every_name():
    texts = {topic: text for topic, (_, text) in topics().items()}
    known = {"net": [*ZOO, *ACTIVATIONS], "dataset": datasets.DATASETS, "protocol": PROTOCOLS, "grid": AXES}
    for topic, names in known.items():
        assert [name for name in names if name.removesuffix(":") not in texts[topic]] == [], topic
    for program in (*FRONT, *studies()):
        for parser in parsers(parser_of(program)):
            for action in parser._actions:
                for words in (action.help or "").replace("`", "").split("gridgrad help ")[1:]:
                    assert words.split()[0].strip(".:;,)") in texts, (program, action.help)
