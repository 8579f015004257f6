"""A job in which several trainings take turns, so that what slows the machine down slows all of them down alike.

    mpiexec -n 4 python -m gridgrad.experiments.scaling.turns FILE.json

FILE has {"trainings": [words of `train`, ..], "first": the number of the one that begins}. A turn is a few steps, and each
round begins with another training. The first turn is the warm-up of `train`; the last ends with test and report. Workers of a
protocol other than sync do not step together: such a training is one turn.
"""

import json
import sys
from functools import partial
from itertools import islice
from pathlib import Path

from mpi4py import MPI

from gridgrad.experiments import train
from gridgrad.experiments.run_parts import WARM_UP
from gridgrad.nn.measured import in_turns
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.protocols.protocol_names import SYNC


def main():
    comm = MPI.COMM_WORLD
    asked = comm.bcast(on_root(comm, lambda: json.loads(Path(sys.argv[1]).read_text())))
    over, turns = set(), []

    def turn(steps, most):
        if len(list(islice(steps, most))) != most:
            over.add(steps)

    for words in asked["trainings"]:
        args = train.options().parse_args(words)
        turns.append(partial(turn, train.training(args), WARM_UP if args.protocol == SYNC else None))
    in_turns(turns, is_over=lambda: len(over) == len(turns), meet=comm.Barrier, first=asked["first"])


if __name__ == "__main__":
    run(main)
