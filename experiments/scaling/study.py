"""The points of a scaling study: every network in every series, on every number of ranks.

    nets = ["mlp:512,512,relu"]
    ranks = [1, 2, 4, 8]
    scaling = ["strong", "weak"]

    [[series]]
    name = "2-D"
    grid = "batch=*,model=2"

A *series* is one way to run a network on more and more ranks: a grid with stars, which take the ranks that are left, and any
options of `train`. A *curve* is a series of one network, for strong or for weak scaling. A *point* is what one run of `train`
is; several curves may share it, such as that on one rank, which is the serial run in all of them.
"""

from dataclasses import dataclass, field
from itertools import product
from json import dumps
from math import prod

from gridgrad import datasets
from gridgrad.experiments.common.options import check_startable
from gridgrad.experiments.common.parallel_schemes import AUTO, SCHEMES, grid_at
from gridgrad.experiments.common.programs import check_job, parser_of
from gridgrad.experiments.emulation import hosts
from gridgrad.experiments.launching.start_ranks import slots
from gridgrad.experiments.scaling import settings as of
from gridgrad.experiments.scaling.busy import is_busy
from gridgrad.experiments.scaling.median import FEWEST
from gridgrad.experiments.scaling.settings import ALONE, JOB, OF_TRAIN, STUDY, check_settings, of_train
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.job.run import UserError

MOST_POINTS = 10_000


@dataclass(frozen=True, order=True)
class Curve:
    """network: what it is called. series: what its way to run is called. scaling: "strong" or "weak"."""

    network: str
    series: str
    scaling: str

    def __str__(self):
        return f"{self.network}, {self.series}, {self.scaling} scaling"


@dataclass(frozen=True)
class Point:
    """ranks: how many. settings: {name: value} of options of `train` and of JOB.

    key: a text that two points share if the same was run, wherever its data were.
    """

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
    """A study. settings: those that are given, by name; the others are as in STUDY and OF_TRAIN.

    curves: {Curve: {ranks: Point}}. points: all of them, each once, in the order of the settings. ValueError for settings that
    are wrong, and for a study without points.
    """

    def __init__(self, settings):
        check_settings(settings)
        self.given = settings
        for name, value in STUDY.items():
            setattr(self, name, settings.get(name, value))
        if self.ranks == of.CORES:
            self.ranks = sorted({slots(), *(2**k for k in range(slots().bit_length()))})
            self.given = settings | {"ranks": self.ranks}
        if self.grids and not {"ranks", "schemes", "series"} & settings.keys():
            self.ranks, self.schemes = [1], ["batch"]  # beside grids that are named: the run on one rank
        if self.series and "schemes" not in settings:
            self.schemes = []
        if self.seeds:
            if named := {"seed", "repeats", "most_repeats"} & {
                name for one in (settings, *self.network, *self.series) for name in one
            }:
                raise ValueError(f"seeds are the repeats of each point: leave {' and '.join(sorted(named))} out")
            self.seeds = list(dict.fromkeys(self.seeds))
            self.repeats = len(self.seeds)
        elif "repeats" not in settings:
            self.repeats = of.ONCE.get(self.metric, self.repeats)
        if self.turns and self.metric == "memory":
            raise ValueError("series that take turns share the memory of a rank: leave turns out where metric is memory")
        if self.repeats < FEWEST and "most_repeats" not in settings:  # which more runs would not make sure
            self.most_repeats = self.repeats
        self.most_repeats = max(self.repeats, self.most_repeats)
        options = OF_TRAIN | {name: value for name, value in settings.items() if name not in STUDY}
        if self.seeds:
            del options["seed"]
        self.curves = {}
        every = [options | network | series for (_, network), (_, series) in product(self._networks(), self._series())]
        count = (
            len(self.ranks)
            * len(self.scaling)
            * sum(prod(len(one) for one in of.values() if isinstance(one, list)) for of in every)
        )
        if count > MOST_POINTS:
            raise ValueError(f"the settings have up to {count:.3g} points, more than {MOST_POINTS}: shorten their lists")
        for network, series, scaling in product(self._networks(), self._series(), dict.fromkeys(self.scaling)):
            for words, chosen in variations(self._of_training(options | network[1] | series[1], network[1] | series[1])):
                curve = Curve(network[0], ", ".join([series[0], *words]), scaling)
                points = {ranks: point for ranks in self._ranks(chosen) if (point := point_at(chosen, scaling, ranks))}
                self.curves.setdefault(curve, {}).update(points)
        self.curves = {curve: points for curve, points in self.curves.items() if points}
        self.points = list(dict.fromkeys(point for points in self.curves.values() for point in points.values()))
        if not self.points:
            raise ValueError("there is nothing to run: name nets, and ranks or grids that the series have")
        names = dict.fromkeys(curve.series for curve in self.curves)
        if self.baseline is not None and self.baseline not in names:
            raise ValueError(f"baseline {self.baseline}: there is no such series, but {'; '.join(names)}")

    def _of_training(self, options, near):
        """The options of a series of a network, without the default of steps where they have epochs. near: its own ones."""
        if options.get("epochs") is None:
            return options
        if self.metric not in of.OF_TRAINING:
            raise ValueError(f"epochs are for metric = accuracy or loss: give steps for {self.metric}")
        if "steps" in self.given or "steps" in near:
            raise ValueError("steps and epochs say the same: leave one of them out")
        return {name: value for name, value in options.items() if name != "steps"}

    @property
    def groups(self):
        """The points that one job runs, a list of tuples: each alone, or with `turns` all of a network on so many ranks."""
        if not self.turns:
            return [(point,) for point in self.points]
        found = {}
        for point in self.points:
            key = self.curves_of(point)[0].network, point.ranks, dumps(point.job), point.settings.get("device")
            found.setdefault(key, []).append(point)
        return [tuple(group) for group in found.values()]

    def seed(self, repeat):
        """The seed of a repeat; None where all have that of their point."""
        return self.seeds[repeat] if repeat < len(self.seeds) else None

    def counts(self, record):
        """Whether a run counts: where times are compared one beside other programs does not, and is repeated."""
        return self.metric != "seconds" or bool(self.seeds) or not is_busy(record)

    def is_of(self, record):
        """Whether a run of one of its points was done as it does them."""
        return bool(record.get("turns")) == self.turns and record.get("seed") == self.seed(record["repeat"])

    def _networks(self):
        """(name, options) of each network."""
        tables = [{"net": net} for net in self.nets] if "nets" in self.given or not self.network else []
        named = [(table.get("name") or table["net"], table) for table in [*tables, *self.network]]
        return each_once("networks", [(name, {k: v for k, v in table.items() if k != "name"}) for name, table in named])

    def _series(self):
        """(name, options with the template "grid") of each series."""
        found = [(name, {"grid": AUTO if name == AUTO else SCHEMES[name]}) for name in dict.fromkeys(self.schemes)]
        found += [(grid, {"grid": grid}) for grid in dict.fromkeys(self.grids)]
        found += [(one["name"], {k: v for k, v in one.items() if k not in ("name", "why")}) for one in self.series]
        return each_once("series", found)

    def _ranks(self, options):
        """The numbers of ranks of a series; of a grid without stars, its own."""
        grid = options["grid"]
        return dict.fromkeys(self.ranks) if grid == AUTO or "*" in grid else [ranks_of(grid)]

    def curves_of(self, point):
        """The Curves that a point belongs to."""
        return [curve for curve, points in self.curves.items() if points.get(point.ranks) == point]

    def names(self, option):
        """Whether the settings name an option of `train`, at the top or in a network or series."""
        return any(option in table for table in (self.given, *self.network, *self.series))

    def check_options(self):
        """Raise ValueError for options that `train` does not take, whatever its data are."""
        parser = parser_of("train")
        for point in self.points:
            try:
                parser.parse_args(point.words)
            except UserError as error:
                raise ValueError(f"{point}: {error}") from None

    def check(self):
        """Raise ValueError or OSError unless each point could be run: networks, data, grids and options. Nothing is run."""
        for name, data_dir in {(p.settings["dataset"], p.settings.get("data_dir")) for p in self.points}:
            datasets.prepare(name, data_dir)
        check_startable(max(point.ranks for point in self.points))
        if any("hosts" in point.settings for point in self.points):
            hosts.check()
        for point in self.points:
            try:
                check_job(["train", *point.words, "--report", "report.json"], point.ranks)  # which a profile needs
            except ValueError as error:
                message = str(error).removeprefix("train: ")
                raise ValueError(f"{point}: {message}") from None


def each_once(what, named):
    """`named`, a list of (name, options). ValueError if two have the same name. what: they are, for the message."""
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two {what} are called {twice}: give each a name of its own")
    return named


def ranks_of(grid):
    """The number of ranks of a grid without stars."""
    return prod(parse_grid(grid).values())


def variations(options):
    """(words, options) for each choice of one value of every option that is a list. words: of what was chosen."""
    lists = {name: value for name, value in options.items() if isinstance(value, list)}
    for values in product(*lists.values()):
        chosen = dict(zip(lists, values))
        yield [f"{name.replace('_', ' ')} {value}" for name, value in chosen.items()], options | chosen


def point_at(options, scaling, ranks):
    """The Point of a series on so many ranks; None where its grid does not divide them.

    For weak scaling `batch_size` is that of one rank.
    """
    grid = grid_at(options["grid"], ranks)
    if grid is None:
        return None
    own = {name: value for name, value in options.items() if ranks > 1 or name not in ALONE}
    return Point(ranks, own | {"grid": grid, "batch_size": options["batch_size"] * (ranks if scaling == "weak" else 1)})
