"""What `train` does before it builds its network: complete and check the options, check the files, and load the data."""

import hashlib
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.datasets.part import Hollow, Part
from gridgrad.datasets.views import Held, Subset
from gridgrad.experiments.common.meaning import check_options
from gridgrad.experiments.common.options import check_writable, shares_of, user_input
from gridgrad.nn import OPTIMIZERS, network_summary
from gridgrad.nn.files.whole_files import resolved
from gridgrad.nn.optimizers import parse_schedule
from gridgrad.parallel.calibration.this_machine import machine_of_job, memory_of_machine, memory_of_rank
from gridgrad.parallel.choose.parallelize import ALTERNATIVES, PARTITIONS
from gridgrad.parallel.choose.shares import measured_shares
from gridgrad.parallel.job.run import on_root
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.partitioning.good_partition import is_partition
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import AUTO, PlacementSpec, open_plan
from gridgrad.parallel.protocols.protocol_names import SYNC
from gridgrad.parallel.training.distribute import distribute

EVALUATION_BYTES = 1 << 30
PIECE = 1 << 22  # bytes of the samples that are hashed at a time
SLOWDOWN = re.compile(r"([0-9]{1,9})=([0-9]{1,9}(\.[0-9]{1,9})?)(?:@([0-9]{1,9}))?")

# The options that belong to an optimizer, with their defaults.
DEFAULTS = {
    "sgd": {"lr": 0.02, "momentum": 0.9, "nesterov": False},
    "adam": {"lr": 0.001},
    "adagrad": {"lr": 0.01},
    "adadelta": {"lr": 1.0},
}


def default_of(option):
    """The default of an option of the optimizers, in words for --help."""
    values = {name: defaults[option] for name, defaults in DEFAULTS.items() if option in defaults}
    return "default: " + ", ".join(f"{value} for {name}" for name, value in values.items())


def complete(args, ranks):
    """Set the options that were left out to the defaults of the optimizer.

    ValueError for options that contradict each other.
    """
    defaults = DEFAULTS[args.optimizer]
    for option in {option: None for options in DEFAULTS.values() for option in options}:
        if getattr(args, option) is None:
            setattr(args, option, defaults.get(option))
        elif option not in defaults:
            raise ValueError(f"--{option} is no option of {args.optimizer}: leave it out, or use another --optimizer")
    if args.memory and "auto" not in (args.grid, args.plan):
        raise ValueError("--memory is for the planner: use it with --grid auto or --plan auto")
    if args.shares == "auto" and args.memory and args.grid != "auto":
        raise ValueError("--shares auto does not look at --memory, which is for the planner: leave one of them out")
    check_options(args, ranks)


def check_protocol(args, ranks):
    """ValueError for options that do not go together with workers that train apart. Their reductions are not measured."""
    if args.protocol == SYNC:
        return
    if (args.grid == "auto" and ranks > 1) or "auto" in (args.plan, args.shares) or args.rebalance:
        raise ValueError("--protocol trains workers apart: name the grid, such as --grid batch=4, the plan and the shares, and "
                         "leave --rebalance out")  # fmt: skip
    if args.validation:
        raise ValueError("--validation needs one network, which only --protocol sync has at all times: leave one of them out")
    if args.reader != "each":
        raise ValueError(f"--reader {args.reader} reads one minibatch for all ranks, but workers have their own: use each")
    if args.augment and ":shuffle" in args.protocol:
        raise ValueError("--augment varies samples where they are read, but :shuffle moves them first: leave one of them out")
    if args.augment and ":exchange" in args.protocol:
        raise ValueError("--augment varies samples where they are read, but :exchange moves them: leave one of them out")
    if args.pipeline and args.pipeline.startswith("async"):
        raise ValueError("updates can not overlap within a worker and between workers: use a synchronous --pipeline")
    if args.reduction == "auto":
        args.reduction = "plain"


def sorted_by_label(part):
    """The samples of a Part, or of a view of one, in the order of their labels, or of their first target."""
    labels = part.targets(np.arange(len(part))).reshape(len(part), -1)[:, 0]
    return Subset(part, np.argsort(labels, kind="stable"))


def held(protocol, part, seed):
    """The samples that this worker has where a protocol moves them, a Held; each begins with a stripe of them. Collective.

    After ShuffleSGD they stay; where halves are exchanged, the Held has others in each epoch.
    """
    found, whole = Held(part, np.arange(len(part))), tuple(slice(0, length) for length in part.sample_shape)

    def moved(*samples):
        found.part, found.indices = part_of(part, *samples), samples[-1]

    protocol.hold(lambda indices: (part.inputs(indices, whole), part.targets(indices)), len(part), seed, moved)
    return found


def part_of(part, inputs, targets, indices):
    """A Part of these samples of another one, which are scaled already. indices: their numbers there."""
    width = part.target_shape
    scales = {} if targets.dtype.kind == "i" else {"y_mean": np.zeros(width), "y_std": np.ones(width)}  # as they are
    return Part(inputs, targets, 0.0, 1.0, **scales, dtype=inputs.dtype)


def slowdowns(text, ranks):
    """For each rank (factor, step): it computes `factor` times as slowly from that training step on.

    text: the value of --handicap. ValueError if it does not fit.
    """
    found = {}
    for word in text.split(",") if text else ():
        match = SLOWDOWN.fullmatch(word)
        if not match or int(match[1]) >= ranks or float(match[2]) < 1:
            raise ValueError(
                f"--handicap {text}: '{word}' is not RANK=FACTOR or RANK=FACTOR@STEP with a rank below {ranks} and a factor of "
                "at least 1, such as 0=1.5 or 0=2@100"
            )
        if int(match[1]) in found:
            raise ValueError(f"--handicap {text} names rank {match[1]} twice")
        found[int(match[1])] = float(match[2]), int(match[4] or 0)
    return [found.get(rank, (1.0, 0)) for rank in range(ranks)]


def balance(args, serial, grid, placing, handicap):
    """The Balance of the ranks where --shares auto or --rebalance needs it, and there are several; else None. Collective.

    With micro-batches it is that of a micro-batch, which all of them have. ValueError if the network does not fit the memory.

    grid: a ProcessGrid. placing: the PlacementSpec for it. handicap: the Handicap of this rank or None.
    """
    if grid.size == 1 or args.shares != AUTO and not args.rebalance:
        return None
    samples = -(-args.batch_size // (args.micro_batches or 1))
    check_memory(args, serial, distribute(serial, grid, placing.plan))
    placing = replace(placing, memory=memory_of_rank(grid.comm))
    return measured_shares(serial, grid, placing, samples, machine_of_job(grid.comm), handicap)


def in_words(proposal):
    """A line about an entry of the log of a Rebalancer."""
    slowness = ", ".join(f"{factor:.2f}" for factor in proposal["slowness"])
    changes = [f"{name}: {shares} -> {proposal['proposed'][name]}" for name, shares in proposal["shares"].items()]
    did = f"adopted in {proposal['took']:.3g} s" if proposal["adopted"] else "not adopted"
    line = f"step {proposal['step']}: slowness of the ranks {slowness}; {'; '.join(changes)}: {did}, {proposal['reason']}"
    return "\n".join([line, *(proposal["left_out"] if proposal["adopted"] else ())])


def make_optimizer(args, net, steps):
    """The optimizer that the completed options name. steps: of the whole run, for its schedule."""
    schedule = parse_schedule(args.schedule, args.lr, steps)
    own = {option: getattr(args, option) for option in DEFAULTS[args.optimizer] if option != "lr"}
    return OPTIMIZERS[args.optimizer](net, schedule, l2=args.l2, l1=args.l1, **own)


def placement_spec(args, sizes):
    """(PlacementSpec of the options, what the planner considers beside plans along the axes: see `completed`).

    sizes: of the grid, None if the planner chooses it. ValueError for options that do not go together.
    """
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
    datasets.prepare(args.dataset, args.data_dir)


def load(args, comm):
    """The data set. Where rank 0 reads for all ranks, the others get its description without the samples."""
    if args.reader == "each":
        with user_input():
            return datasets.load(args.dataset, args.data_dir, args.dtype)
    data = on_root(comm, lambda: datasets.load(args.dataset, args.data_dir, args.dtype))
    outline = comm.bcast(data and data.outline())
    return data or outline


def content_of(data, comm):
    """A digest of the numbers in a Dataset, before they are standardised, wherever they lie and in whatever type. Collective.

    It is a hash of the hashes of pieces of fixed sizes. The ranks share them, or rank 0 has all if it alone has the samples.
    """
    digests, number, parts = {}, 0, (data.train, data.test)
    alone = comm.allreduce(any(isinstance(part.x, Hollow) for part in parts), MPI.LOR)
    for part in parts:
        for array, kind in ((part.x, part.input_type), (part.y, part.target_type)):
            step = max(1, PIECE // max(1, math.prod(array.shape[1:]) * kind.itemsize))
            for start in range(0, len(array), step):
                if number % (1 if alone else comm.size) == comm.rank:
                    rows = np.arange(start, min(start + step, len(array)))
                    digests[number] = hashlib.sha256(canonical(np.asarray(array[rows]), kind)).digest()
                number += 1
    meet(comm, "the content of the data, which is compared with that of a checkpoint")
    everyone = {number: digest for found in comm.allgather(digests) for number, digest in found.items()}
    shapes = [(len(part), part.features, part.target_width) for part in parts]
    return hashlib.sha256(repr((data.loss, shapes)).encode() + b"".join(everyone[one] for one in range(number))).hexdigest()


def canonical(values, kind):
    """An array as contiguous bytes where all numbers fit them, and else in a type."""
    with np.errstate(invalid="ignore"):  # of numbers that do not fit
        small = values.astype(np.uint8)
    return np.ascontiguousarray(small if np.array_equal(small, values) else values.astype(kind.newbyteorder("<")))


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
        raise ValueError(
            f"{net.size} parameters on one rank need {parameters / 2**30:.0f} GiB with what belongs to them, the outputs of "
            f"the layers {outputs / 2**30:.0f}, and the machine has {memory_of_machine() / 2**30:.0f}: use more ranks, "
            f"a smaller net, a smaller --batch-size or more --micro-batches"
        )


def evaluation_batch(args, serial):
    """How many samples to evaluate at a time: a minibatch, or if that is more what fits EVALUATION_BYTES, up to 1000."""
    return max(args.batch_size, min(1000, EVALUATION_BYTES // max(1, sample_bytes(serial))))


def sample_bytes(net):
    """Bytes of the outputs of all layers for one sample."""
    return sum(row.elements for row in network_summary.rows(net, net.input_shape)) * net.dtype.itemsize
