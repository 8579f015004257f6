"""Train networks on MNIST and CIFAR-10 to their accuracy: on one rank, on grids, with several seeds, with PowerSGD.

    gridgrad study accuracy

Writes DIR/accuracy.json and DIR/accuracy.md after each run. Runs that DIR/accuracy.json has already are not repeated, so that
the program goes on where it was interrupted; delete the file to repeat them. Every grid should reach the accuracy of one rank,
within the spread over the seeds.
"""

import json
import tempfile
from dataclasses import dataclass
from itertools import groupby
from math import prod
from pathlib import Path

from tqdm import tqdm

from gridgrad.experiments.common.jobs import check_ended
from gridgrad.experiments.common.kept_results import earlier_results, write_results
from gridgrad.experiments.common.options import Parser, user_input, whole
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.launching.start_ranks import mpiexec
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.job.run import run_launcher


@dataclass(frozen=True)
class AccuracyCase:
    """A network with options of train. least: the test accuracy to reach, in percent; None where it is only compared."""

    net: str
    options: str
    grids: tuple
    least: float | None = None
    seeds: tuple = (0, 1, 2)

    @property
    def runs(self):
        """What names each run in the results: all seeds on the first grid, and the first of them on the other grids."""
        first, *others = self.grids
        pairs = [*((first, seed) for seed in self.seeds), *((grid, self.seeds[0]) for grid in others)]
        return [{"net": self.net, "options": self.options, "grid": grid, "seed": seed} for grid, seed in pairs]


MLP = "mlp:512,512,relu"
CASES = [
    AccuracyCase(MLP, "--dataset mnist --epochs 10", ("batch=1", "batch=2", "model=2", "batch=2,model=2"), 98.0),
    *(
        AccuracyCase(MLP, f"--dataset mnist --steps 400 --batch-size 128 --reduction {reduction}", ("batch=2",))
        for reduction in ("plain", "powersgd:1", "powersgd:2", "powersgd:4")
    ),
    # The two convolutional networks of Grabaskas (2018).
    AccuracyCase(
        "mnist-cnn",
        "--dataset mnist --epochs 6 --batch-size 128 --lr 0.05",
        ("batch=1", "batch=2", "model=2", "height=2"),
        99.0,
    ),
    # The published dropout, of 0.5 of 64 features, takes far longer.
    AccuracyCase(
        "cifar-cnn,dropout=0",
        "--dataset cifar10 --epochs 30 --batch-size 64 --lr 0.02 --augment shift=2,flip",
        ("batch=2", "batch=1", "model=2", "height=2"),
        70.0,
        (0, 1),
    ),
]
RUN = "net", "options", "grid", "seed"  # the entries that name a run


def train(run, data_dir, timeout):
    """The result of a run; UserError with the error message of the job if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        arguments = [*as_module("train"), "--quiet", "--net", run["net"], *run["options"].split(), "--grid", run["grid"]]
        arguments += ["--seed", str(run["seed"]), "--report", str(path), *(["--data-dir", data_dir] if data_dir else [])]
        with user_input():
            job = mpiexec(prod(parse_grid(run["grid"]).values()), arguments, timeout)
        check_ended(job, f"{run['net']} on {run['grid']}")
        found = json.loads(path.read_text())
    return run | {"accuracy": found["test_accuracy"], "final_loss": found["final_loss"], "versions": found["versions"]}


def document(results):
    """The lines of the results as Markdown, a table for each network and its options."""
    yield from ("# Test accuracy", "", "The runs of `gridgrad study accuracy`.")
    least = {(case.net, case.options): case.least for case in CASES}
    by_case = sorted(results, key=lambda run: (run["net"], run["options"], run["grid"], run["seed"]))
    for (net, options), group in groupby(by_case, key=lambda run: (run["net"], run["options"])):
        wanted = f": at least {least[net, options]:g} % wanted" if least.get((net, options)) else ""
        yield from ("", f"`gridgrad train --net {net} {options} --grid GRID --seed SEED`{wanted}")
        yield from ("", "| grid | seed | test accuracy |", "|---|---|---|")
        yield from (f"| `{run['grid']}` | {run['seed']} | {run['accuracy']:.2f} % |" for run in group)


def options():
    parser = Parser(
        prog="study accuracy", description="To which accuracy do networks train on MNIST and CIFAR-10, on several grids? Hours."
    )
    parser.add_argument("--data-dir", metavar="DIR", help="see train --help")
    parser.add_argument("--out", default="results", metavar="DIR", help="folder for accuracy.json and accuracy.md")
    parser.add_argument("--timeout", type=whole(1), default=7200, help="seconds that one run may take")
    return parser


def main():
    args = options().parse_args()
    path = Path(args.out) / "accuracy.json"
    with user_input():
        results = earlier_results(path, (*RUN, "accuracy"), "accuracy", document)
    done = [{name: result[name] for name in RUN} for result in results]
    for run in tqdm([run for case in CASES for run in case.runs if run not in done], unit=" runs", disable=None):
        result = train(run, args.data_dir, args.timeout)
        write_results(path, results, result, RUN, document)
        results.append(result)
    print(terminal("\n".join(document(results))))
    print(f"written to {path} and {path.with_suffix('.md')}")


if __name__ == "__main__":
    run_launcher(main)
