"""What can not be meant is refused, and what is odd but legal is noted, before a training begins."""

from pathlib import Path

from gridgrad.datasets import augment
from gridgrad.nn.device import NO_TF32
from gridgrad.parallel.choose.reductions import check_name
from gridgrad.parallel.job.run import in_short
from gridgrad.parallel.partitioning.good_partition import is_partition
from gridgrad.parallel.protocols.protocol_names import SYNC

NEEDS = {  # option: the one without which it says nothing
    "trace_steps": ("trace", "--trace FILE.json, the timeline that has so many steps"),
    "keep": ("checkpoint", "--checkpoint DIR, the folder of the checkpoints that it keeps"),
    "checkpoint_steps": ("checkpoint", "--checkpoint DIR, the folder to write into"),
    "checkpoint_minutes": ("checkpoint", "--checkpoint DIR, the folder to write into"),
    "profile": ("report", "--report FILE.json, into which it goes"),
    "core_speed": ("report", "--report FILE.json, into which it goes"),
    "patience": ("validation", "--validation FRACTION, the share of the training samples that is held out"),
}


def check_options(args, ranks):
    """ValueError for options of `train` that say nothing, whatever the network and the data are."""
    for option, (other, words) in NEEDS.items():
        if getattr(args, option) and not getattr(args, other):
            raise ValueError(f"--{option.replace('_', '-')} needs {words}")
    partitioned = args.plan and is_partition(args.plan)  # whose parts may be a pipeline without stages
    planned = args.grid == "auto" and ranks > 1  # by the planner, which may choose stages
    if args.pipeline and not planned and "stage" not in args.grid and not partitioned:
        raise ValueError(f"--pipeline {args.pipeline} is for a grid with stages: add stage=2 to --grid, or leave it out")
    if args.plan and args.plan.endswith(".h5") and not Path(args.plan).is_file():
        raise ValueError(f"--plan {args.plan}: no such file; gridgrad partition writes files of owners")
    check_name(args.reduction)
    if args.tf32 and args.device == "cpu":
        raise ValueError(NO_TF32)
    if args.predictions and not args.predictions.endswith(".npy"):
        raise ValueError(f"--predictions {args.predictions}: the name of a NumPy file must end in .npy")
    if args.augment is not None:
        augment.parse(args.augment, args.seed)
    if args.micro_batches and args.micro_batches > args.batch_size:
        raise ValueError(f"--micro-batches {args.micro_batches} are more than the {args.batch_size} samples of --batch-size: "
                         "name at most as many")  # fmt: skip


def check_grid(sizes, net):
    """ValueError for a grid, {axis: ranks}, that splits the images of a network, a Sequential, which takes none."""
    if sizes.get("height", 1) > 1 and len(net.input_shape or ()) != 3:
        raise ValueError("the axis height splits images, but the network takes none: use the axes batch and model")


def notes(args, grid, samples, held):
    """What is legal but odd, a line each.

    grid: the ProcessGrid. samples: of a global minibatch. held: how many parameters each rank holds, if there is a pipeline.
    """
    if any(held) and (idle := [rank for rank, size in enumerate(held) if not size]):
        yield f"rank {in_short(idle)} of the pipeline has no layer with weights: name other --cuts, or fewer stages"
    workers = grid.sizes["batch"]
    if workers > samples:
        yield f"{workers - samples} of the {workers} ranks along the axis batch have no sample of the {samples} in a minibatch"
    if args.protocol != SYNC and workers == 1:
        yield f"--protocol {args.protocol} has one worker, because the axis batch has one rank: nothing is exchanged"
    if args.plan not in (None, "auto") and 1 == grid.sizes["model"] < grid.size:
        yield f"--plan {args.plan} changes nothing: it places weights along the axis model, which has one rank"
    if grid.size == 1:
        given = {
            "--shares": args.shares, "--rebalance": args.rebalance, "--reduce-dtype": args.reduce_dtype != "same",
            "--update": args.update == "sharded", "--check-replicas": args.check_replicas, "--watchdog": args.watchdog,
            "--plan": args.plan not in (None, "auto"), "--reduction": args.reduction not in ("auto", "plain"),
            "--reader": args.reader != "each",
        }  # fmt: skip
        if changes_nothing := [option for option, value in given.items() if value]:
            yield f"{', '.join(changes_nothing)}: of no effect on one rank"
