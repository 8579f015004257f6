"""Command lines: an error is one clear line, printed once however many ranks there are."""

import argparse
import contextlib
import inspect
import os
import re
import tempfile
from functools import partial
from math import inf, isfinite, nan
from pathlib import Path

from gridgrad.experiments.common.parallel_schemes import MOST_RANKS
from gridgrad.experiments.launching.start_ranks import slots
from gridgrad.nn.arguments import did_you_mean
from gridgrad.nn.files.whole_files import resolved
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, parse_grid, use_device
from gridgrad.parallel.job.run import UserError, launched_rank, one_line
from gridgrad.parallel.sync.reduction import REDUCE_DTYPES, UPDATES

ROOM = 1 << 16  # bytes that a disk must have room for, before a program begins whose results go there
MOST_STARTED, MOST_PER_SLOT = 1024, 64  # ranks of a job that is started: at most so many, or so many for each slot
MOST = dict.fromkeys(("ranks", "predict", "nodes", "ranks_per_node", "cores", "workers", "parts"), MOST_RANKS) | {
    "batch_size": 2**31 - 1, "micro_batches": 2**31 - 1, "outputs": network_names.MOST_WIDTH,
}  # fmt: skip # {option of any program that says how large a problem is: its greatest value}
GONE = {  # {(program, option or choice that it had): what to use instead}
    ("explain", "--json"): "--out FILE.json writes the numbers",
    ("explain", "--flops"): "--machine flops=60,latency=1.5,bandwidth=100 describes a cluster; see gridgrad help machine",
    ("partition", "--parts"): "--method FILE reads it",
    ("plot", "--layers"): "gridgrad plot lines REPORT.json --x layer --y forward,gradients,input_gradient, of train "
    "--profile --report, draws them",
    ("plot", "memory"): "gridgrad plot lines FILE.jsonl --x ranks --y peak_memory_bytes --series series draws it",
    ("plot", "convergence"): "gridgrad plot lines FILE.json --x epoch --y test_accuracy --series way draws it",
    ("study protocols", "--measure"): 'gridgrad sweep --vary "protocol=sync;server:asp" times jobs',
    ("study autoencoder", "--largest-width"): "gridgrad explain --net mlp:WIDTH,.. says the memory of a rank",
    ("study usability", "--json"): "--out FILE.json writes the numbers, and the table beside it",
    ("train", "--simulate"): "gridgrad explain --machine NAME predicts a step, and --export writes it for a simulator",
    ("train", "--slow"): "--handicap slows down real ranks, and gridgrad explain --speeds predicts those of unequal speed",
}


class _Formatter(argparse.HelpFormatter):
    """Shows the defaults of options that have one and do not say it themselves, as they are typed on a command line."""

    def _format_action_invocation(self, action):
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, self._get_default_metavar_for_optional(action))}"

    def _get_help_string(self, action):
        value = action.default
        hidden = value is None or value is False or value in ([], argparse.SUPPRESS) or not action.option_strings
        if hidden or "(default" in action.help:
            return action.help
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        elif isinstance(value, float):
            value = f"{value:g}"
        return f"{action.help} (default: {str(value).replace('%', '%%')})"


class _HelpAction(argparse.Action):
    """--help prints the options that most people need, and --help all all of them, in groups."""

    def __init__(self, option_strings, dest, help=None):
        super().__init__(option_strings, argparse.SUPPRESS, nargs="?", const="", metavar="all", help=help)

    def __call__(self, parser, namespace, which, option_string=None):
        if which not in ("", "all"):
            parser.error(f"{option_string} {which}: there are {option_string} and {option_string} all")
        parser.print_help(whole=which == "all")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are UserErrors with what may have been meant, and whose help is printed by rank 0 alone.
    prog: the words behind `gridgrad`. short: the destinations of the options that --help shows; by default all."""

    def __init__(self, prog, short=(), add_help=True, **keywords):
        super().__init__(prog=f"gridgrad {prog}", formatter_class=_Formatter, allow_abbrev=False, add_help=False, **keywords)
        self.short = short
        if add_help:
            words = "the options that most people need; all: all options" if short else "this text"
            self.add_argument("-h", "--help", action=_HelpAction, help=words)

    def parse_args(self, args=None, namespace=None):
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            option = rest[0].split("=")[0]
            self._check_gone(option)
            options = [text for parser in parsers(self) for text in parser._option_string_actions]
            self.error(f"unrecognized arguments: {' '.join(rest)}{did_you_mean(option, options)}")
        return found

    def parse_known_args(self, args=None, namespace=None):
        found, rest = super().parse_known_args(args, namespace)
        for name, most in MOST.items():
            given = getattr(found, name, None)
            for value in given if isinstance(given, list) else [given]:
                if isinstance(value, int) and value > most:
                    self.error(f"argument --{name.replace('_', '-')}: {value} is too large: at most {most}")
        return found, rest

    def _check_gone(self, word):
        if instead := GONE.get((self.prog.removeprefix("gridgrad "), word)):
            self.error(f"{word} is gone: {instead}")

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            self._check_gone(value)
            names = [str(choice) for choice in action.choices]
            meant = did_you_mean(str(value), names) or f" (choose from {', '.join(names)})"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{meant}")

    def error(self, message):
        raise UserError(f"{message} (see --help)")

    def format_usage(self):
        places = [action.metavar or action.dest for action in self._get_positional_actions()]
        usage = self.usage or " ".join(["%(prog)s", "[OPTIONS]", *places])
        return f"usage: {usage % {'prog': self.prog}}\n"

    def format_help(self, whole=True):
        """The text of --help all, or of --help."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        options = [action for action in self._actions if action.option_strings]
        if whole or not self.short:
            sections = [(group.title, group.description, group._group_actions) for group in self._action_groups]
        else:
            sections = [("options", None, [one for one in options if one.dest in (*self.short, argparse.SUPPRESS)])]
        for title, text, actions in sections:
            formatter.start_section("arguments" if title == "positional arguments" else title)
            formatter.add_text(text)
            formatter.add_arguments(actions)
            formatter.end_section()
        if not whole and self.short:
            formatter.add_text(f"{self.prog} --help all has all {len(options)} options, in groups.")
        return f"{self.format_usage()}\n{formatter.format_help()}"

    def print_help(self, file=None, whole=True):
        if launched_rank() == 0:
            print(self.format_help(whole), end="", file=file, flush=True)


def parsers(parser):
    """The parser itself, and those of its commands."""
    commands = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(inner for action in commands for inner in action.choices.values())]


def among(arguments, *names):
    """(a Namespace of these options of a program, None where they are not given; its other arguments)."""
    parser = Parser(prog="", add_help=False)
    for name in names:
        parser.add_argument(f"--{name}")
    return parser.parse_known_args(arguments)


def whole(least, most=2**63 - 1):
    """An option type: a whole number of at least `least` and at most `most`."""

    def parse(text):
        value = int(text) if re.fullmatch("[+-]?[0-9]{1,30}", text.strip()) else None  # int would read 1_0 and other scripts
        if value is None or not least <= value <= most:
            upper = "" if value is None or value < least else f" and at most {most}"
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}{upper}, not '{text}'")
        return value

    return parse


def check_startable(ranks):
    """Raise ValueError for a job of more ranks than can be started from here."""
    if ranks > (most := max(MOST_STARTED, MOST_PER_SLOT * slots())):
        raise ValueError(
            f"{ranks} ranks are too many to start from here: at most {most}; explain and sweep --predict start none"
        )


def number(least=-inf, above=-inf, below=inf):
    """An option type: a finite number with `least` <= it, `above` < it and it < `below`."""
    limits = {"at least": least, "above": above, "below": below}
    bounds = " and ".join(f"{word} {bound}" for word, bound in limits.items() if isfinite(bound))

    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = nan
        if not (least <= value and above < value < below and isfinite(value)):
            raise argparse.ArgumentTypeError(f"must be a number {bounds}, not '{text}'")
        return value

    return parse


def separated(kind, collect=list):
    """An option type: values of another option type, separated by commas."""
    return lambda text: collect(map(kind, text.split(",")))


whole_list = separated(whole(1))
position_list = separated(whole(0), tuple)
number_list = separated(number(above=0))


def network(text):
    """An option type: a network's name; one of a user's file gets its digest, so that a report says which file it was."""
    try:
        return network_names.identified(text)
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(one_line(error)) from None


def add_data(parser, dataset, net, batch_size):
    """Add --dataset, --data-dir, --net unless it is None, --batch-size and --seed, with these defaults."""
    add = parser.add_argument
    add("--dataset", default=dataset, metavar="NAME", help="data set, such as mnist or table:FILE; see gridgrad help dataset")
    add("--data-dir", metavar="DIR", help="folder of the data sets (default: $GRIDGRAD_DATA, else the user's cache)")
    if net:
        add("--net", type=network, default=net, help=network_names.HELP)
    add("--batch-size", type=whole(1), default=batch_size, metavar="B", help=of_parallelize("batch_size"))
    add("--seed", type=whole(0), default=0, help="seed of everything random: weights, order of the data, dropout, augmentation")


def shares_of(text, sizes):
    """{axis: weights} behind the text of --shares on a grid of these sizes, None where not known yet; or ValueError."""
    if sizes is None:
        raise ValueError("--shares is for the axes of a grid: name it with --grid, such as batch=2,model=2")
    if "=" in text:
        words = [word.partition("=") for word in text.split(",")]
        named = {axis.strip(): numbers.split(":") for axis, _, numbers in words}
        if len(named) < len(words):
            raise ValueError(f"--shares {text} names an axis twice")
    else:
        several = [axis for axis, ranks in sizes.items() if ranks > 1]
        if len(several) != 1:
            count = text.count(",") + 1
            advice = "name them, as in model=3:2,batch=2:1" if several else f"take {count} ranks, such as --grid model={count}"
            raise ValueError(f"--shares {text} is for one axis, but {len(several)} have several ranks: {advice}")
        named = {several[0]: text.split(",")}
    found = {}
    for axis, words in named.items():
        if sizes.get(axis, 1) != len(words):
            raise ValueError(f"--shares {text}: {len(words)} for the axis {axis}, whose size is {sizes.get(axis, 1)}: "
                             "give one for each of its ranks")  # fmt: skip
        try:
            found[axis] = tuple(number(least=0)(word) for word in words)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"--shares {text}: a share {error}") from None
        if not any(found[axis]):
            raise ValueError(f"--shares {text}: some rank of the axis {axis} must have a share above 0")
    return found


def add_grid(parser):
    """Add the option that says how the ranks are arranged."""
    parser.add_argument("--grid", help="sizes of the axes (default: batch=RANKS)")


def process_grid_of(args, comm):
    """The ProcessGrid of this option. Collective."""
    return ProcessGrid(comm, **(parse_grid(args.grid) if args.grid else {"batch": comm.size}))


def described(function, name):
    """The description of a parameter in the docstring of a function, as the text of the option of that name."""
    parameters = inspect.getdoc(function).split("\nParameters\n")[1].split("\n\n")[0]
    text = re.split(r"^(?=\S)", parameters, flags=re.MULTILINE)
    [found] = [block for block in text if re.match(rf"{name}\b.* : ", block)]
    words = " ".join(found.split("\n", 1)[1].split()).removesuffix(".")
    return (words[0].lower() + words[1:]).replace("%", "%%")


of_parallelize = partial(described, parallelize)  # the text of the option that is an argument of `parallelize`


def add_reduction(parser):
    """Add the options that say how gradients are summed: see `reduction_of`."""
    parser.add_argument("--reduction", default="auto", help=of_parallelize("reduction"))
    parser.add_argument("--update", choices=UPDATES, help=of_parallelize("update"))
    parser.add_argument("--reduce-dtype", choices=REDUCE_DTYPES, default="same", help=of_parallelize("reduce_dtype"))


def reduction_of(args):
    """The arguments of `parallelize` that these options are."""
    return {"reduction": args.reduction, "update": args.update, "reduce_dtype": args.reduce_dtype}


def add_device(parser):
    """Add the options that `gridgrad.parallel.use_device` takes: --device and --tf32."""
    parser.add_argument("--device", default="cpu", help=described(use_device, "device"))
    parser.add_argument("--tf32", action="store_true", help=described(use_device, "tf32"))


@contextlib.contextmanager
def user_input():
    """Wrap code that fails only because of the user's input: a ValueError or OSError in it becomes a UserError."""
    try:
        yield
    except (ValueError, OSError) as error:
        failure = UserError(one_line(error))
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        raise failure from None


def check_writable(path):
    """Raise OSError unless a file with as much in it as most results have can be written at `path`; makes its folder."""
    path = resolved(path)
    if path.exists() and not path.is_file():
        raise OSError(f"can not write to {path}: it is no ordinary file; give another name")
    check_room(path.parent)


def check_room(folder):
    """Raise OSError unless a file with as much in it as most results have can be written in a folder, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
            file.flush()
            os.fsync(file.fileno())  # some file systems say only now that they are full
    except OSError as error:
        raise OSError(f"can not write to {folder}: {error.strerror}; choose another folder") from None


def writable_beside(path, suffix, words):
    """The path beside that of --out with another suffix, both of which can be written. words: what goes into the two files."""
    beside = Path(path).with_suffix(suffix)
    if beside == Path(path):
        raise ValueError(f"--out {path}: name the file of the {words[0]}; the {words[1]} goes beside it, as {suffix}")
    check_writable(path)
    check_writable(beside)
    return beside
