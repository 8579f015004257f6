"""Train one network with every update protocol, with and without a straggler, and compare time, samples, bytes and accuracy.

    gridgrad study protocols --dataset mnist --net mnist-cnn --samples 12000
    gridgrad plot protocols results/protocols.json
    gridgrad study protocols --dataset mnist --net mnist-cnn --measure 2

All protocols begin with the same weights and get equally many samples, with the same learning rate and momentum.

Their workers train in virtual time: what a protocol makes of the network is computed, in this process, and how long it takes
follows from measured seconds of a minibatch and of an update, and from links of a chosen rate and delay: see
`parallel/protocols/simulated_workers.py`. So any number of workers can be compared on one core, and the straggler is exactly
as slow as it should be. With --measure, jobs of `train` are timed instead, all of them once before any is repeated.

Adds the results to those in a JSON file, with tables beside it.
"""

import os

import numpy as np

from gridgrad import datasets
from gridgrad.experiments.common import report
from gridgrad.experiments.common.kept_results import earlier_results, write_results
from gridgrad.experiments.common.options import Parser, number, number_list, user_input, whole
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.studies.protocols.jobs import timed
from gridgrad.experiments.studies.protocols.protocol_runs import SCORES, ProtocolProblem, trained
from gridgrad.experiments.studies.protocols.synchronous_workers import maker
from gridgrad.experiments.studies.protocols.tables import document, tables
from gridgrad.nn.optimizers import SCHEDULES, parse_schedule
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import run, run_launcher

PROTOCOLS = (
    "sync", "powersgd:4", "local:8", "post-local:100:8", "slowmo:8:0.5", "diloco:50:lr=0.7:momentum=0.5", "easgd:4:0.2",
    "admm:8:rho=0.1", "parallel-sgd:epoch", "sgp", "server:bsp", "server:ssp:4", "server:asp", "downpour:4:4",
)  # fmt: skip
PROBLEM = (  # what names a problem in the results
    "time", "dataset", "net", "workers", "batch_size", "samples", "epochs", "lr", "momentum", "schedule", "sorted", "straggler",
)  # fmt: skip


def options():
    parser = Parser(prog="study protocols", description="What does each update protocol cost and reach, also with a straggler?")
    add = parser.add_argument
    add("--dataset", default="mnist", metavar="NAME", help="a data set, see train --help")
    add("--data-dir", metavar="DIR", help="see train --help")
    add("--net", default="mnist-cnn", help=network_names.HELP)
    add(
        "--protocols",
        default=",".join(PROTOCOLS),
        metavar="NAME,NAME,..",
        help="update protocols, see gridgrad help protocol; or powersgd:R, which is sync with that reduction",
    )
    add("--straggler", type=number(least=1), default=4.0, metavar="FACTOR", help="in a second training with each protocol the "
        "last worker computes so many times as slowly")  # fmt: skip
    add("--batch-size", type=whole(1), default=64, metavar="B", help="samples in the global minibatch")
    add("--lr", type=number(above=0), default=0.02, help="learning rate; of Downpour LR / (1 - MOMENTUM)")
    add("--momentum", type=number(least=0, below=1), default=0.9, help="momentum; Downpour has none")
    add("--schedule", default="cosine", help=f"schedule of the learning rate: {SCHEDULES}")
    add("--sorted", action="store_true", help="sort the training samples by their label, or by their first target")
    add("--seed", type=whole(0), default=0, help="seed of the weights, the order of the samples and the choice of a subset")
    add("--out", default="results/protocols.json", metavar="FILE.json", help="file of the results, to which these are added")
    add = parser.add_argument_group("virtual time").add_argument
    add("--workers", type=whole(1), default=4, metavar="W", help="number of workers")
    add("--samples", type=whole(1), metavar="S", help="use only so many training samples, the first ones (default: all)")
    add("--epochs", type=whole(1), default=3, help="passes over the training samples")
    add("--target", type=number(above=0), metavar="SCORE", help="accuracy on the test samples in percent, or mean squared "
        "error of a regression, to which time and epochs are counted")  # fmt: skip
    add("--every", type=number(above=0), default=0.25, metavar="EPOCHS", help="how often the network is tested")
    add("--evaluated", type=whole(1), default=1000, metavar="S", help="test samples on which it is tested before the end")
    add("--rate", type=number(above=0), default=1000.0, metavar="MBIT", help="Mbit/s of a worker's link")
    add("--delay", type=number(least=0), default=50.0, metavar="US", help="microseconds from worker to worker, one way")
    add("--seconds", type=number_list, metavar="S,S", help="seconds of a worker's minibatch and of an update, as an earlier "
        "result has them (default: measured at first)")  # fmt: skip
    add = parser.add_argument_group("jobs").add_argument
    add("--measure", type=whole(2), metavar="RANKS", help="time jobs of so many ranks, each a worker")
    add("--steps", type=whole(1), default=200, metavar="S", help="global minibatches of a job")
    add("--rounds", type=whole(1), default=3, help="rounds, in each of which every job runs once")
    return parser


def prepared(args):
    """(the options, complete, earlier results in the file). UserError if the options do not go together."""
    with user_input():
        args.protocols = list(dict.fromkeys(args.protocols.split(",")))
        for text in args.protocols:
            maker(text)
        parse_schedule(args.schedule, args.lr, 1)
        if args.seconds is not None and len(args.seconds) != 2:
            raise ValueError("--seconds takes two numbers, the seconds of a worker's minibatch and of an update")
        before = earlier_results(args.out, (*PROBLEM, "runs"), "protocols", document)
        datasets.prepare(args.dataset, args.data_dir)
    return args, before


def simulate(args):
    """Train with all protocols in virtual time; returns what the result has beside the settings."""
    np.seterr(all="ignore")  # a loss that is not finite is found and named
    with user_input():
        data = datasets.load(args.dataset, args.data_dir)
        args.samples = args.samples or len(data.train)
        args.evaluated = min(args.evaluated, len(data.test))
        if args.samples > len(data.train):
            raise ValueError(f"--samples {args.samples}: there are only {len(data.train)} training samples")
        if args.batch_size > args.samples:
            raise ValueError(f"--batch-size {args.batch_size}: there are only {args.samples} training samples")
        serial = network_names.build(args.net, data.sample_shape, data.outputs, args.seed)
        problem = ProtocolProblem(args, serial, data.reshaped(serial.input_shape))
    seconds = dict(zip(("compute", "update"), args.seconds)) if args.seconds else problem.measure()
    runs = []
    for text in args.protocols:
        for factor in dict.fromkeys((1.0, args.straggler)):
            with user_input():
                runs.append(trained(problem, text, seconds, factor))
            said = "diverged" if runs[-1]["diverged"] else f"{runs[-1]['seconds']:.3g} s, test {runs[-1]['score']:.4g}"
            print(f"{text}, straggler {factor:g}: {said}", flush=True)
    return {
        "time": "virtual", "dataset": data.name, "synthetic": data.synthetic, "workers": args.workers, "samples": args.samples,
        "epochs": args.epochs, "score": problem.score, "seconds": seconds, "share": problem.share, "parameters": serial.size,
        "versions": report.versions(), "runs": runs,
    }  # fmt: skip


def measure(args):
    """Time jobs with all protocols; returns what the result has beside the settings."""
    with user_input():
        data = datasets.load(args.dataset, args.data_dir).outline()
    launcher = os.environ.get("MPIEXEC")
    runs = list(timed(args))
    return {
        "time": f"started by {launcher}" if launcher else "on this machine", "dataset": data.name, "synthetic": data.synthetic,
        "workers": args.measure, "samples": None, "epochs": None, "steps": args.steps, "score": SCORES[data.loss],
        "versions": next((run["versions"] for run in runs if "versions" in run), report.versions()), "runs": runs,
    }  # fmt: skip


def keep(args, before, found):
    """Write what `simulate` or `measure` found, with the settings, beside the earlier results."""
    settings = vars(args)
    names = "net", "batch_size", "lr", "momentum", "schedule", "sorted", "straggler"
    result = {name: settings[name] for name in names} | found | {"settings": settings}
    write_results(args.out, before, result, PROBLEM, document)
    print(terminal("\n".join(tables(result))))
    print(f"results added to {args.out}, and the tables beside it")


def main():
    args, before = prepared(options().parse_args())
    if args.measure:
        keep(args, before, measure(args))
    else:
        run(lambda: keep(args, before, simulate(args)))  # grids of one rank need MPI, too


if __name__ == "__main__":
    run_launcher(main)
