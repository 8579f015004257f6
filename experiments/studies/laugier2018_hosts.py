"""Laugier et al. 2018 on several hosts: steps of batch, model and integrated parallelism beside those of one rank.

    gridgrad launch --hosts 4 --rate 1000 --delay 50 4 calibrate --out machine.json
    gridgrad launch --hosts 4 --rate 1000 --delay 50 4 study laugier2018-hosts --machine machine.json

Networks of the paper's sizes for ethylene are trained with its batch of 100 by its algorithm (the plan `laugier`), on grids
batch=4, model=4 and batch=2,model=2 if there are four ranks, and on one rank, in turn. Each has its own rank on a host with a
network of its own, where more ranks on one machine only share its cores. While one rank trains alone the others sleep. Beside
each step stands the one that the cost model predicts for the hosts, whose constants `calibrate` has measured there. The depth
of the networks is not in the paper: measured are three hidden layers, as elsewhere here, and one, as in the logs of its code.
"""

import os
import platform
import time

from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole, whole_list
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import range_of, spread, table
from gridgrad.experiments.common.timed_plans import PlanProblem, TimedPlan
from gridgrad.experiments.papers.laugier2018 import steps
from gridgrad.parallel.calibration.timing import NormalisedTimer, machine
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.planner import every_grid

SIZES, DEPTHS = [32, 128, 512, 1024], [3, 1]  # units of a hidden layer; hidden layers
NAP = 1e-3  # seconds between two looks of a rank that waits for the one that trains alone


def measure(comm, depths, sizes, rounds, described):
    """Rows of all networks and grids, on all ranks. Collective."""
    problems, rows = [(hidden, size) for hidden in depths for size in sizes], []
    for hidden, size in progress(problems, "networks", comm.rank == 0):
        words = f"mlp:{','.join([str(size)] * hidden)},relu"
        problem = PlanProblem(words, tuple(steps.SHAPE), steps.OUTPUTS, steps.BATCH_SIZE)
        grids = every_grid(comm.size, ("model", "batch"))
        sides = [TimedPlan(problem, axes, steps.PLAN, NormalisedTimer(comm)) for axes in grids]
        alone = TimedPlan(problem, {}, steps.PLAN, NormalisedTimer(MPI.COMM_SELF)) if comm.rank == 0 else None
        quiet(comm)
        for _ in range(rounds):
            if alone:
                alone.turn()
            quiet(comm)
            for side in sides:
                side.turn()
        serial = comm.bcast(alone and [seconds for _, seconds in alone.rounds])
        first = serial_cost(problem, described) if described else None
        rows.append(row(hidden, size, "batch=1,model=1", serial, serial, first, first))
        for side in sides:
            foreseen = side.step_time(described).seconds if described else None
            rows.append(row(hidden, size, str(side.grid), [seconds for _, seconds in side.rounds], serial, foreseen, first))
            side.grid.free()
        if alone:
            alone.grid.free()
    return rows


def quiet(comm):
    """A barrier whose ranks sleep while they wait, so that they leave their cores to the others."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(NAP)


def serial_cost(problem, described):
    """Predicted seconds of a step on one rank while the others sleep.

    A machine file whose ranks shared cores (its `crowd`) has operations as slow as they were then; one rank has a core.
    """
    net = problem.serial()
    seconds = Cost(net, steps.GridDescription({}), steps.PLAN, problem.batch_size, described).seconds
    return seconds / described.core.get("crowd", 1)


def row(hidden, size, grid, seconds, serial, predicted, predicted_serial):
    """A row of one grid. seconds, serial: of a step in each round, on it and on one rank; speedups are those of a round."""
    speedups = [one / step for one, step in zip(serial, seconds)]
    return {
        "hidden layers": hidden, "model size": size, "grid": grid, "seconds": range_of(seconds), "speedup": range_of(speedups),
        "predicted seconds": predicted, "predicted speedup": predicted and predicted_serial / predicted,
    }  # fmt: skip


def describe(comm, args, described, rows):
    """The report, on rank 0. Collective."""
    where = comm.gather((platform.node(), machine(), os.cpu_count() or 1))
    return where and {
        "ranks": comm.size, "hosts": [host for host, *_ in where],
        "cores": sum({of: cores for _, of, cores in where}.values()), "link": args.link, "rounds": args.rounds,
        "machine": described and described.name, "batch_size": steps.BATCH_SIZE, "plan": steps.PLAN,
        "versions": report.versions(), "rows": rows,
    }  # fmt: skip


def in_words(found):
    """The report as lines of text."""
    yield f"{found['ranks']} ranks on {found['cores']} cores, {found['link']}"
    yield table([
        {"hidden layers": one["hidden layers"], "model size": one["model size"], "grid": one["grid"],
         "ms a step": spread(one["seconds"], 1e-3), "speedup": spread(one["speedup"]),
         "predicted speedup": one["predicted speedup"]}
        for one in found["rows"]
    ])  # fmt: skip


def options():
    parser = Parser(
        prog="study laugier2018-hosts",
        description="Which of the three ways of Laugier et al. (2018) is the fastest on several hosts?",
    )
    parser.add_argument("--machine", metavar="FILE.json", help="machine file that calibrate wrote on the same hosts; without "
                        "it nothing is predicted")  # fmt: skip
    parser.add_argument("--model-sizes", type=whole_list, default=SIZES, metavar="N,N,..", help="units of a hidden layer")
    parser.add_argument("--hidden", type=whole_list, default=DEPTHS, metavar="L,L,..", help="numbers of hidden layers")
    parser.add_argument("--rounds", type=whole(1), default=11, help="rounds, in each of which every grid is timed once")
    parser.add_argument("--link", default=os.environ.get(LINK, "network unnamed"), metavar="TEXT",
                        help="a description of the network between the hosts")  # fmt: skip
    parser.add_argument("--out", default="results/laugier2018/hosts.json", metavar="FILE.json", help="the report")
    return parser


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    on_root(comm, lambda: check_writable(args.out))
    with user_input():
        described = machines.read(args.machine) if args.machine else None
    rows = measure(comm, args.hidden, args.model_sizes, args.rounds, described)
    found = describe(comm, args, described, rows)
    on_root(comm, lambda: report.write_json(args.out, found))
    if comm.rank == 0:
        print("\n".join([*in_words(found), f"report written to {args.out}"]))


if __name__ == "__main__":
    run(main)
