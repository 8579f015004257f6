"""ShuffleSGD of made-up samples that are sorted by label, for `reproduce hegde2016`. Prints the bytes as one line of JSON.

mpiexec -n 2 python -m experiments.papers.hegde2016_shuffle_job --samples 60000 --classes 10 --numbers 784
"""

import json

import numpy as np
from mpi4py import MPI

from experiments.common.options import Parser, whole
from parallel.grid.group import Group
from parallel.grid.tally import Tally
from parallel.job.run import run
from parallel.placement.partition import Partition
from parallel.protocols.shuffle_sgd import shuffle


def main():
    parser = Parser(prog="hegde2016_shuffle_job", description="ShuffleSGD of made-up samples.")
    parser.add_argument("--samples", required=True, type=whole(1), help="samples of all ranks")
    parser.add_argument("--classes", required=True, type=whole(1), help="classes, of about as many samples each")
    parser.add_argument("--numbers", required=True, type=whole(1), help="numbers of a sample, a byte each")
    args = parser.parse_args()
    comm, tally = MPI.COMM_WORLD, Tally()
    indices = np.arange(args.samples)[Partition.even(args.samples, comm.size).part(comm.rank)]
    labels = (indices * args.classes // args.samples).astype(np.uint8)
    shuffle(Group(comm, tally), np.zeros((len(indices), args.numbers), np.uint8), labels, indices, seed=0)
    sent = comm.gather(sum(record.bytes for record in tally.records.values()))
    if comm.rank == 0:
        print(json.dumps({"bytes": sum(sent), "most": max(sent)}))


if __name__ == "__main__":
    run(main)
