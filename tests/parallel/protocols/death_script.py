"""A training in which one worker kills itself; run by test_death.py as `python -m ... PROTOCOL VICTIM`."""

import os
import signal
import sys

from mpi4py import MPI

from nn import LOSSES, SGD
from parallel import ProcessGrid, distribute
from parallel.job.deaths import end_after_death
from parallel.job.run import run
from parallel.protocols import names
from parallel.protocols.division import divide
from tests.parallel.protocols.training import dense, samples

STEPS, LAST = 60, 5  # the victim dies before its turn of this number


def main():
    text, victim = sys.argv[1], int(sys.argv[2])
    own, workers = divide(ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size))
    net, (x, y) = distribute(dense(), own), samples(dense(), 29)
    protocol = names.parse(text)(net, workers, lambda updated: SGD(updated, 0.1))
    trainer = net.trainer(LOSSES["cross-entropy"](), protocol)
    for number, turn in enumerate(protocol.turns(protocol.shares(len(x), 8, 0), STEPS)):
        if workers.rank == victim and number == LAST:
            os.kill(os.getpid(), signal.SIGKILL)
        trainer.step([net.blocks(x[turn.indices], y[turn.indices])], turn.samples)
    protocol.finish()
    print(f"worker {workers.rank} ends, lost {protocol.lost}, sum {net.params.sum()!r}", flush=True)
    if protocol.lost:
        end_after_death(0)


if __name__ == "__main__":
    run(main)
