"""What is fastest on this machine: measured once, and remembered, so that a run that is repeated repeats bit by bit.

The answers lie in `reductions.json` in GRIDGRAD_CACHE, else in the user's cache directory; whoever deletes the file has them
measured anew. What a machine is called does not matter, how many ranks its nodes have does.
"""

import contextlib
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from statistics import median

import numpy as np
from mpi4py import MPI

from parallel.auto.cache_files import cache_path, write_whole
from parallel.sync.shared_memory import NoSharedMemory, SharedRun, shared_arrays

ROUNDS = 7
LARGEST = 1 << 22  # elements that are summed to find out
LATENCIES_PER_BUCKET = 10  # a bucket's bytes take this many times as long as the latency of its collective
SMALLEST_BUCKET, LARGEST_BUCKET = 1 << 8, 1 << 14  # KiB
TRANSPORT = "GRIDGRAD_LINK", "FI_", "UCX_", "OMPI_MCA_", "MPIR_CVAR_"
ANSWER = re.compile(r"plain|shared|overlap:[1-9][0-9]{0,8}")


def fastest_reduction(net, question):
    """The answer to "auto" or "overlap" for a ParallelSequential, as text for `--reduction`. Collective.

    "overlap": the size of a bucket. "auto": plain or shared on one node; shared or overlap on several. What goes on while
    backward does is not less time than what does not, so bare sums are compared.
    """
    grid = net.grid
    held = Counter()
    for layer in net.leaves():
        for p in layer.parameters:
            held[p.layout.replicated] += p.size
    largest = grid.max(np.array(list(held.values()))).tolist()  # blocks may be uneven, and all ranks must choose alike
    elements, axes = max(zip(largest, held, strict=True), key=lambda pair: (grid.group(*pair[1]).size > 1) * pair[0])
    group = grid.group(*axes)
    if group.size == 1 or not elements:
        return "plain"
    elements, several_nodes = min(elements, LARGEST), grid.spans_nodes(*axes)
    nodes = set(grid.comm.allgather((grid.node.ranks[0], grid.node.size)))
    key = " ".join([question, *map(str, MPI.get_vendor()), platform.machine(), f"{os.cpu_count()} cores",
                    f"grid {grid}", f"ranks a node {sorted(size for _, size in nodes)}", net.dtype.name,
                    f"2^{elements.bit_length()}", *transport()])  # fmt: skip
    known = grid.comm.bcast(stored_answers().get(key) if grid.rank == 0 else None)
    if known:
        return known
    answer = grid.comm.bcast(measure_fastest(grid, group, elements, net.dtype, question, several_nodes))
    if grid.rank == 0:
        store_answer(key, answer)
    return answer


def transport(environ=os.environ):
    """What the environment says of the network."""
    return sorted(f"{name}={value}" for name, value in environ.items() if name.startswith(TRANSPORT))


def measure_fastest(grid, group, elements, dtype, question, several_nodes):
    """What the times of this job say. Collective; the ranks of other groups sum at the same time, as in training."""
    array = np.ones(elements, dtype)
    sums = median_seconds(grid, lambda: group.comm.Allreduce(MPI.IN_PLACE, array))
    if question == "auto":
        with contextlib.suppress(NoSharedMemory):
            if median_seconds(grid, shared_memory_sum(grid, group, elements, dtype)) < sums:
                return "shared"
        if not several_nodes:
            return "plain"
    latency = median_seconds(grid, lambda: group.comm.Allreduce(MPI.IN_PLACE, array[:1]))
    per_byte = max(sums - latency, 1e-9) / max(array.nbytes, 1)
    kib = LATENCIES_PER_BUCKET * latency / per_byte / 1024
    return f"overlap:{round(min(max(kib, SMALLEST_BUCKET), LARGEST_BUCKET))}"


def shared_memory_sum(grid, group, elements, dtype):
    """A function that sums gradients of so many elements in the memory of the nodes, and between their leaders."""
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


def median_seconds(grid, action, rounds=ROUNDS):
    """How long an action of all ranks takes: the median of some rounds, each as long as its slowest rank."""
    found = []
    for _ in range(rounds + 1):  # the first one touches memory for the first time
        grid.comm.Barrier()
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return median(grid.max(np.array(found[1:])).tolist())


def answers_file():
    return cache_path("reductions.json")


def stored_answers():
    """The answers so far, {question and machine: answer}; none where the file is missing or is no such file."""
    try:
        answers = json.loads(answers_file().read_text())
        return {key: answer for key, answer in answers.items() if isinstance(answer, str) and ANSWER.fullmatch(answer)}
    except (OSError, ValueError, AttributeError):
        return {}


def store_answer(key, answer):
    """Keep an answer; where that is not possible, say so, for it will be measured again and may then be another."""
    try:
        write_whole(answers_file(), json.dumps(stored_answers() | {key: answer}, indent=1))
    except OSError as error:
        print(f"can not remember in {answers_file()} ({error.strerror}) that --reduction auto is {answer} here: to repeat this run "
              f"bit by bit, name it", file=sys.stderr)  # fmt: skip
