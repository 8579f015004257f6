"""The options of `train`, in the groups of its --help, and the list of what they add to a run."""

from gridgrad.experiments.common import options, train_setup
from gridgrad.experiments.common.options import number, of_parallelize, whole
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.experiments.run_changes import KEEP, Augmentation, Checkpoints, Faults, Rebalancing, Validation
from gridgrad.experiments.run_parts import WARM_UP, LayerTable, Lines, Timeline, Times
from gridgrad.nn import OPTIMIZERS
from gridgrad.nn.learning_rates import SCHEDULES
from gridgrad.parallel.checkpoint.saver import MINUTES
from gridgrad.parallel.observe.trace import STEPS
from gridgrad.parallel.protocols import protocol_names as protocols

SHORT = ("dataset", "net", "batch_size", "epochs", "steps", "lr", "grid", "plan", "pipeline", "protocol", "device",
         "checkpoint", "resume", "report", "trace")  # fmt: skip # what --help shows without `all`


def add_options(parser):
    group = parser.add_argument_group("network and data")
    add = group.add_argument
    options.add_data(group, "airfoil", "mlp:128,128,relu", batch_size=128)
    add("--augment", metavar="SPEC", help="vary training images at random, such as by shift=4,flip; see gridgrad help augment")
    add("--validation", type=number(above=0, below=1), metavar="FRACTION", help="share of the training samples to hold out")
    add("--reader", default="each", choices=READERS, help="each rank reads its own samples, or rank 0 reads and sends them")
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    group = parser.add_argument_group("grid and plan")
    add = group.add_argument
    add("--grid", default="auto", help=of_parallelize("grid"))
    add("--plan", help=of_parallelize("plan"))
    add("--memory", type=number(above=0), metavar="GIB", help=of_parallelize("memory"))
    options.add_reduction(group)
    options.add_device(group)
    group = parser.add_argument_group("training")
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
    add("--weight-decay", type=number(least=0), help="how fast adamw shrinks parameters "
        f"({train_setup.default_of('weight_decay')})")  # fmt: skip
    add("--clip-norm", type=number(above=0), metavar="NORM", help="shorten the gradient of all parameters together to this "
        "norm where it is longer")  # fmt: skip
    add("--label-smoothing", type=number(least=0, below=1), metavar="SHARE", help="share of each label that counts for all "
        "classes alike; validation and test are without it")  # fmt: skip
    add("--schedule", default="cosine", help=f"schedule of the learning rate: {SCHEDULES}")
    add("--patience", type=whole(1), metavar="N", help="stop after N epochs in which the validation loss does not improve, "
        "and go back to the best weights")  # fmt: skip
    add = parser.add_argument_group("pipeline").add_argument
    add("--pipeline", metavar="SCHEDULE", help=of_parallelize("pipeline"))
    add("--micro-batches", type=whole(1), metavar="M", help=of_parallelize("micro_batches"))
    add("--cuts", type=options.position_list, metavar="N,N,..", help=of_parallelize("cuts"))
    add = parser.add_argument_group("update protocol").add_argument
    add("--protocol", default=protocols.SYNC, metavar="NAME", help="when gradients or parameters travel between workers, "
        "which are the ranks along the axis batch, such as local:8; see gridgrad help protocol")  # fmt: skip
    add("--sorted", action="store_true", help="take the training samples in the order of their labels, class after class; "
        "it matters to --protocol parallel-sgd")  # fmt: skip
    add = parser.add_argument_group("ranks of unequal speed").add_argument
    add("--shares", metavar="W,W,..", help=of_parallelize("shares"))
    add("--rebalance", type=whole(1), metavar="N", help="compare every N steps how long the ranks compute, and change the "
        "shares where that pays")  # fmt: skip
    add("--handicap", metavar="RANK=FACTOR[@STEP],..", help="make these ranks compute FACTOR times as slowly, by pauses; from "
        "training step STEP on, by default from the start")  # fmt: skip
    add = parser.add_argument_group("checkpoints").add_argument
    add("--checkpoint", metavar="DIR", help="write checkpoints into this folder, which all nodes share: at the end, and when "
        "SIGTERM or SIGUSR1 ends the run, with status 75")  # fmt: skip
    add("--checkpoint-steps", type=whole(1), metavar="N", help="write one every N steps")
    add("--checkpoint-minutes", type=number(above=0), metavar="M",
        help=f"write one every M minutes (default: {MINUTES:g}, without --checkpoint-steps)")  # fmt: skip
    add("--keep", type=whole(1), metavar="K", help="keep the last K checkpoints, and with --validation the one with the lowest "
        f"loss at the last validation before it (default: {KEEP})")  # fmt: skip
    add("--resume", metavar="DIR", help="go on from the newest whole checkpoint in this folder, on any grid; begin if it "
        "is the folder of --checkpoint and has none yet")  # fmt: skip
    add = parser.add_argument_group("faults").add_argument
    add("--watchdog", type=number(above=0), metavar="SECONDS", help="end the job when a rank has waited so long in one "
        "collective or receive once the network is on the grid, and say where all ranks are; give more than the ranks ever "
        "wait for the slowest one (default: ranks wait for ever)")  # fmt: skip
    add("--check-replicas", type=whole(1), metavar="N", help="compare checksums of the parameters, the buffers and the "
        "optimizer's state every N steps on ranks that hold the same, and end the job if they differ")  # fmt: skip
    add("--check-finite", action="store_true", help="look for NaN and infinity in every pass of every layer, and name the "
        "first; slow (default: look where one comes from when a loss is not finite)")  # fmt: skip
    add = parser.add_argument_group("reports").add_argument
    add("--report", metavar="FILE.json", help="write the settings, versions, losses, times and bytes to this file")
    add("--predictions", metavar="FILE.npy", help="write the outputs for the test samples to this file, in the units of the "
        "data")  # fmt: skip
    add("--profile", action="store_true", help="print a table of the milliseconds of each layer, and add them to the report")
    add("--core-speed", action="store_true", help="measure between the steps how fast the cores are, and add it to the report. "
        "`sweep` does so in all its runs, so that `plot compare` tells a slower program from a slower machine")  # fmt: skip
    add("--trace", metavar="FILE.json", help="write a timeline of all ranks, for ui.perfetto.dev")
    add("--trace-steps", type=whole(1), metavar="N", help="number of steps that the timeline shows, after the first "
        f"{WARM_UP} (default: {STEPS})")  # fmt: skip
    add("--quiet", action="store_true", help="print nothing but errors and warnings")


def parts_of(args, signals, handicap, train, held_out, data, batch, rebalanced):
    """The parts of a run that the options name, in their order. batch: samples in a forward pass of an evaluation. rebalanced:
    (the serial network, the Balance of the ranks or None)."""
    keep = {"steps": args.checkpoint_steps, "minutes": args.checkpoint_minutes, "keep": args.keep or KEEP}
    found = [
        handicap,
        Checkpoints(args.checkpoint, args.resume, **keep, signals=signals),
        Lines(not args.quiet),
        args.rebalance and rebalanced[1] and Rebalancing(args.rebalance, *rebalanced),
        held_out and Validation(held_out, data.loss, batch, args.patience, READERS[args.reader]),
        args.augment and Augmentation(train),
        Faults(args.watchdog, args.check_replicas, args.check_finite),
        args.profile and LayerTable(),
        args.trace and Timeline(args.trace, args.trace_steps or STEPS),
        Times(args.core_speed),
    ]
    return [part for part in found if part]
