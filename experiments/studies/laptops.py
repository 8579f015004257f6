"""Measure the master/slave algorithm of Marques 2016 on two ranks as unequal as its laptops, and on a network as slow as its.

    sudo gridgrad study laptops --out results/marques2016/unequal.json

The thesis ran on laptops, each faster than the one before. The first and slowest is the master, and the one that speedups are
over. Here the first of two ranks is slowed down by a handicap, by the factor that the speedups of the thesis imply; the kernels
are shared in proportion to measured speeds, as in section 4.1.2. In every round these runs of each network take turns:

- `alone`: the first rank alone;
- `memory`: both ranks, whose messages go through memory;
- `slow`: both on emulated hosts that send 5 MB/s, as in section 5.4 of the thesis;
- `samples`: the same, but the ranks share the samples of a minibatch by speed, each with the whole network;
- `proportion`: a core of today computes much faster than those laptops, while 5 MB/s are still 5 MB/s. So here both ranks are
  slowed down further, and the hosts send 112 MiB/s: so much more that one rank alone takes as long, by the time of its network
  for some bytes, as the first laptop did by that of its own. That follows from the text, of two of the networks. `alone,
  slower` is the first rank in this setting.

Two hosts have a core each; more of them would share the cores. Each run is noted when it ends, and not done again when the
study is started anew. Emulated hosts need Linux and root.
"""

import sys
from pathlib import Path

from gridgrad.experiments.common.options import Parser, check_writable, number, user_input, whole
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.report import write_json
from gridgrad.experiments.common.tables import table
from gridgrad.experiments.emulation import hosts
from gridgrad.experiments.papers.marques2016 import scaling
from gridgrad.experiments.papers.marques2016.runs import NETWORKS, MarquesRun, parts
from gridgrad.experiments.papers.marques2016.unequal import (
    ALONE,
    BATCH,
    FILE,
    PAYLOAD,
    SETTINGS,
    SLOWER,
    has_proportion,
    machine_of,
    read,
    rows,
)
from gridgrad.nn.kernels.processor import processor
from gridgrad.parallel.job.run import run_launcher

DELAY = 100  # microseconds between hosts
SECONDS = 1.0  # for about so long a run times steps, where it times more than one
CHOICES = "memory,slow,samples,proportion"


def options():
    parser = Parser(prog="study laptops", description="How fast are unequal ranks on a slow network, as Marques 2016 had them?")
    add = parser.add_argument
    add("--networks", default=",".join(NETWORKS), metavar="A:B,..", help="kernels of the convolutions of each network")
    add("--batch-size", type=whole(1), default=BATCH, metavar="B", help="samples in a minibatch")
    add("--settings", default=CHOICES, metavar="WORD,..", help=f"what is measured beside one rank (default: {CHOICES})")
    words = "how many times as slowly the first rank computes; default: as the speedups of the thesis imply"
    add("--factor", type=number(least=1), default=scaling.second_speed().value, metavar="F", help=words)
    add("--rounds", type=whole(1), default=3, help="rounds, in each of which every run is done once")
    add("--out", default=str(FILE), metavar="FILE.json", help="the report; runs that it has are not done again")
    return parser


def main(words=None):
    """words: those of the command line, if not this program's own."""
    args = options().parse_args(words)
    names = args.settings.split(",")
    with user_input():
        if not set(names) <= SETTINGS.keys():
            raise ValueError(f"--settings {args.settings}: name some of {CHOICES}")
        if "proportion" in names and args.batch_size != BATCH:
            raise ValueError(f"--settings proportion: of the thesis that is known at batch {BATCH} alone")
        check_writable(args.out)
        if any(SETTINGS[name].rate for name in names):
            hosts.check()
        found = report_of(args)
    todo = [(one, network) for one in range(args.rounds) for network in args.networks.split(",")]
    for one, network in progress(todo, "rounds of a network"):
        for name, setting in ((name, SETTINGS[name]) for name in SETTINGS if name in names):
            if setting.alone == SLOWER and not has_proportion(network):
                continue
            for run in dict.fromkeys((ALONE, setting.alone, name)):
                measure(args, found, one, network, run)
    print(table(rows(found)))
    print(f"{machine_of(found)}; report written to {args.out}")


def report_of(args):
    """What --out has already, or a new report. ValueError if that is of other settings, or of another machine."""
    found = read(Path(args.out))
    if found is None:
        return {"program": "laptops", "factor": args.factor, "batch_size": args.batch_size, "runs": []}
    if (found["factor"], found["batch_size"]) != (args.factor, args.batch_size):
        raise ValueError(f"{args.out} is of another --factor or --batch-size: remove it, or give another name")
    if any(run["versions"]["processor"] != processor().title for run in found["runs"]):
        raise ValueError(f"{args.out} was measured on another processor: remove it, or give another name")
    return found


def measure(args, found, one, network, name):
    """Do one run of a round, unless the report has it, and note it in the report. name: of a setting, ALONE or SLOWER."""
    mine = [run for run in found["runs"] if (run["network"], run["round"]) == (network, one)]
    if any(run["setting"] == name for run in mine):
        return
    setting, factors, words, launcher = SETTINGS.get(name), {0: args.factor}, [], ""
    if name == SLOWER or setting and setting.alone == SLOWER:
        alone = next(run for run in mine if run["setting"] == ALONE)
        more = slowness(network, alone)
        if more < 1:
            print(f"{network}, {name}: left out, this machine computes too slowly for it", file=sys.stderr, flush=True)
            return
        factors = {0: more * args.factor} | ({1: more} if setting else {})
    if setting:
        words.append("--by-speed")
        if setting.rate:
            launcher = f"{sys.executable} -m gridgrad launch --hosts 2 --rate {setting.rate} --delay {DELAY}"
        if setting.rate and setting.alone == ALONE:
            words.append("--first")  # a step takes up to a minute
    words += ["--handicap", ",".join(f"{rank}={factor:.6f}" for rank, factor in factors.items())]
    run = MarquesRun(network, args.batch_size, 2, setting.form) if setting else MarquesRun(network, args.batch_size)
    result = run.start(SECONDS, words, launcher)
    about = {"network": network, "setting": name, "round": one, "factors": list(factors.values())}
    found["runs"].append(result | about)
    write_json(args.out, found)


def slowness(network, alone):
    """How many times as slowly ranks compute, so that one alone is to the network what the first laptop was to its own.

    alone: what the first rank alone printed.
    """
    rate = SETTINGS["proportion"].rate * 1e6 / 8 * PAYLOAD
    return scaling.seconds_on_one(network).value * scaling.RATE / rate / parts([alone])["step"][0]


if __name__ == "__main__":
    run_launcher(main)
