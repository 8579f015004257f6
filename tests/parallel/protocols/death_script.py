"""A training in which one worker kills itself; run by test_death.py as `python -m ... PROTOCOL VICTIM FILE`.

The victim makes the file just before. The others wait for it, so that none of them does what is left of the training alone.
"""

import os
import signal
import sys
from pathlib import Path

from mpi4py import MPI

from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.job.run import end_after_death, run
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.workers import divide
from tests.parallel.protocols.training import dense, samples

STEPS, LAST = 60, 5  # the victim dies before its turn of this number, for which the others wait before theirs


def main():
    text, victim, dying = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    own, workers = divide(ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size))
    net, (x, y) = distribute(dense(), own), samples(dense(), 29)
    protocol = protocol_names.parse(text)(net, workers, lambda updated: SGD(updated, 0.1))
    trainer = net.trainer(LOSSES["cross-entropy"](), protocol)
    for number, turn in enumerate(protocol.turns(protocol.shares(len(x), 8, 0), STEPS)):
        if number == LAST and workers.rank == victim:
            dying.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == LAST:
            workers.wait_until(dying.exists)
        trainer.step([net.blocks(x[turn.indices], y[turn.indices])], turn.samples)
    protocol.finish()
    print(f"worker {workers.rank} ends, lost {protocol.lost}, sum {net.params.sum()!r}\n", end="", flush=True)  # a single write
    if protocol.lost:
        end_after_death(0)


if __name__ == "__main__":
    run(main)
