"""The settings of a study: of a TOML file, of options of the command line, and of one run of `train`.

A setting is one of STUDY, which say what is to be measured and how often; one of JOB, which say how a run is started; or any
option of `train` that says how it trains, with _ in place of -. A list in place of one value of the last two kinds measures
all of them, as curves of their own.
"""

from pathlib import Path

from gridgrad.experiments.common.parallel_schemes import AUTO, SCHEMES
from gridgrad.experiments.common.programs import FOLDER, parser_of, suggestion
from gridgrad.nn.files import documents
from gridgrad.nn.files.documents import COUNT, PLAIN, TEXT, TRUTH, WHOLE, Kind, Optional, check, is_number

FILES = FOLDER / "settings"  # the settings that come with gridgrad
SCALINGS = ("strong", "weak")
MOST_REPEATS, MOST_MINUTES = 10_000, 1e6
STUDY = {
    "nets": ["mlp:512,512,512,relu"], "ranks": [1, 2], "schemes": ["batch", "model", "2d"], "grids": [], "network": [],
    "series": [], "scaling": ["strong"], "metric": "seconds", "baseline": None, "seeds": [], "turns": False, "about": None,
    "repeats": 6, "most_repeats": 12, "interval": 3.0, "minutes": None,
}  # fmt: skip
METRICS = {  # {what is looked at: (heading of its column, factor to the unit there)}
    "seconds": ("ms a step", 1e3), "accuracy": ("accuracy %", 1), "loss": ("loss", 1), "bytes": ("MB sent by a rank", 1e-6),
    "memory": ("MiB, most of a rank", 2**-20),
}  # fmt: skip
OF_TRAINING = "accuracy", "loss"  # metrics of a whole training, which is the same each time that it has the same seed
ONCE = {"accuracy": 1, "loss": 1, "bytes": 1, "memory": 3}  # repeats where nothing else is said
OF_TRAIN = {
    "dataset": "airfoil", "data_dir": None, "batch_size": 100, "steps": 60, "plan": "fewest-bytes", "dtype": "float32",
    "seed": 0, "profile": False, "reduction": "auto",
}  # fmt: skip # what `sweep` runs where nothing else is said
JOB = {"threads": int, "hosts": int, "rate": float, "delay": float}  # BLAS threads a rank; of emulated hosts, see `launch`
CORES = "cores"  # in place of numbers of ranks: 1, 2, 4 and so on, as far as each rank has a core, and as many ranks as cores
POSITIVE = Kind("a number above 0", lambda value: is_number(value) and value > 0)
RANKS = Kind(
    f"a list of whole numbers of at least 1, or {CORES}",
    lambda value: value == CORES or isinstance(value, list) and all(WHOLE.accepts(one) for one in value),
)
REPEATS = Kind(f"a whole number from 1 to {MOST_REPEATS}", lambda value: type(value) is int and 1 <= value <= MOST_REPEATS)
METRIC = Kind(f"one of {', '.join(METRICS)}", lambda value: isinstance(value, str) and value in METRICS)
TABLES = {"network": {"net": TEXT, "name": Optional(TEXT)}, "series": {"name": TEXT, "grid": TEXT, "why": Optional(TEXT)}}
FORMS = {
    "nets": [TEXT], "ranks": RANKS, "grids": [TEXT], "network": [TABLES["network"]], "series": [TABLES["series"]],
    "schemes": [Kind(f"one of {', '.join((*SCHEMES, AUTO))}", (*SCHEMES, AUTO).__contains__)],
    "scaling": [Kind("strong or weak", SCALINGS.__contains__)], "repeats": REPEATS, "most_repeats": REPEATS,
    "interval": POSITIVE, "minutes": Optional(POSITIVE), "baseline": Optional(TEXT), "seeds": [COUNT], "turns": TRUTH,
    "metric": METRIC, "about": Optional(TEXT),
}  # fmt: skip
NOT_SETTINGS = {  # options of train that a study gives itself, and those of which nothing is measured
    "help", "net", "grid", "report", "quiet", "predictions", "trace", "trace_steps", "core_speed",
    "checkpoint", "checkpoint_steps", "checkpoint_minutes", "keep", "resume",
}  # fmt: skip
ALONE = {  # what says how ranks work together: a run on one rank has none of it, and is the same for all series
    "plan", "reduction", "update", "reduce_dtype", "pipeline", "micro_batches", "cuts", "shares", "rebalance", "protocol",
    "handicap", "reader", "hosts", "rate", "delay", "memory",
}  # fmt: skip


def of_train():
    """{name: Action of argparse} of the options of train that can be settings."""
    actions = {action.dest: action for action in parser_of("train")._actions}
    return {name: action for name, action in actions.items() if name not in NOT_SETTINGS}


def read(path):
    """The settings of a TOML file, or of the one of this name that comes with gridgrad; ValueError if it is none."""
    if not Path(path).exists() and (FILES / Path(path).name).is_file():
        path = FILES / Path(path).name
    try:
        return documents.content_of_toml_file(path)
    except ValueError as error:
        raise ValueError(f"{error}; see {FILES}/speedup.toml") from None


def check_settings(settings):
    """Raise ValueError, which names the setting, for one that is unknown or has a wrong kind of value.

    Whether `train` takes the values of its own options only `Study.check` says, which asks it.
    """
    own = of_train()
    for name, value in settings.items():
        if name in STUDY:
            check(value, FORMS[name], f"setting {name}")
        else:
            _check_option(name, value, own, "")
    for table in ("network", "series"):
        for entry in settings.get(table, []):
            for name, value in entry.items():
                if name not in TABLES[table]:
                    _check_option(name, value, own, f" of a {table}")
    if settings.get("minutes") is not None and settings["minutes"] > MOST_MINUTES:
        raise ValueError(f"setting minutes = {settings['minutes']:g}: at most {MOST_MINUTES:g}")


def _check_option(name, value, own, where):
    if name not in own and name not in JOB:
        known = [*STUDY, *JOB, *own]
        raise ValueError(f"unknown setting {name}{where}{suggestion(name, known)}: there are {', '.join(STUDY)}, "
                         f"{', '.join(JOB)}, and options of train such as {', '.join(OF_TRAIN)}")  # fmt: skip
    for one in value if isinstance(value, list) else [value]:
        check(one, PLAIN, f"setting {name}")
        if name in JOB and not (is_number(one) and one > 0 and JOB[name](one) == one):
            kind = "whole number" if JOB[name] is int else "number"
            raise ValueError(f"setting {name}{where} = {one}: expected a {kind} above 0")
        if name in own and own[name].nargs == 0:
            check(one, TRUTH, f"setting {name}{where}")
    if value == []:
        raise ValueError(f"setting {name}{where} is an empty list: name at least one value, or leave it out")
