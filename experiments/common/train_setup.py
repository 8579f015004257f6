"""What `train` does before its first step: complete and check the options, check files, load data, place the network."""

import hashlib
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from gridgrad import datasets
from gridgrad.datasets import augment, hold_out
from gridgrad.datasets.part import Part
from gridgrad.datasets.views import Augmented, Held, Subset
from gridgrad.experiments.common import checkpoints
from gridgrad.experiments.common.options import check_writable, shares_of, user_input
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.run_changes import Handicap
from gridgrad.nn import LOSSES, OPTIMIZERS, SoftmaxCrossEntropy, network_summary, parse_schedule
from gridgrad.nn.device import NO_TF32
from gridgrad.nn.files.whole_files import resolved
from gridgrad.parallel.calibration.this_machine import machine_of_job, memory_of_machine, memory_of_rank
from gridgrad.parallel.choose.parallelize import ALTERNATIVES, PARTITIONS
from gridgrad.parallel.choose.reductions import check_name
from gridgrad.parallel.choose.shares import measured_shares
from gridgrad.parallel.job.run import in_short, on_root
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.partitioning.good_partition import is_partition
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import AUTO, PlacementSpec, open_plan
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.training.distribute import distribute

EVALUATION_BYTES = 1 << 30
PIECE = 1 << 22  # bytes of the samples that are hashed at a time
SLOWDOWN = re.compile(r"([0-9]{1,9})=([0-9]{1,9}(\.[0-9]{1,9})?)(?:@([0-9]{1,9}))?")

# The options that belong to an optimizer, with their defaults.
DEFAULTS = {
    "sgd": {"lr": 0.02, "momentum": 0.9, "nesterov": False},
    "adam": {"lr": 0.001},
    "adamw": {"lr": 0.001, "weight_decay": 0.01},
    "adagrad": {"lr": 0.01},
    "adadelta": {"lr": 1.0},
}


NEEDS = {  # option: the one without which it says nothing
    "trace_steps": ("trace", "--trace FILE.json, the timeline that has so many steps"),
    "keep": ("checkpoint", "--checkpoint DIR, the folder of the checkpoints that it keeps"),
    "checkpoint_steps": ("checkpoint", "--checkpoint DIR, the folder to write into"),
    "checkpoint_minutes": ("checkpoint", "--checkpoint DIR, the folder to write into"),
    "core_speed": ("report", "--report FILE.json, into which it goes"),
    "patience": ("validation", "--validation FRACTION, the share of the training samples that is held out"),
}


def default_of(option):
    """The defaults of an option of the optimizers, for --help."""
    values = {name: defaults[option] for name, defaults in DEFAULTS.items() if option in defaults}
    return "default: " + ", ".join(f"{value} for {name}" for name, value in values.items())


def complete(args, ranks):
    """Set the options of the optimizer that were left out. ValueError for options that no job of so many ranks can take."""
    defaults = DEFAULTS[args.optimizer]
    for option in dict.fromkeys(option for options in DEFAULTS.values() for option in options):
        if getattr(args, option) is None:
            setattr(args, option, defaults.get(option))
        elif option not in defaults:
            raise ValueError(f"--{option.replace('_', '-')} is no option of {args.optimizer}: leave it out, or use another "
                             "--optimizer")  # fmt: skip
    if args.memory and "auto" not in (args.grid, args.plan):
        raise ValueError("--memory is for the planner: use it with --grid auto or --plan auto")
    if args.shares == "auto" and args.memory and args.grid != "auto":
        raise ValueError("--shares auto does not look at --memory, which is for the planner: leave one of them out")
    for option in ("checkpoint", "resume"):
        if getattr(args, option) == "":
            raise ValueError(f"--{option} is empty: give the name of a folder")
    check_options(args, ranks)
    slowdowns(args.handicap, ranks)
    protocol_names.parse(args.protocol)
    if args.protocol != protocol_names.SYNC:
        check_protocol(args, ranks)


def check_protocol(args, ranks):
    """ValueError for options that do not go together with workers that train apart. Their reductions are not measured."""
    if (args.grid == "auto" and ranks > 1) or "auto" in (args.plan, args.shares) or args.rebalance:
        raise ValueError("--protocol trains workers apart: name the grid, such as --grid batch=4, the plan and the shares, and "
                         "leave --rebalance out")  # fmt: skip
    if args.validation:
        raise ValueError("--validation needs one network, which only --protocol sync has at all times: leave one of them out")
    if args.reader != "each":
        raise ValueError(f"--reader {args.reader} reads one minibatch for all ranks, but workers have their own: use each")
    for word in (":shuffle", ":exchange"):
        if args.augment and word in args.protocol:
            raise ValueError(f"--augment varies samples where they are read, but {word} moves them: leave one of them out")
    if args.pipeline and args.pipeline.startswith("async"):
        raise ValueError("updates can not overlap within a worker and between workers: use a synchronous --pipeline")
    if args.reduction == "auto":
        args.reduction = "plain"


def check_options(args, ranks):
    """ValueError for options that say nothing, whatever the network and the data are."""
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
    if args.clip_norm and args.protocol.startswith(("server", "downpour")):
        raise ValueError("--clip-norm needs all gradients of a step together, which servers never have: use another --protocol")
    if args.clip_norm and args.pipeline and args.pipeline.startswith("async"):
        raise ValueError("--clip-norm needs all gradients of a step together: use a synchronous --pipeline")
    if args.micro_batches and args.micro_batches > args.batch_size:
        raise ValueError(f"--micro-batches {args.micro_batches} are more than the {args.batch_size} samples of --batch-size: "
                         "name at most as many")  # fmt: skip


def sorted_by_label(part):
    """The samples of a Part, or of a view of one, in the order of their labels, or of their first target."""
    labels = part.targets(np.arange(len(part))).reshape(len(part), -1)[:, 0]
    return Subset(part, np.argsort(labels, kind="stable"))


def samples(args, data, image_shape):
    """(the samples to train on, those that are held out or None) of a Dataset whose images had this shape."""
    train, held_out = hold_out(data.train, args.validation, args.seed) if args.validation else (data.train, None)
    if args.sorted:
        train = sorted_by_label(train)
    if args.augment is not None:
        train = Augmented(train, augment.parse(args.augment, args.seed), image_shape)
    return train, held_out


def held(protocol, part, seed):
    """The samples that this worker has: where a protocol moves them a Held, else the part itself. Collective."""
    if not (protocol.shuffles or protocol.exchanges):
        return part
    found, whole = Held(part, np.arange(len(part))), tuple(slice(0, length) for length in part.sample_shape)

    def moved(inputs, targets, indices):
        width = part.target_shape  # of values, which are scaled already
        scales = {} if targets.dtype.kind == "i" else {"y_mean": np.zeros(width), "y_std": np.ones(width)}
        found.part, found.indices = Part(inputs, targets, 0.0, 1.0, **scales, dtype=inputs.dtype), indices

    protocol.hold(lambda indices: (part.inputs(indices, whole), part.targets(indices)), len(part), seed, moved)
    return found


def slowdowns(text, ranks):
    """For each rank (factor, step): it computes `factor` times as slowly from that training step on. text: --handicap."""
    found = {}
    for word in text.split(",") if text else ():
        match = SLOWDOWN.fullmatch(word)
        if not match or int(match[1]) >= ranks or float(match[2]) < 1:
            raise ValueError(f"--handicap {text}: '{word}' is not RANK=FACTOR or RANK=FACTOR@STEP with a rank below {ranks} "
                             "and a factor of at least 1, such as 0=1.5 or 0=2@100")  # fmt: skip
        if int(match[1]) in found:
            raise ValueError(f"--handicap {text} names rank {match[1]} twice")
        found[int(match[1])] = float(match[2]), int(match[4] or 0)
    return [found.get(rank, (1.0, 0)) for rank in range(ranks)]


def handicap(args, comm):
    """The Handicap of this rank, or None."""
    return Handicap(*slowdowns(args.handicap, comm.size)[comm.rank]) if args.handicap else None


def balance(args, serial, grid, placing):
    """The Balance of several ranks, of a micro-batch, where --shares auto or --rebalance needs it; else None. Collective.
    ValueError if the network does not fit the memory."""
    if grid.size == 1 or args.shares != AUTO and not args.rebalance:
        return None
    samples = -(-args.batch_size // (args.micro_batches or 1))
    check_memory(args, serial, distribute(serial, grid, placing.plan))
    placing = replace(placing, memory=memory_of_rank(grid.comm))
    return measured_shares(serial, grid, placing, samples, machine_of_job(grid.comm), handicap(args, grid.comm))


def make_optimizer(args, net, steps):
    """The optimizer that the completed options name. steps: of the whole run, for its schedule."""
    schedule = parse_schedule(args.schedule, args.lr, steps)
    own = {option: getattr(args, option) for option in DEFAULTS[args.optimizer] if option != "lr"}
    return OPTIMIZERS[args.optimizer](net, schedule, l2=args.l2, l1=args.l1, clip_norm=args.clip_norm, **own)


def make_loss(args, data):
    """The loss that is minimised on a Dataset. ValueError for an option that it does not have."""
    if args.label_smoothing is not None and data.loss != "cross-entropy":
        raise ValueError(f"--label-smoothing is for classes, and {data.name} has values: leave it out")
    return SoftmaxCrossEntropy(args.label_smoothing or 0.0) if data.loss == "cross-entropy" else LOSSES[data.loss]()


def placement_spec(args, sizes):
    """(PlacementSpec of the options, what the planner considers beside plans along the axes). sizes: of the grid, if it is
    named."""
    shares = shares_of(args.shares, sizes) if args.shares not in (None, AUTO) else None
    moving = args.shares == AUTO or args.rebalance
    if moving and args.plan and is_partition(args.plan):
        raise ValueError("--shares auto and --rebalance do not move a partition: give --shares as numbers, or another plan")
    pipelines = Pipelines(args.pipeline, args.micro_batches, args.cuts)
    steady = not (moving or args.handicap)
    if pipelines.is_asked_for and not sizes and not steady:
        raise ValueError("--pipeline and --cuts need a grid that is named where ranks are moved or slowed down")
    memory = args.memory and args.memory * 2**30
    asked = PlacementSpec(sizes, open_plan(args.plan, sizes), shares, pipelines=pipelines, memory=memory)
    return asked, () if moving else ALTERNATIVES if steady else (PARTITIONS,)


def prepare(args):
    """What rank 0 does before any rank starts: check that the results can be written and that the data are there."""
    options = {}  # by the file that they name
    for option in ("report", "predictions", "trace"):
        if (path := getattr(args, option)) is not None:
            if not path:
                raise ValueError(f"--{option} is empty: give the name of a file")
            first = options.setdefault(resolved(path), option)
            if first != option:
                raise ValueError(f"--{first} and --{option} are the same file, {path}: give two names")
            if option == "trace" and Path(path).suffix == ".otf2":
                raise ValueError(f"--trace {path}: OTF2 archives are gone; name a .json file and open it at ui.perfetto.dev")
            check_writable(path)
    checkpoints.prepare(args.checkpoint, args.resume)
    datasets.prepare(args.dataset, args.data_dir)


def load(args, comm):
    """The data set. Where rank 0 reads for all ranks, the others get its description without the samples."""
    if args.reader == "each":
        with user_input():
            return datasets.load(args.dataset, args.data_dir, args.dtype)
    data = on_root(comm, lambda: datasets.load(args.dataset, args.data_dir, args.dtype))
    outline = comm.bcast(data and data.outline())
    return data or outline


def content_of(data, comm, alone):
    """A digest of the numbers in a Dataset, before they are standardised, wherever they lie and in whatever type. Collective.
    It hashes the hashes of pieces, which the ranks share. alone: whether rank 0 alone has the samples, and so takes all."""
    digests, number, parts = {}, 0, (data.train, data.test)
    for part in parts:
        for array, kind in ((part.x, part.input_type), (part.y, part.target_type)):
            step = max(1, PIECE // max(1, math.prod(array.shape[1:]) * kind.itemsize))
            for start in range(0, len(array), step):
                if number % (1 if alone else comm.size) == comm.rank:
                    values = np.asarray(array[np.arange(start, min(start + step, len(array)))])
                    with np.errstate(invalid="ignore"):  # of numbers that do not fit
                        small = values.astype(np.uint8)
                    canonical = small if np.array_equal(small, values) else values.astype(kind.newbyteorder("<"))
                    digests[number] = hashlib.sha256(np.ascontiguousarray(canonical)).digest()
                number += 1
    meet(comm, "the content of the data, which is compared with that of a checkpoint")
    everyone = {number: digest for found in comm.allgather(digests) for number, digest in found.items()}
    shapes = [(len(part), part.features, part.target_width) for part in parts]
    return hashlib.sha256(repr((data.loss, shapes)).encode() + b"".join(everyone[one] for one in range(number))).hexdigest()


def check_memory(args, serial, net, workers=1):
    """Raise ValueError if the arrays that this rank needs in a step do not fit into the memory of the machine."""
    sharing = net.grid.size // net.grid.sizes["model"] if net.reduction.sharded else 1
    state = len(OPTIMIZERS[args.optimizer].state_names) / sharing
    # Parameters, in a pipeline several versions of them, gradients and the state of the optimizer; with --patience the best
    # parameters so far; with micro-batches the sums of their gradients; with --reduction powersgd the error.
    under_way, versions = net.kept_at_most()
    kept = 1 + versions + state + bool(args.patience) + (net.micro_batches > 1) + net.reduction.further_buffers
    parameters = kept * net.size * net.dtype.itemsize
    outputs = sample_bytes(serial) * args.batch_size * under_way // (workers * net.grid.size * net.micro_batches)
    if parameters + outputs > memory_of_machine():
        needed, further, memory = (size / 2**30 for size in (parameters, outputs, memory_of_machine()))
        raise ValueError(f"{net.size} parameters on one rank need {needed:.0f} GiB with what belongs to them, the outputs of "
                         f"the layers {further:.0f}, and the machine has {memory:.0f}: use more ranks, a smaller net, a "
                         "smaller --batch-size or more --micro-batches")  # fmt: skip


def evaluation_batch(args, serial):
    """How many samples to evaluate at a time: a minibatch, or if that is more what fits EVALUATION_BYTES, up to 1000."""
    return max(args.batch_size, min(1000, EVALUATION_BYTES // max(1, sample_bytes(serial))))


def sample_bytes(net):
    """Bytes of the outputs of all layers for one sample."""
    return sum(row.elements for row in network_summary.rows(net, net.input_shape)) * net.dtype.itemsize


def check_batch(args, samples):
    """ValueError for a minibatch that is larger than the samples to train on."""
    if args.batch_size > samples:
        raise ValueError(f"--batch-size {args.batch_size} is larger than the data: {samples} training samples; give at most as "
                         "many")  # fmt: skip


def complete_samples(args, data):
    """Let --samples be all training samples of a Dataset if left out. ValueError for more, or fewer than a minibatch."""
    args.samples = args.samples or len(data.train)
    if args.samples > len(data.train):
        raise ValueError(f"--samples {args.samples}: there are only {len(data.train)} training samples")
    check_batch(args, args.samples)


def check_grid(sizes, net):
    """ValueError for a grid, {axis: ranks}, that splits the images of a network, a Sequential, which takes none."""
    if sizes.get("height", 1) > 1 and len(net.input_shape or ()) != 3:
        raise ValueError("the axis height splits images, but the network takes none: use the axes batch and model")


def lines(args, data, train, held_out, run, balance):
    """What is said of a run before it begins, a line each. Collective: all ranks take all lines."""
    net, grid, memory, devices = run.net, run.grid, run.memory, run.devices or []
    held = f"{len(held_out)} held out, " if held_out else ""
    yield f"{data.name}{' (synthetic)' * data.synthetic}: {len(train)} training samples, {held}{len(data.test)} to test"
    if data.note:
        yield data.note
    yield f"{args.net} on {grid} ({counted(grid.size, 'rank')}), this rank holds {net.size} parameters:\n{net}"
    if args.shares == AUTO:
        yield "\n".join(balance.lines()) if balance else "one rank shares nothing"
    if set(devices) - {"cpu"}:
        several = (f"{name} on {devices.count(name)} of {len(devices)} ranks" for name in dict.fromkeys(devices))
        yield f"devices: {', '.join(several)}"
    if net.pipeline:
        yield f"pipeline {net.pipeline}, {net.micro_batches} micro-batches a step"
    for note in notes(args, grid, args.batch_size, grid.comm.allgather(net.size) if net.pipeline else []):
        yield f"note: {note}"
    state, unsharded = (memory[name] / 2**20 for name in ("optimizer_state", "optimizer_state_unsharded"))
    less = f" instead of {unsharded:.2f}" if state < unsharded else ""
    yield f"reduction {net.reduction}; the optimizer's state takes {state:.2f} MiB a rank{less}"
    if run.workers.size > 1:
        yield f"protocol {args.protocol}, {run.workers.size} workers"


def notes(args, grid, samples, held):
    """What is legal but odd, a line each. held: how many parameters each rank holds, if there is a pipeline."""
    if any(held) and (idle := [rank for rank, size in enumerate(held) if not size]):
        yield f"rank {in_short(idle)} of the pipeline has no layer with weights: name other --cuts, or fewer stages"
    workers = grid.sizes["batch"]
    if workers > samples:
        yield f"{workers - samples} of the {workers} ranks along the axis batch have no sample of the {samples} in a minibatch"
    if args.protocol != protocol_names.SYNC and workers == 1:
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
