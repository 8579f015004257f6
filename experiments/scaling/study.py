"""What a study measures: every network in every series, on every number of ranks.

    nets = ["mlp:512,512,relu"]
    ranks = [1, 2, 4, 8]

    [[series]]
    name = "2-D"
    grid = "batch=*,model=2"

A *series* is one way to run a network on more and more ranks: a grid whose stars take the ranks that are left, and options of
`train`. A *curve* is a series of one network, for strong or weak scaling. A *point* is what one run of `train` is; the run on
one rank is shared by all curves. Settings are those of STUDY, of JOB, or any option of `train`, with _ in place of -. A list in
place of one value of the last two kinds measures all of them, as curves of their own.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from json import dumps
from math import prod
from pathlib import Path
from typing import NamedTuple

from gridgrad import datasets
from gridgrad.experiments.common.options import check_startable
from gridgrad.experiments.common.parallel_schemes import AUTO, SCHEMES, grid_at
from gridgrad.experiments.common.programs import FOLDER, check_job, parser_of, suggestion
from gridgrad.experiments.emulation import hosts
from gridgrad.experiments.launching.start_ranks import slots
from gridgrad.experiments.scaling.statistics import FEWEST, OF_TRAINING
from gridgrad.nn.files import documents
from gridgrad.nn.files.documents import COUNT, PLAIN, TEXT, TRUTH, WHOLE, Kind, Optional, check, is_number
from gridgrad.nn.zoo.network_names import identified
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.job.run import UserError

FILES = FOLDER / "settings"  # the settings that come with gridgrad
SCALINGS = ("strong", "weak")
MOST_POINTS, MOST_REPEATS, MOST_MINUTES = 10_000, 10_000, 1e6
METRICS = {  # {what is looked at: (heading of its column, factor to the unit there)}
    "seconds": ("ms a step", 1e3), "accuracy": ("accuracy %", 1), "loss": ("loss", 1), "bytes": ("MB sent by a rank", 1e-6),
    "memory": ("MiB, most of a rank", 2**-20),
}  # fmt: skip
ONCE = {"accuracy": 1, "loss": 1, "bytes": 1, "memory": 3}  # repeats where nothing else is said: most are the same each time
OF_TRAIN = {"dataset": "airfoil", "data_dir": None, "batch_size": 100, "steps": 60, "plan": "fewest-bytes", "dtype": "float32",
            "seed": 0, "profile": False, "reduction": "auto"}  # fmt: skip # what `sweep` runs where nothing else is said
# BLAS threads a rank; of emulated hosts, see `launch`; a script in place of `train`, see docs/scaling.md
JOB = {"threads": int, "hosts": int, "rate": float, "delay": float, "program": str}
CORES = "cores"  # in place of numbers of ranks: 1, 2, 4 and so on, as far as each rank has a core, and as many ranks as cores
# Options of train that a study gives itself, and what changes no measurement.
NOT_SETTINGS = {"help", "net", "grid", "report", "quiet", "predictions", "trace", "trace_steps", "core_speed", "checkpoint",
                "checkpoint_steps", "checkpoint_minutes", "keep", "resume"}  # fmt: skip
ALONE = {  # what says how ranks work together: a run on one rank has none of it, and is the same for all series
    "plan", "reduction", "update", "reduce_dtype", "pipeline", "micro_batches", "cuts", "shares", "rebalance", "protocol",
    "handicap", "reader", "hosts", "rate", "delay", "memory",
}  # fmt: skip

OWN_FILE = re.compile(r"(?P<kind>table:)?(?P<file>[^:]+\.\w+)(?P<function>:\w+)?")  # mine.py, mine.py:net, table:mine.csv

POSITIVE = Kind("a number above 0", lambda value: is_number(value) and value > 0)
MINUTES = Kind(f"a number above 0 and at most {MOST_MINUTES:g}", lambda value: is_number(value) and 0 < value <= MOST_MINUTES)
METRIC = Kind(f"one of {', '.join(METRICS)}", tuple(METRICS).__contains__)
RANKS = Kind(f"a list of whole numbers of at least 1, or {CORES}",
             lambda value: value == CORES or isinstance(value, list) and all(map(WHOLE.accepts, value)))  # fmt: skip
REPEATS = Kind(f"a whole number from 1 to {MOST_REPEATS}", lambda value: type(value) is int and 1 <= value <= MOST_REPEATS)
SCHEME = Kind(f"one of {', '.join((*SCHEMES, AUTO))}", (*SCHEMES, AUTO).__contains__)
TABLES = {"network": {"net": TEXT, "name": Optional(TEXT)},
          "series": {"name": TEXT, "grid": TEXT, "why": Optional(TEXT), "baseline": Optional(TEXT)}}  # fmt: skip
FORMS = {  # {setting of a study: (what it is where nothing is said, its form)}
    "nets": (["mlp:512,512,512,relu"], [TEXT]), "network": ([], [TABLES["network"]]), "ranks": ([1, 2], RANKS),
    "schemes": (["batch", "model", "2d"], [SCHEME]), "grids": ([], [TEXT]), "series": ([], [TABLES["series"]]),
    "scaling": (["strong"], [Kind("strong or weak", SCALINGS.__contains__)]), "metric": ("seconds", METRIC),
    "baseline": (None, Optional(TEXT)), "seeds": ([], [COUNT]), "turns": (False, TRUTH), "about": (None, Optional(TEXT)),
    "repeats": (6, REPEATS), "most_repeats": (12, REPEATS), "interval": (3.0, POSITIVE), "minutes": (None, Optional(MINUTES)),
}  # fmt: skip
STUDY = {name: default for name, (default, _) in FORMS.items()}


# ----- settings


@lru_cache
def of_train():
    """{name: Action of argparse} of the options of train that can be settings."""
    actions = {action.dest: action for action in parser_of("train")._actions}
    return {name: action for name, action in actions.items() if name not in NOT_SETTINGS}


def read(path):
    """The settings of a TOML file, or of the one of this name that comes with gridgrad; ValueError if it is none. Scripts,
    networks and tables of one's own that they name are sought beside it, and then in the working folder."""
    if not Path(path).exists() and (FILES / Path(path).name).is_file():
        path = FILES / Path(path).name
    try:
        found, folder = documents.content_of_toml_file(path), Path(path).parent
    except ValueError as error:
        raise ValueError(f"{error}; see {FILES}/speedup.toml") from None
    return found if folder.resolve() == FILES.resolve() else beside(found, folder)  # what ours name is the same in any folder


def beside(value, folder):
    """What a file of settings holds, with the files that its texts name where they are in its folder."""
    if isinstance(value, dict):
        return {name: beside(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [beside(one, folder) for one in value]
    if isinstance(value, str) and (named := OWN_FILE.fullmatch(value)) and (folder / named["file"]).is_file():
        return f"{named['kind'] or ''}{folder / named['file']}{named['function'] or ''}"
    return value


def check_settings(settings):
    """Raise ValueError, which names the setting, for one that is unknown or of a wrong kind."""
    for name in [name for name in settings if name in STUDY]:
        check(settings[name], FORMS[name][1], f"setting {name}")
    tables = [(f" of a {table}", form, entry) for table, form in TABLES.items() for entry in settings.get(table, [])]
    for where, known, entries in [("", STUDY, settings), *tables]:
        for name in [name for name in entries if name not in known]:
            _check_option(name, entries[name], where)


def identify(settings):
    """Put digests behind the networks of files of one's own, so that a changed file is another network."""
    for name in {"nets", "network"} & settings.keys():
        check(settings[name], FORMS[name][1], f"setting {name}")
    settings |= {"nets": [*map(identified, settings["nets"])]} if "nets" in settings else {}
    for entry in settings.get("network", []):
        entry["net"] = identified(entry["net"])


def _check_option(name, value, where):
    own = of_train()
    if name not in own and name not in JOB:
        meant = suggestion(name, [*STUDY, *JOB, *own])
        raise ValueError(f"unknown setting {name}{where}{meant}: there are {', '.join([*STUDY, *JOB])}, and options of train "
                         f"such as {', '.join(OF_TRAIN)}")  # fmt: skip
    for one in value if isinstance(value, list) else [value]:
        check(one, PLAIN, f"setting {name}")
        if name == "program":
            check(one, TEXT, f"setting {name}{where}")
        elif name in JOB and not (is_number(one) and one > 0 and JOB[name](one) == one):
            kind = "whole number" if JOB[name] is int else "number"
            raise ValueError(f"setting {name}{where} = {one}: expected a {kind} above 0")
        if name in own and own[name].nargs == 0:
            check(one, TRUTH, f"setting {name}{where}")
    if value == []:
        raise ValueError(f"setting {name}{where} is an empty list: name at least one value, or leave it out")


# ----- points


class Curve(NamedTuple):
    """A series of a network. scaling: strong or weak."""

    network: str
    series: str
    scaling: str


@dataclass(frozen=True)
class Point:
    """A run of `train`. settings: {option of `train`, or of JOB: value}. key: shared by equal runs, wherever their data are."""

    ranks: int
    settings: dict = field(compare=False)
    key: str = field(init=False)

    def __post_init__(self):
        known = {name: value for name, value in self.settings.items() if name != "data_dir" and value is not None}
        object.__setattr__(self, "key", dumps([self.ranks, known], sort_keys=True))

    def __str__(self):
        return f"{self.settings['net']} on {self.settings['grid']}"

    @property
    def words(self):
        """The options of `train`, as on its command line."""
        actions, words = of_train(), ["--net", self.settings["net"], "--grid", self.settings["grid"]]
        for name, value in self.settings.items():
            if name in actions and value is not None and value is not False:
                option = f"--{name.replace('_', '-')}"
                words += [option] if actions[name].nargs == 0 else [option, str(value)]
        return words

    @property
    def job(self):
        """{name: value} of the settings of JOB that it has."""
        return {name: self.settings[name] for name in JOB if name in self.settings}


class Study:
    """A study. settings: by name; those that are not given are as in STUDY and OF_TRAIN. ValueError if they are wrong. curves:
    {Curve: {ranks: Point}}. points: all of them, each once, in the order of the settings."""

    def __init__(self, settings):
        check_settings(settings)
        self.given = settings
        for name, value in STUDY.items():
            setattr(self, name, settings.get(name, value))
        if self.ranks == CORES:
            self.ranks = sorted({slots(), *(2**k for k in range(slots().bit_length()))})
            self.given = settings | {"ranks": self.ranks}
        if self.grids and not {"ranks", "schemes", "series"} & settings.keys():
            self.ranks, self.schemes = [1], ["batch"]  # beside grids that are named: the run on one rank
        if self.series and "schemes" not in settings:
            self.schemes = []
        self._set_repeats()
        self._set_curves()
        self.points = list(dict.fromkeys(point for points in self.curves.values() for point in points.values()))
        if not self.points:
            raise ValueError("there is nothing to run: name nets, and ranks or grids that the series have")
        names = dict.fromkeys(curve.series for curve in self.curves)
        for wrong in {self.baseline, *(one.get("baseline") for one in self.series)} - {None, *names}:
            raise ValueError(f"baseline {wrong}: there is no such series, but {'; '.join(names)}")

    def _set_repeats(self):
        """How often each point is measured, at least and at most."""
        if self.seeds:
            every = {name for one in (self.given, *self.network, *self.series) for name in one}
            if named := sorted(every & {"seed", "repeats", "most_repeats"}):
                raise ValueError(f"seeds are the repeats of each point: leave {' and '.join(named)} out")
            self.seeds = list(dict.fromkeys(self.seeds))
            self.repeats = len(self.seeds)
        elif "repeats" not in self.given:
            self.repeats = ONCE.get(self.metric, self.repeats)
        if self.repeats < FEWEST and "most_repeats" not in self.given:  # which more runs would not make sure
            self.most_repeats = self.repeats
        self.most_repeats = max(self.repeats, self.most_repeats)
        if self.turns and self.metric == "memory":
            raise ValueError("series that take turns share the memory of a rank: leave turns out where metric is memory")

    def _set_curves(self):
        """Each network in each series, with each choice of one value of every option that is a list."""
        options = OF_TRAIN | {name: value for name, value in self.given.items() if name not in STUDY}
        if self.seeds:
            del options["seed"]
        every = [(network, series, self._without_steps(options | own | more, own | more))
                 for (network, own), (series, more) in product(*self._networks_and_series())]  # fmt: skip
        lists = [{name: value for name, value in of.items() if isinstance(value, list)} for *_, of in every]
        count = len(self.ranks) * len(self.scaling) * sum(prod(map(len, of.values())) for of in lists)
        if count > MOST_POINTS:
            raise ValueError(f"the settings have up to {count:.3g} points, more than {MOST_POINTS}: shorten their lists")
        self.curves = {}
        for ((network, series, of), varied), scaling in product(zip(every, lists), dict.fromkeys(self.scaling)):
            for values in product(*varied.values()):
                chosen = of | dict(zip(varied, values))
                words = [series, *(f"{name.replace('_', ' ')} {value}" for name, value in zip(varied, values))]
                grid = chosen["grid"]  # without stars it has a number of ranks of its own
                every_ranks = self.ranks if grid == AUTO or "*" in grid else [prod(parse_grid(grid).values())]
                if points := {ranks: point for ranks in every_ranks if (point := point_at(chosen, scaling, ranks))}:
                    self.curves.setdefault(Curve(network, ", ".join(words), scaling), {}).update(points)

    def _without_steps(self, options, near):
        """Options of a series without the default of steps where it has epochs. near: its own ones."""
        if options.get("epochs") is None:
            return options
        if self.metric not in OF_TRAINING:
            raise ValueError(f"epochs are for metric = accuracy or loss: give steps for {self.metric}")
        if "steps" in self.given or "steps" in near:
            raise ValueError("steps and epochs say the same: leave one of them out")
        return {name: value for name, value in options.items() if name != "steps"}

    def _networks_and_series(self):
        """((name, options) of each network, (name, options with the template `grid`) of each series)."""
        nets = self.nets if "nets" in self.given or not self.network else []
        tables = [*({"net": net} for net in nets), *self.network]
        own_file = re.compile(r"(\.py:\w+)@\w+$")  # whose digest is no part of the name
        networks = [(table.get("name") or own_file.sub(r"\1", table["net"]), table) for table in tables]
        series = [(name, {"grid": AUTO if name == AUTO else SCHEMES[name]}) for name in dict.fromkeys(self.schemes)]
        series += [(grid, {"grid": grid}) for grid in dict.fromkeys(self.grids)]
        series += [(one["name"], one) for one in self.series]
        for what, named in (("networks", networks), ("series", series)):
            names = [name for name, _ in named]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ValueError(f"two {what} are called {twice}: give each a name of its own")
        options = lambda table: {k: v for k, v in table.items() if k not in ("name", "why", "baseline")}  # noqa: E731
        return tuple([(name, options(table)) for name, table in named] for named in (networks, series))

    @property
    def groups(self):
        """The points of each job: one, or with `turns` all of a network on as many ranks."""
        if not self.turns:
            return [(point,) for point in self.points]
        found = {}
        for point in self.points:
            alone = point.key if "program" in point.job else ""  # which does not know of turns
            key = self.curves_of(point)[0].network, point.ranks, dumps(point.job), point.settings.get("device"), alone
            found.setdefault(key, []).append(point)
        return [tuple(group) for group in found.values()]

    @property
    def story(self):
        """What its settings say of it and of its series, a sentence a line."""
        return [*([self.about] if self.about else []), *(f"{one['name']}: {one['why']}" for one in self.series if "why" in one)]

    def seed(self, repeat):
        """The seed of a repeat; None where all have that of their point."""
        return self.seeds[repeat] if repeat < len(self.seeds) else None

    def is_of(self, record):
        """Whether a run of one of its points was done as it does them."""
        return bool(record.get("turns")) == self.turns and record.get("seed") == self.seed(record["repeat"])

    def curves_of(self, point):
        """The Curves that a point belongs to."""
        return [curve for curve, points in self.curves.items() if points.get(point.ranks) == point]

    def check_options(self):
        """Raise ValueError unless `train` takes all options. Data are not looked for."""
        self._check_each(lambda point: parser_of("train").parse_args(point.words))

    def check(self):
        """Raise ValueError or OSError unless each point could be run: networks, data, grids and options. Nothing is run."""
        for name, data_dir in {(p.settings["dataset"], p.settings.get("data_dir")) for p in self.points}:
            datasets.prepare(name, data_dir)
        check_startable(max(point.ranks for point in self.points))
        if any("hosts" in point.settings for point in self.points):
            hosts.check()
        self._check_each(lambda point: script_of(point) if "program" in point.job else check_job(
            ["train", *point.words, "--report", "report.json"], point.ranks))  # fmt: skip # which a profile needs

    def _check_each(self, check):
        for point in self.points:
            try:
                check(point)
            except (ValueError, UserError) as error:
                raise ValueError(f"{point}: {str(error).removeprefix('train: ')}") from None


def script_of(point):
    """The script that a Point runs in place of `train`, of the user or of gridgrad; ValueError if there is none."""
    name = point.job["program"]
    found = next((path for path in (Path(name), FILES / name) if path.suffix == ".py" and path.is_file()), None)
    if found is None:
        raise ValueError(f"there is no script {name}: name a file such as mine.py")
    return found


def point_at(options, scaling, ranks):
    """The Point of a series; None where its grid does not divide the ranks. For weak scaling batch_size is that of a rank."""
    grid = grid_at(options["grid"], ranks)
    if grid is None:
        return None
    slow_alone = {"handicap"} if "*" not in options["grid"] else set()  # of a series that is one rank, on purpose
    own = {name: value for name, value in options.items() if ranks > 1 or name not in ALONE - slow_alone}
    return Point(ranks, own | {"grid": grid, "batch_size": options["batch_size"] * (ranks if scaling == "weak" else 1)})
