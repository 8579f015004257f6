"""The process grid, placements, redistributions, plans: everything that makes a serial network parallel."""

from parallel.auto.parallelize import parallelize, parallelize_unallocated
from parallel.balance.choose import measured_shares
from parallel.balance.rebalance import Rebalancer
from parallel.checkpoint.script import resumable_steps
from parallel.faults.watchdog import Watchdog
from parallel.grid.checked_group import compare_collectives
from parallel.grid.devices import use_device
from parallel.grid.process_grid import ProcessGrid, parse_grid
from parallel.observe.profile import Profile
from parallel.observe.trace import Trace
from parallel.placement.partition import Partition
from parallel.placement.placements import C, H, N, Partial, Replicate, Shard
from parallel.placement.redistribute import Redistribute
from parallel.training.distribute import distribute
from parallel.training.minibatch_readers import READERS
from parallel.training.network import ParallelSequential
from parallel.training.steps import evaluate, predict, train_step

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
