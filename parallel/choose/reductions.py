"""Which reduction sums the gradients: the one that a text such as the value of `--reduction` names, or the fastest one here.
What is fastest is measured once, in `SECONDS` at the most or one turn, and stored, so that a repeated run repeats bit by bit.
So that two measurements agree, "plain" is preferred unless another way is clearly faster, and sizes of buckets are powers of
two. An answer is valid for jobs that agree in the machine, the grid, the gradients and the settings of the network."""

import contextlib
import json
import re
from collections import Counter
from math import inf, log2

import numpy as np
from mpi4py import MPI

from gridgrad.nn.measured import answer_file, timed
from gridgrad.parallel.calibration.timing import TimeLimit, measured_once, processors_and_links, slowest_in_turns
from gridgrad.parallel.sync.overlapped import OverlappedReduction
from gridgrad.parallel.sync.power_sgd import PowerSGDReduction
from gridgrad.parallel.sync.reduction import SHARDED, WHOLE, BlockingReduction
from gridgrad.parallel.sync.shared_memory import NoSharedMemory, SharedMemoryReduction, SharedRun, has_room, shared_arrays

NAMES = r"auto|plain|shared|overlap|(overlap|powersgd):[1-9][0-9]{0,8}"
ROUNDS, SECONDS = 7, 0.5  # how often each way to sum is timed, and after how many seconds no longer
MARGIN = 1.1  # the least by which another way has to be faster than "plain"
LARGEST = 1 << 22  # the most elements that are summed in a measurement
LATENCIES_PER_BUCKET = 10  # sending a bucket takes this many times as long as the latency of its collective
SMALLEST_BUCKET, LARGEST_BUCKET = 8, 14  # the logarithms of their sizes in KiB, of base 2
ANSWER = re.compile(r'"(plain|shared|overlap:[1-9][0-9]{0,8})"')  # as JSON


def check_name(text):
    """Raise ValueError if no reduction has this name."""
    if not re.fullmatch(NAMES, str(text)):
        raise ValueError(f"there is no reduction '{text}': use plain, overlap, overlap:KIB (such as overlap:1024), shared, "
                         "powersgd:R (such as powersgd:2) or auto")  # fmt: skip


def named_reduction(net, reduction="auto", update=None, reduce_dtype="same"):
    """The Reduction of a checked name for a ParallelSequential. Collective. ValueError if it can not be used there."""
    if reduction == "auto" and (not net.grid.on_cpus or net.pipeline):
        reduction = "plain"
    if reduction in ("auto", "overlap"):
        question = "overlap" if reduce_dtype == "float16" else reduction
        reduction = fastest_reduction(net, question)
        if question == "auto" and reduction == "shared" and not has_room(net):
            reduction = fastest_reduction(net, "overlap") if net.grid.node.size < net.grid.size else "plain"
    kind, _, number = reduction.partition(":")
    update = update or (SHARDED if kind == "shared" else WHOLE)
    if kind == "overlap":
        return OverlappedReduction(net, update, reduce_dtype, int(number))
    if kind == "plain":
        return BlockingReduction(net, update, reduce_dtype)
    if kind == "powersgd":
        return PowerSGDReduction(net, int(number), update, reduce_dtype)
    if net.pipeline:  # only shared is left
        raise ValueError("the reduction shared makes all ranks of a node wait for each other, which ranks of a pipeline do "
                         "not: use plain or overlap")  # fmt: skip
    return SharedMemoryReduction(net, update, reduce_dtype)


def fastest_reduction(net, question):
    """The reduction for a ParallelSequential, as a text: plain, shared or overlap:KIB. Collective. question: "overlap" for the
    size of the buckets; "auto" for the fastest way, of plain and shared on one node, of shared and overlap on several."""
    grid, held = net.grid, Counter()
    for layer in net.leaves():
        for p in layer.parameters:
            held[p.layout.summed] += p.size
    largest = grid.max(np.array(list(held.values()))).tolist()  # blocks may be uneven, and all ranks must choose the same group
    elements, axes = max(zip(largest, held, strict=True), key=lambda pair: (grid.group(*pair[1]).size > 1) * pair[0])
    group, elements = grid.group(*axes), min(elements, LARGEST)
    if group.size == 1 or not elements:
        return "plain"
    nodes = sorted(size for _, size in set(grid.comm.allgather((grid.node.ranks[0], grid.node.size))))
    path = answer_file(f"reduction-{question}-{grid}", nodes, net.dtype.name, elements.bit_length(), *processors_and_links())

    def read(text):
        if not ANSWER.fullmatch(text.decode()):
            raise ValueError("it is no answer")
        return text.decode()

    def measure():
        # The other groups of the grid sum at the same time. Nothing is computed beside the sums: one that overlaps with
        # backward takes no less of the cores' time.
        array = np.ones(elements, net.dtype)
        ways = {"plain": lambda: group.comm.Allreduce(MPI.IN_PLACE, array)}
        ways["latency"] = lambda: group.comm.Allreduce(MPI.IN_PLACE, array[:1])
        if question == "auto":
            with contextlib.suppress(NoSharedMemory):
                ways["shared"] = shared_memory_sum(grid, group, elements, net.dtype)
        turns = slowest_in_turns(grid.comm, [*map(timed, ways.values())], TimeLimit(grid.comm, SECONDS), ROUNDS)
        seconds = dict(zip(ways, turns.min(axis=0).tolist()))
        return json.dumps(fastest(seconds, question, grid.spans_nodes(*axes), array.nbytes))

    def without(answer):
        return f"this run uses --reduction {json.loads(answer)}; name it to repeat the run bit by bit"

    return json.loads(measured_once(grid.comm, path, read, measure, without))


def fastest(seconds, question, several_nodes, nbytes):
    """The answer for `fastest_reduction`. seconds: {"plain", "latency" or "shared": of so many bytes}."""
    if MARGIN * seconds.get("shared", inf) < seconds["plain"]:
        return "shared"
    if question == "auto" and not several_nodes:
        return "plain"
    per_byte = max(seconds["plain"] - seconds["latency"], 1e-9) / max(nbytes, 1)
    kib = LATENCIES_PER_BUCKET * seconds["latency"] / per_byte / 1024
    return f"overlap:{1 << min(max(round(log2(kib)), SMALLEST_BUCKET), LARGEST_BUCKET)}"


def shared_memory_sum(grid, group, elements, dtype):
    """A function that sums `elements` gradients over `group` as SharedMemoryReduction does. Collective."""
    arrays = shared_arrays(grid.node.comm, elements, dtype, grid.comm)
    members = grid.on_node(group)
    run, leaders = SharedRun([arrays[m] for m in members], members.index(grid.node.rank)), grid.leaders(group)

    def add_up():
        grid.node.comm.Barrier()
        run.add_up_part(run.others)
        grid.node.comm.Barrier()
        if leaders:
            leaders.comm.Allreduce(MPI.IN_PLACE, run.gradients[0])
        grid.node.comm.Barrier()

    return add_up
