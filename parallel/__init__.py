"""The process grid, placements, redistributions, plans: everything that makes a serial network parallel."""

from parallel.grid import ProcessGrid, parse_grid
from parallel.minibatch import READERS
from parallel.network import ParallelSequential, parallelize
from parallel.placements import C, H, N, Partial, Replicate, Shard
from parallel.profile import Profile
from parallel.redistribute import Redistribute
from parallel.split import split
from parallel.trace import Trace
from parallel.training import evaluate, predict, train_step

__all__ = [
    "READERS",
    "C",
    "H",
    "N",
    "ParallelSequential",
    "Partial",
    "ProcessGrid",
    "Profile",
    "Redistribute",
    "Replicate",
    "Shard",
    "Trace",
    "evaluate",
    "parallelize",
    "parse_grid",
    "predict",
    "split",
    "train_step",
]
