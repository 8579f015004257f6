"""Compare predicted training steps with those of another simulator, SMPI of SimGrid, which replays them. Starts no job.

    gridgrad study simulators --ranks 2,4,16 --out simulators.json
    gridgrad study simulators --ranks 2 --measured predictions.json --machine machine.json --out simulators.json

SMPI sends each message of each collective over the links of a platform that is made from the machine file; how traces are made
says `experiments/export/simgrid.py`. Steps that are in the file of the results already are not replayed again. Steps that
`gridgrad study predictions` has measured are compared with both simulators.
"""

from itertools import product
from pathlib import Path

from gridgrad.experiments.common.kept_results import fitting
from gridgrad.experiments.common.options import Parser, user_input, whole_list, writable_beside
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.report import write_json, write_text
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.studies.simulators.document import document
from gridgrad.experiments.studies.simulators.measured import rows
from gridgrad.experiments.studies.simulators.points import SENT, Point, collective, compared, grids
from gridgrad.nn.files.documents import content_of_file
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.prediction import machine as machines

BATCH_SIZES = {"vgg16": 128, "alexnet": 256, "resnet20": 256, "mlp:1024,1024,1024,relu": 1024, "mlp:4096,4096,relu": 256}
MOST_RANKS = {"resnet20": 256}  # of networks with many small layers, whose replays would take long
MACHINES = "cori-haswell", "ethernet-1g"
RANKS = [2, 4, 16, 64, 256, 1024]
ALONE = 16, 64  # numbers of ranks on which collectives are compared alone
SIZES = 64 << 10, 4 << 20, 64 << 20  # bytes of their arrays
EMPTY = {"program": "simulators", "steps": [], "collectives": [], "measured": []}


def options():
    parser = Parser(prog="study simulators", description="Does another simulator predict the same steps? Starts no job.")
    add = parser.add_argument
    add("--machines", nargs="+", default=MACHINES, choices=machines.names(), help="machine files that come with the project")
    add("--nets", nargs="+", default=tuple(BATCH_SIZES), choices=tuple(BATCH_SIZES), help="networks")
    add("--ranks", type=whole_list, default=RANKS, metavar="P,P,..", help="numbers of ranks")
    add("--measured", metavar="FILE.json", help="also compare the steps that `study predictions` measured, in its report")
    add("--machine", metavar="FILE.json", help="the machine file with which they were predicted")
    add("--out", default="results/simulators.json", metavar="FILE.json", help="the numbers; the document goes beside, as .md")
    return parser


def earlier(path):
    """The results in a file, or none. ValueError if it holds something else."""
    if not Path(path).exists():
        return {name: list(of) if isinstance(of, list) else of for name, of in EMPTY.items()}
    found = content_of_file(path)
    if not isinstance(found, dict) or found.keys() != EMPTY.keys() or found["program"] != EMPTY["program"]:
        raise ValueError(f"{path} holds no results of simulators: give another name")
    with fitting(f"{path} holds results of simulators that are damaged: give another name"):
        list(document(found))
    return found


def wanted(args):
    """Yield the Points that are asked for."""
    for ranks, machine, net in product(args.ranks, args.machines, args.nets):
        for grid in grids(net, BATCH_SIZES[net], ranks) if ranks <= MOST_RANKS.get(net, ranks) else ():
            yield Point(machine, net, BATCH_SIZES[net], grid)


def main():
    args = options().parse_args()
    with user_input():
        beside = writable_beside(args.out, ".md", ("numbers", "document"))
        found, points = earlier(args.out), list(wanted(args))
        if (args.measured is None) != (args.machine is None):
            raise ValueError("--measured and --machine belong together: give both, or neither")
        machine = args.machine and machines.read(args.machine)
        measured = rows(args.measured, machine) if machine else ()
        done = {Point(*(row[name] for name in Point.__match_args__)) for row in found["steps"]}
        for point in progress([point for point in points if point not in done], "steps"):
            found["steps"].append(compared(point))
            write(args.out, beside, found)
        done = {(row["machine"], row["ranks"], row["kind"], row["bytes"]) for row in found["collectives"]}
        for one in product(args.machines, [ranks for ranks in args.ranks if ranks in ALONE], SENT, SIZES):
            if one not in done:
                found["collectives"].append(collective(*one))
        if machine:
            found["measured"] = [row for row in found["measured"] if row["machine"] != machine.name]
            found["measured"] += measured
        write(args.out, beside, found)
    print(terminal("\n".join(document(found))))
    print(f"numbers written to {args.out}, the document to {beside}")


def write(path, beside, found):
    """Write the numbers and the document."""
    write_json(path, found)
    write_text(beside, "\n".join(document(found)) + "\n")


if __name__ == "__main__":
    run_launcher(main)
