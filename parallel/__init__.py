"""The process grid, placements, redistributions, plans: everything that makes a serial network parallel."""

from gridgrad.parallel.auto.parallelize import parallelize, parallelize_unallocated
from gridgrad.parallel.balance.choose import measured_shares
from gridgrad.parallel.balance.rebalance import Rebalancer
from gridgrad.parallel.checkpoint.script import resumable_steps
from gridgrad.parallel.faults.watchdog import Watchdog
from gridgrad.parallel.grid.checked_group import compare_collectives
from gridgrad.parallel.grid.devices import use_device
from gridgrad.parallel.grid.process_grid import ProcessGrid, parse_grid
from gridgrad.parallel.observe.profile import Profile
from gridgrad.parallel.observe.trace import Trace
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import C, H, N, Partial, Replicate, Shard
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.training.distribute import distribute
from gridgrad.parallel.training.minibatch_readers import READERS
from gridgrad.parallel.training.network import ParallelSequential
from gridgrad.parallel.training.steps import evaluate, predict, train_step

__all__ = [
    "READERS",
    "C",
    "H",
    "N",
    "ParallelSequential",
    "Partial",
    "ProcessGrid",
    "Rebalancer",
    "Profile",
    "Redistribute",
    "Replicate",
    "Shard",
    "Trace",
    "Watchdog",
    "compare_collectives",
    "evaluate",
    "parallelize_unallocated",
    "distribute",
    "measured_shares",
    "parallelize",
    "parse_grid",
    "predict",
    "resumable_steps",
    "Partition",
    "train_step",
    "use_device",
]
