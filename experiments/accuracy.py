"""Train the convolutional networks of Grabaskas 2018 to their published accuracy: on one rank, on grids, with several seeds.

    python -m experiments.accuracy

Writes DIR/accuracy.json and DIR/accuracy.md: every grid must reach the accuracy of one rank, within the spread over
the seeds.
"""

import json
import tempfile
from math import prod
from pathlib import Path

from tqdm import tqdm

from experiments.common import report
from experiments.common.jobs import check_ended
from experiments.common.options import Parser, check_writable, user_input
from experiments.common.programs import as_module
from parallel.grid.process_grid import parse_grid
from parallel.job.launch import mpiexec
from parallel.job.run import run_launcher

# network: (options of train, test accuracy in percent to reach)
CASES = {
    "mnist-cnn": ("--dataset mnist --epochs 6 --batch-size 128 --lr 0.05", 99.0),
    # The published dropout, of 0.5 of 64 features, takes far longer.
    "cifar-cnn,dropout=0": ("--dataset cifar10 --epochs 30 --batch-size 64 --lr 0.02 --augment shift=2,flip", 70.0),
}
RUNS = [("batch=1", 0), ("batch=2", 1), ("batch=2", 2), ("batch=2", 0), ("model=2", 0), ("height=2", 0)]  # (grid, seed)


def train(net, options, grid, seed, data_dir, timeout):
    """{"grid", "seed", "accuracy", "final_loss"} of one run; UserError with the error message of the job if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        arguments = [*as_module("train"), "--quiet", "--net", net, *options.split(), "--grid", grid]
        arguments += ["--seed", str(seed), "--report", str(path), *(["--data-dir", data_dir] if data_dir else [])]
        with user_input():
            job = mpiexec(prod(parse_grid(grid).values()), arguments, timeout)
        check_ended(job, f"{net} on {grid}")
        found = json.loads(path.read_text())
    return {"grid": grid, "seed": seed, "accuracy": found["test_accuracy"], "final_loss": found["final_loss"],
            "versions": found["versions"]}  # fmt: skip


def table(results):
    """The results as Markdown."""
    lines = ["# Test accuracy of the convolutional networks", "", "The runs of `python -m experiments.accuracy`."]
    for net, result in results.items():
        seeds = {run["seed"]: run["accuracy"] for run in reversed(result["runs"])}.values()
        lines += [
            "",
            f"`python -m experiments.train --net {net} {result['options']} --grid GRID --seed SEED`: at least "
            f"{result['least']:g} % wanted; over the seeds {min(seeds):.2f} to {max(seeds):.2f} %.",
            "",
            "| grid | seed | test accuracy |",
            "|---|---|---|",
            *(f"| `{run['grid']}` | {run['seed']} | {run['accuracy']:.2f} % |" for run in result["runs"]),
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = Parser(prog="accuracy", description="Train the convolutional networks of Grabaskas 2018 to their accuracy.")
    parser.add_argument("--data-dir", metavar="DIR", help="see train --help")
    parser.add_argument("--out", default="results", metavar="DIR", help="folder for accuracy.json and accuracy.md")
    args = parser.parse_args()
    path = Path(args.out) / "accuracy.json"
    with user_input():
        check_writable(path)
    results = {}
    with tqdm(total=len(CASES) * len(RUNS), unit=" runs", disable=None) as bar:
        for net, (options, least) in CASES.items():
            results[net] = {"options": options, "least": least, "runs": []}
            for grid, seed in RUNS:
                results[net]["runs"].append(train(net, options, grid, seed, args.data_dir, timeout=3600))
                bar.update()
    report.write_json(path, results)
    text = table(results)
    report.write_text(path.with_suffix(".md"), text)
    print(text)


if __name__ == "__main__":
    run_launcher(main)
