"""Everything that makes a serial network parallel: the process grid, placements and redistributions, training, protocols.

Beside functions and classes it has these values:

- `N`, `H`, `W`, `C`: the dimensions of activations, for `Shard`: samples, rows and columns of images, channels or features.
- `READERS`: {name: class(net, part)} of the ways in which samples reach the ranks: "each" reads its own
  (`parallel/training/minibatch_readers.py`).
- `PLANS`: {word of a plan: Plan}, see `parallel/plans/plans.py`.
- `PLACES`: {class of a layer: a LayerKind, or a function(placer, layer)} that places such layers, see
  `parallel/placement/layer_kinds.py`.
- `PROTOCOLS`: {name: ProtocolForm} of the update protocols.
"""

from gridgrad.parallel.checkpoint.script import resumable_steps
from gridgrad.parallel.choose.parallelize import parallelize
from gridgrad.parallel.choose.trained import TrainedNetwork, load, save
from gridgrad.parallel.faults.watchdog import Watchdog
from gridgrad.parallel.grid.devices import use_device
from gridgrad.parallel.grid.process_grid import ProcessGrid, parse_grid
from gridgrad.parallel.observe.span_observer import Profile
from gridgrad.parallel.observe.trace import Trace
from gridgrad.parallel.pipeline.generators import complete as complete_schedule
from gridgrad.parallel.pipeline.schedule import Instruction, Route, Schedule, Unsound
from gridgrad.parallel.pipeline.schedule_names import to_csv as schedule_to_csv
from gridgrad.parallel.pipeline.simulate import draw as draw_schedule
from gridgrad.parallel.pipeline.simulate import simulate as simulate_schedule
from gridgrad.parallel.placement.layer_kinds import PLACES
from gridgrad.parallel.placement.layout import Layout
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import C, H, N, Partial, Replicate, Shard, W
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.plans import PLANS
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.protocol_names import FORMS as PROTOCOLS
from gridgrad.parallel.protocols.protocol_names import ProtocolForm
from gridgrad.parallel.protocols.protocol_names import parse as parse_protocol
from gridgrad.parallel.protocols.workers import divide
from gridgrad.parallel.sync.reduction import BlockingReduction, Reduction
from gridgrad.parallel.training.distribute import distribute
from gridgrad.parallel.training.evaluate import evaluate, predict
from gridgrad.parallel.training.minibatch_readers import READERS
from gridgrad.parallel.training.network import ParallelSequential
from gridgrad.parallel.training.steps import minibatch_indices, train_step

__all__ = [
    "BlockingReduction",
    "C",
    "complete_schedule",
    "distribute",
    "divide",
    "draw_schedule",
    "evaluate",
    "H",
    "Instruction",
    "Layout",
    "load",
    "minibatch_indices",
    "N",
    "parallelize",
    "ParallelSequential",
    "parse_grid",
    "parse_protocol",
    "Partial",
    "Partition",
    "PLACES",
    "PLANS",
    "predict",
    "ProcessGrid",
    "Profile",
    "Protocol",
    "ProtocolForm",
    "PROTOCOLS",
    "READERS",
    "Redistribute",
    "Reduction",
    "Replicate",
    "resumable_steps",
    "Route",
    "save",
    "Schedule",
    "schedule_to_csv",
    "Shard",
    "simulate_schedule",
    "Trace",
    "train_step",
    "TrainedNetwork",
    "Unsound",
    "use_device",
    "W",
    "Watchdog",
]
