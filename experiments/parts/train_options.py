"""The options of `train`, in the groups of its --help."""

from gridgrad.experiments.common import train_setup
from gridgrad.experiments.common.checkpoints import add_checkpoints
from gridgrad.experiments.common.options import (
    add_data,
    add_device,
    add_reduction,
    number,
    of_parallelize,
    position_list,
    whole,
)
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.experiments.parts import train_faults
from gridgrad.nn import OPTIMIZERS
from gridgrad.nn.optimizers import SCHEDULES
from gridgrad.parallel.observe.trace import STEPS
from gridgrad.parallel.protocols import protocol_names as protocols

WARM_UP = 5  # steps before timing begins
SHORT = (
    "dataset", "net", "batch_size", "epochs", "steps", "lr", "grid", "plan", "pipeline", "protocol", "device",
    "checkpoint", "resume", "report", "trace",
)  # fmt: skip # what --help shows without `all`


def add_options(parser):
    """Add them all to a parser."""
    group = lambda title: parser.add_argument_group(title).add_argument  # noqa: E731
    add_data(data := parser.add_argument_group("network and data"), "airfoil", "mlp:128,128,relu", batch_size=128)
    _data(data.add_argument)
    _grid(parser.add_argument_group("grid and plan"))
    _training(parser.add_argument_group("training"))
    _pipeline(group("pipeline"))
    protocol = group("update protocol")
    protocol("--protocol", default=protocols.SYNC, metavar="NAME", help="when gradients or parameters travel between workers, "
        "which are the ranks along the axis batch, such as local:8; see gridgrad help protocol")  # fmt: skip
    protocol("--sorted", action="store_true", help="take the training samples in the order of their labels, class after class; "
        "it matters to --protocol parallel-sgd")  # fmt: skip
    _unequal(group("ranks of unequal speed"))
    add_checkpoints(parser.add_argument_group("checkpoints"))
    train_faults.add_faults(parser.add_argument_group("faults"))
    _reports(group("reports"))


def _data(add):
    add("--augment", metavar="SPEC", help="vary training images at random, such as by shift=4,flip; see gridgrad help augment")
    add("--validation", type=number(above=0, below=1), metavar="FRACTION", help="share of the training samples to hold out")
    add("--reader", default="each", choices=READERS, help="each rank reads its own samples, or rank 0 reads and sends them")
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")


def _grid(group):
    add = group.add_argument
    add("--grid", default="auto", help=of_parallelize("grid"))
    add("--plan", help=of_parallelize("plan"))
    add("--memory", type=number(above=0), metavar="GIB", help=of_parallelize("memory"))
    add_reduction(group)
    add_device(group)


def _training(group):
    add, exclusive = group.add_argument, group.add_mutually_exclusive_group()
    exclusive.add_argument("--epochs", type=whole(1), metavar="E", help="number of passes over the training data (default: 10)")
    exclusive.add_argument("--steps", type=whole(1), metavar="S", help="number of minibatches to train on, instead of epochs; "
        "with --resume counted from the very start")  # fmt: skip
    add("--optimizer", default="sgd", choices=OPTIMIZERS, help="the optimizer")
    add("--lr", type=number(above=0), help=f"learning rate ({train_setup.default_of('lr')})")
    add("--momentum", type=number(least=0, below=1), help=f"momentum of sgd ({train_setup.default_of('momentum')})")
    add("--nesterov", action="store_true", default=None, help="use Nesterov's form of momentum (sgd only)")
    add("--l2", type=number(least=0), default=0.0, help="weight of the penalty l2/2 |p|^2 on the parameters p")
    add("--l1", type=number(least=0), default=0.0, help="weight of the penalty l1 |p| on the parameters p")
    add("--schedule", default="cosine", help=f"schedule of the learning rate: {SCHEDULES}")
    add("--patience", type=whole(1), metavar="N", help="stop after N epochs in which the validation loss does not improve, "
        "and go back to the best weights")  # fmt: skip


def _pipeline(add):
    add("--pipeline", metavar="SCHEDULE", help=of_parallelize("pipeline"))
    add("--micro-batches", type=whole(1), metavar="M", help=of_parallelize("micro_batches"))
    add("--cuts", type=position_list, metavar="N,N,..", help=of_parallelize("cuts"))


def _unequal(add):
    add("--shares", metavar="W,W,..", help=of_parallelize("shares"))
    add("--rebalance", type=whole(1), metavar="N", help="compare every N steps how long the ranks compute, and change the "
        "shares where that pays")  # fmt: skip
    add("--handicap", metavar="RANK=FACTOR[@STEP],..", help="make these ranks compute FACTOR times as slowly, by pauses; from "
        "training step STEP on, by default from the start")  # fmt: skip


def _reports(add):
    add("--report", metavar="FILE.json", help="write the settings, versions, losses, times and bytes to this file")
    add("--predictions", metavar="FILE.npy", help="write the outputs for the test samples to this file, in the units of the "
        "data")  # fmt: skip
    add("--profile", action="store_true", help="add the seconds that each layer takes to the report")
    add("--core-speed", action="store_true", help="measure between the steps how fast the cores are, and add it to the report. "
        "`sweep` does so in all its runs, so that `plot compare` tells a slower program from a slower machine")  # fmt: skip
    add("--trace", metavar="FILE.json", help="write a timeline of all ranks, for ui.perfetto.dev")
    add("--trace-steps", type=whole(1), metavar="N", help="number of steps that the timeline shows, after the first "
        f"{WARM_UP} (default: {STEPS})")  # fmt: skip
    add("--quiet", action="store_true", help="print nothing but errors and warnings")
