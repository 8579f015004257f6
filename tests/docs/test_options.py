"""Options: one default on the command line and in Python, a screen of help, and every name in `gridgrad help`."""

import inspect

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.experiments.common.command import topics
from gridgrad.experiments.common.options import parsers
from gridgrad.experiments.common.programs import FRONT, parser_of, studies
from gridgrad.nn import SGD, Sequential
from gridgrad.nn.zoo.network_names import ACTIVATIONS, ZOO
from gridgrad.parallel import PROTOCOLS, Trace, Watchdog, parallelize, resumable_steps, use_device
from gridgrad.parallel.grid.process_grid import AXES

SHARED = "grid", "plan", "memory", "reduction", "update", "reduce_dtype", "batch_size", "shares", "pipeline", "micro_batches"
SAME = {  # option of train: what has an argument of this name
    **dict.fromkeys((*SHARED, "cuts"), parallelize),
    **dict.fromkeys(("device", "tf32"), use_device),
    **dict.fromkeys(("checkpoint", "checkpoint_steps", "checkpoint_minutes", "keep"), resumable_steps),
    **dict.fromkeys(("nesterov", "l1", "l2"), SGD),
    **dict.fromkeys(("seed", "dtype"), Sequential),
    "trace_steps": Trace,
    "watchdog": Watchdog,
}
OPTIONS = {action.dest: action for action in parser_of("train")._actions}
NAMES = {"trace_steps": "steps", "watchdog": "seconds"}  # what a class that is all about the option calls it
SAID = {"keep": 3, "trace_steps": 20, "nesterov": False}  # defaults that --help says in words, since an option must be given
SCREEN = 45  # lines


@pytest.mark.parametrize("name", SAME)
def test_an_option_and_the_argument_of_that_name_have_one_default(name):
    parameter = inspect.signature(SAME[name]).parameters[NAMES.get(name, name)]
    if parameter.default is not parameter.empty:
        default = SAID.get(name, OPTIONS[name].default)
        assert default == parameter.default or name == "dtype" and np.dtype(default) == parameter.default
        assert name not in SAID or f"(default: {default})" in OPTIONS[name].help or not default


def test_every_option_is_described_help_fits_a_screen_and_its_topics_have_every_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    texts = {topic: text for topic, (_, text) in topics().items()}
    for program in (*FRONT, *studies()):
        for parser in parsers(parser_of(program)):
            for action in parser._actions:
                assert action.help or not action.option_strings, (program, action.option_strings)
                for words in (action.help or "").replace("`", "").split("gridgrad help ")[1:]:
                    assert words.split()[0].strip(".:;,)") in texts, (program, action.help)
            assert program not in FRONT or parser.format_help(whole=False).count("\n") <= SCREEN, parser.prog
    known = {"net": [*ZOO, *ACTIVATIONS], "dataset": datasets.DATASETS, "protocol": PROTOCOLS, "grid": AXES}
    for topic, names in known.items():
        assert [name for name in names if name.removesuffix(":") not in texts[topic]] == [], topic
