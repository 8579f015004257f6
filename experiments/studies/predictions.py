"""Measure training steps under many plans, in turn, and compare them with the predictions of the cost model.

    mpiexec -n 2 gridgrad calibrate --out machine.json
    mpiexec -n 2 gridgrad study predictions --machine machine.json --out predictions.json

For each problem (a network and a global batch) all grids of the ranks are measured with several plans each, and so is the plan
that the planner chooses. A prediction uses only the machine file, which was measured without these networks. The grids are
timed alternately, so that a drift of the machine's speed affects all of them alike. Times are normalised to an unloaded core,
as in the calibration (`parallel/calibration/timing.py`), because the model does not describe what other programs do to the
machine; on ranks that share cores they are not normalised. The time of a round is that of its median step, and the time of a
pass over all problems is the median of its rounds. Of several passes the one that was fastest before it was normalised counts,
because its normalisation changed the least.

What is measured while others compute on the machine is marked (`experiments/common/machine_load.py`) and measured again when
all passes are over. Where there is still no pass without others, the points of the problem are printed with what was taken, and
no median or choice counts them.
"""

from collections import defaultdict
from itertools import product
from statistics import median

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.machine_load import Watch, load_of_job
from gridgrad.experiments.common.options import Parser, check_writable, number, user_input, whole
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import counted, table
from gridgrad.experiments.common.timed_plans import PlanProblem, TimedPlan
from gridgrad.experiments.common.timing import in_words, spread
from gridgrad.nn import Conv2d
from gridgrad.parallel.calibration.timing import NormalisedTimer, TimeLimit
from gridgrad.parallel.grid.process_grid import LAYER_AXES
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.planner import Planner, every_grid

PROBLEMS = (  # network, shape of a sample, classes, global batch
    ("mlp:512,512,relu", (784,), 10, 128),
    ("mlp:1024,1024,1024,tanh", (16,), 2, 100),
    ("mlp:1024,1024,1024,tanh", (16,), 2, 1000),
    ("mlp:2048,1024,tanh", (1024,), 10, 128),
    ("mlp:2048,1024,tanh", (1024,), 10, 1024),
    ("mlp:300,700,200,relu", (500,), 30, 250),
    ("mlp:4096,4096,relu", (1024,), 10, 32),
    ("mnist-cnn", (28, 28, 1), 10, 64),
    ("mnist-cnn", (28, 28, 1), 10, 256),
    ("cifar-cnn", (32, 32, 3), 10, 64),
    ("cifar-cnn", (32, 32, 3), 10, 128),
    ("lenet5", (28, 28, 1), 10, 100),
)
AGAIN = 2  # how often at most what others have disturbed is measured again


def priced(side, described, planned):
    """What is predicted for a TimedPlan on a Machine, as a dict. planned: whether it is the planner's choice."""
    problem, cost = side.problem, side.cost(described)
    return {
        "machine": described.name, "net": problem.net, "batch_size": problem.batch_size, "ranks": side.grid.size,
        "grid": str(side.grid), "plan": side.net.plan, "planned": planned, "predicted": cost.seconds, "parts": cost.parts,
    }  # fmt: skip


def plans(problem, ranks):
    """(sizes, plan) of all measurements besides the planner's choice."""
    images = any(isinstance(layer, Conv2d) for layer in problem.serial().leaves())
    for sizes in every_grid(ranks, LAYER_AXES if images else ("batch", "model")):
        yield sizes, "fewest-bytes"
        if images and sizes["model"] == ranks > 1:
            yield sizes, "conv=replicate,linear=fewest-bytes"
            yield sizes, "conv=height,linear=fewest-bytes"


def sides_of(problem, described, timer):
    """The TimedPlans of a problem, the planner's choice first. Collective."""
    chosen, _ = Planner(problem.serial(), timer.comm.size, problem.batch_size, described).best()
    words = ",".join(chosen.cost.placed.plan)
    sides = []
    for sizes, plan in [(chosen.sizes, words), *plans(problem, timer.comm.size)]:
        side = TimedPlan(problem, sizes, plan, timer)
        if any(same(side, other) for other in sides):
            side.grid.free()
        else:
            sides.append(side)
    return sides


def measure(problems, described, timer, passes, rounds, shown, limit):
    """Rows of all plans of all problems. Collective.

    shown: a function that iterates over a list and shows the progress. limit: a TimeLimit, after which no problem of a second
    pass begins.

    A problem is set up again in every pass, so that its networks are the only ones in memory, as in training.
    """
    rows, found = {}, defaultdict(list)
    todo = list(product(range(passes), range(len(problems))))
    for attempt in range(1 + AGAIN):
        marked = []
        for turn, which in shown(todo):
            if (attempt or turn) and limit.is_over():
                break
            sides = sides_of(problems[which], described, timer)
            watch = Watch()
            for _ in range(rounds):
                for side in sides:
                    side.turn()
            load = load_of_job(timer.comm, watch.seen())
            busy = load and load.verdict
            if busy:
                marked.append((turn, which))
            for side in sides:
                key = which, str(side.grid), tuple(side.net.plan)
                rows[key] = priced(side, described, side is sides[0])
                found[key].append((busy, *zip(*side.rounds)))
                side.grid.free()
        todo = marked
    for key, row in rows.items():
        row |= judged(found[key])
        row["error"] = row["predicted"] / row["measured"] - 1
    return [rows[key] for key in sorted(rows, key=lambda key: key[0])]


def judged(passes):
    """What is measured of a plan, as a dict. passes: (why the machine was busy or None, seconds normalised, as measured).

    The passes while others computed count only where there are no others: "busy" says so.
    """
    kept = [one for one in passes if not one[0]] or passes
    words, normalised, measured = min(kept, key=lambda one: median(one[2]))
    return {
        "measured": median(normalised), "as_it_was": median(measured), "busy": words,
        "spread": spread([seconds for _, normalised, _ in kept for seconds in normalised]),
    }  # fmt: skip


def same(side, other):
    """Whether two TimedPlans are the same: if the model axis has one rank, all plans of a grid are."""
    return side.grid.sizes == other.grid.sizes and (side.grid.sizes["model"] == 1 or side.net.plan == other.net.plan)


def comparable(rows):
    """The rows that count: those that were not measured while others computed."""
    return [row for row in rows if not row.get("busy")]


def summary(rows):
    """The summary of rows: {"points", "marked", "median_error", "worst_error", "choices", "good_choices", "worst_choice"}.

    "marked" are the points that were measured while others computed; nothing else counts them, so that there may be no error,
    None. A choice of the planner is good where it takes at most 1.05 times as long as the fastest plan that was measured;
    "worst_choice" is the largest such ratio.
    """
    kept, least = comparable(rows), fastest(rows)
    errors = [abs(row["error"]) for row in kept]
    chosen = [row["measured"] / least[problem_of(row)] for row in kept if row["planned"]]
    return {
        "points": len(kept), "marked": len(rows) - len(kept),
        "median_error": median(errors) if errors else None, "worst_error": max(errors, default=None),
        "choices": len(chosen), "good_choices": sum(ratio <= 1.05 for ratio in chosen),
        "worst_choice": max(chosen, default=None),
    }  # fmt: skip


def fastest(rows):
    """{problem: seconds of the fastest plan that was measured for it and counts}, with `problem_of` a row as the key."""
    found = {}
    for row in comparable(rows):
        key = problem_of(row)
        found[key] = min(found.get(key, np.inf), row["measured"])
    return found


def problem_of(row):
    return row["machine"], row["net"], row["batch_size"], row["ranks"]


def lines(rows):
    """The rows as lines of text."""
    yield table([
        {"network": row["net"], "batch": row["batch_size"], "grid": row["grid"], "ms measured": 1e3 * row["measured"],
         "ms predicted": 1e3 * row["predicted"], "error": f"{100 * row['error']:+.1f} %", "planned": row["planned"],
         "plan": ",".join(row["plan"]), **({"busy": row["busy"]} if len(comparable(rows)) < len(rows) else {})}
        for row in rows
    ])  # fmt: skip
    told = summary(rows)
    if told["marked"]:
        yield f"{counted(told['marked'], 'point')} of {len(rows)} left out: others computed on the machine meanwhile"
    if told["points"]:
        errors = f"median error {100 * told['median_error']:.1f} %, worst {100 * told['worst_error']:.1f} %"
        choices = f"{told['good_choices']} of {told['choices']} choices within 5 % of the fastest plan measured"
        yield f"{counted(told['points'], 'point')}: {errors}; {choices}"


def options():
    parser = Parser(prog="study predictions", description="How far are predicted training steps from measured ones?")
    parser.add_argument(
        "--machine", required=True, metavar="FILE.json", help="machine file that calibrate wrote on as many ranks"
    )
    parser.add_argument("--passes", type=whole(1), default=4, help="number of passes over all problems")
    parser.add_argument("--rounds", type=whole(1), default=3, help="rounds in a pass; each plan is timed once in a round")
    parser.add_argument("--minutes", type=number(above=0), default=30.0, metavar="M",
                        help="begin no further problem after so many minutes; the first pass is always completed")  # fmt: skip
    parser.add_argument("--net", help="measure only the problems with this network")
    parser.add_argument("--out", default="results/predictions.json", metavar="FILE.json", help="the report")
    return parser


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    on_root(comm, lambda: check_writable(args.out))
    with user_input():
        described = machine.read(args.machine)
        problems = [PlanProblem(*problem) for problem in PROBLEMS if args.net in (None, problem[0])]
        if not problems:
            raise ValueError(f"no problem has the network {args.net}: there are {', '.join(p[0] for p in PROBLEMS)}")
    shown = lambda things: progress(things, "predictions: problems", comm.rank == 0)  # noqa: E731
    timer = NormalisedTimer(comm, described.core.get("calm"))
    rows = measure(problems, described, timer, args.passes, args.rounds, shown, TimeLimit(comm, 60 * args.minutes))
    content = {"versions": report.versions(), **summary(rows), "rows": rows}
    on_root(comm, lambda: report.write_json(args.out, content))
    if comm.rank == 0:
        words = in_words([row["spread"] for row in rows])
        print(f"{words[0].upper()}{words[1:]}.")
        print("\n".join([*lines(rows), f"written to {args.out}"]))


if __name__ == "__main__":
    run(main)
