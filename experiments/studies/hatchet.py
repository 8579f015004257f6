"""The runs of a study as call trees for Hatchet and Thicket: a JSON file of trees in Hatchet's literal format.

    gridgrad study hatchet results/sweep.jsonl --out results/hatchet.json

Layers are in the trees of runs with a profile (`sweep --profile`); collectives are in all. `experiments/scaling/hatchet.py`
says what the file holds, and docs/scaling-tools.md how to read it.
"""

from pathlib import Path

from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.report import write_json
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling import hatchet, records
from gridgrad.experiments.scaling.reported import checked
from gridgrad.parallel.job.run import run_launcher


def options():
    parser = Parser(prog="study hatchet", description="Which layers and collectives take how long in each run, for Hatchet?")
    parser.add_argument("reports", metavar="FILE.jsonl", nargs="+", help="what sweep wrote")
    words = "the trees, one a run (default: beside the first file, as .hatchet.json)"
    parser.add_argument("--out", metavar="FILE.json", help=words)
    return parser


def main():
    args = options().parse_args()
    out = args.out or str(Path(args.reports[0]).with_suffix(".hatchet.json"))
    with user_input():
        found = hatchet.profiles(checked(records.gather(args.reports)))
        if not found:
            raise ValueError("no run says where its time goes: measure some with gridgrad sweep, with more --steps")
        check_writable(out)
        write_json(out, found)
    layers = sum(bool(one["graph"][0]["children"][0]["children"]) for one in found)
    print(f"{counted(len(found), 'call tree')} written to {out}, {layers} of them with layers")


if __name__ == "__main__":
    run_launcher(main)
