"""Section 5 of Hegde and Usmani 2016: what ParallelSGD, ShuffleSGD, ADMM SGD and Downpour SGD cost.

The paper has orders of magnitude, and no numbers. Beside them stands what they are for one epoch of a network on k workers: its
terms without their constants, with the sizes of our network and of MNIST for its letters, and what the protocols here send and
compute, by `experiments/papers/hegde2016/protocol_cost.py`, both *predicted*; and what jobs of `count_job.py` counted. The
paper's log(1/eps) iterations of a worker are the steps of the epoch, its theta are those of all workers.
"""

from dataclasses import dataclass
from math import ceil, log2, prod

from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.launching.start_ranks import mpiexec, printed_json
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.hegde2016.protocol_cost import case_of, cost, tau, useful_workers
from gridgrad.experiments.papers.whole_nodes import whole_nodes
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.collectives import rounded_up_log2
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.protocols.parallel_sgd import ARRAYS, DRAWN, DRAWS, STRATA, pairs
from gridgrad.parallel.protocols.server import greedy, single
from gridgrad.parallel.protocols.workers import NUMBERS

WORKERS = 2, 4, 8
SAMPLES, CLASSES, IMAGE = 60_000, 10, (28, 28, 1)  # those of MNIST
SAMPLE = prod(IMAGE) + 1  # bytes, with the label
BATCH = 64  # samples in a minibatch of a worker
NET = "mnist-cnn"
LIMITS = (NET, IMAGE), ("cifar-cnn", (32, 32, 3))
SCALES = 2, 4, 8, 16, 32, 64  # workers beside a server
SPREAD = 8  # workers for which tau is given
MIB, MILLION = 2**20, 10**6
TIMEOUT = 600  # seconds of a job
SHUFFLE, EXCHANGE, PARALLEL, ADMM, DOWNPOUR = "ShuffleSGD", "exchange of halves", "ParallelSGD", "ADMM SGD", "Downpour SGD"
PAPER = {line["algorithm"]: line for line in published("hegde2016").tables["costs"].lines()}
TERMS = {  # of what is sent: words, and functions of what `setting` returns
    SHUFFLE: (
        "D + 2 d k log2 k in MiB: the samples, and d drawn ones to the first worker and back",
        lambda s: (s["D"] + 2 * s["d"] * s["k"] * log2(s["k"])) / MIB,
    ),
    EXCHANGE: ("k N = D in MiB, of one round", lambda s: s["D"] / MIB),
    PARALLEL: ("k p in MiB", lambda s: s["k"] * s["p"] / MIB),
    ADMM: ("k p log(1/eps) in MiB; log(1/eps) are the steps of a worker", lambda s: s["k"] * s["p"] * s["steps"] / MIB),
    DOWNPOUR: ("theta p in MiB; theta are the steps of all workers", lambda s: s["k"] * s["steps"] * s["p"] / MIB),
}  # fmt: skip
WORK = {  # of what is computed
    SHUFFLE: ("k d in millions", lambda s: s["k"] * DRAWS / MILLION),
    PARALLEL: (
        "p log2 k + p log(1/eps) in millions, on one processor (q = 1)",
        lambda s: s["elements"] * (log2(s["k"]) + s["steps"]) / MILLION,
    ),
    ADMM: (
        "(p log2 k + p) log(1/eps) in millions",
        lambda s: s["elements"] * (log2(s["k"]) + 1) * s["steps"] / MILLION,
    ),
    DOWNPOUR: (
        "(p log2 k + p) log(1/eps) in millions, as ADMM SGD",
        lambda s: s["elements"] * (log2(s["k"]) + 1) * s["steps"] / MILLION,
    ),
}  # fmt: skip
TITLE = (
    f"Section 5: what is sent in an epoch of {SAMPLES:,} images of MNIST, sorted by label, on k workers with {NET} and "
    f"minibatches of {BATCH} each. The paper's terms for communication, with these sizes and without constants and latencies, "
    "beside what all workers send, and the most that one does. ParallelSGD has one average at the end, ADMM SGD one after each "
    "step, and the single server of Downpour SGD gets gradients and sends parameters in every step. In an exchange of halves "
    "pairs of workers exchange half of their samples, once. A collective counts as the messages that follow one another. Not "
    f"predicted, but counted: the {8 * NUMBERS} bytes in front of each message of Downpour SGD; that at its end each worker "
    "tells all others that it is done, and gets the parameters once more; and at the end of the last three algorithms one sum "
    "of the workers' numbers of samples, of 8 bytes, with which running statistics would be weighted. In ShuffleSGD all "
    "samples but one in k of each worker are predicted to move, which may be no whole number"
)
COMPUTATION_TITLE = (
    "Section 5: what the rank with the most computes in this epoch besides gradients: the updates of parameters, and sums. "
    "Counted are the operations of NumPy's functions, and for an all-reduce half as many additions as a rank sends numbers. "
    "The gradients were zeros, and the workers met after each step, as if all computed equally fast. What ShuffleSGD computes, "
    "which is a merge of sorted lists, is not counted"
)
LIMIT_TITLE = (
    f"Section 5.2.1, *predicted*: with P = T/tau workers an asynchronous server is busy. Updates a second over those of one "
    f"worker, minibatches of {BATCH}; tau is that of the busiest server, for {SPREAD} workers. The server's own worker sends "
    "nothing, and so is not among those P. The machines have a rank a node. On the ranks of a job the limit is "
    "measured and simulated: [results](../servers.md)"
)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of the paper that is an update protocol here.

    text: names the protocol, as for `--protocol`. name, values: what `cost` is called with. steps: of an epoch.
    """

    text: str
    name: str
    values: dict
    steps: int


def algorithms(samples, k):
    """{name: Algorithm} on k workers."""
    steps = ceil(samples / (BATCH * k))
    return {
        PARALLEL: Algorithm("parallel-sgd", "parallel-sgd", {"period": steps}, steps),
        ADMM: Algorithm("admm:1", "admm", {}, steps),
        DOWNPOUR: Algorithm("downpour:1:1:single", "downpour", {}, steps),
    }


def rows(counted):
    """The table of what is sent: a row for each algorithm and number of workers. counted: what `count` returned for each k."""
    found = []
    for algorithm, k, (total, most, messages, _), here in predicted_and_counted(counted):
        found.append({
            "algorithm": algorithm, "k": k, "communication, paper": PAPER[algorithm]["communication"],
            "its terms, *predicted* MiB": terms(algorithm, k),
            "all workers, *predicted* MiB": total / MIB, "counted MiB": here and here["bytes"] / MIB,
            "counted/*predicted*": here and here["bytes"] / total,
            "busiest, *predicted* MiB": most / MIB, "busiest, counted MiB": here and here["most_bytes"] / MIB,
            "busiest, counted/*predicted*": here and here["most_bytes"] / most,
            "its messages, *predicted*": messages, "its messages, counted": here and here["most_messages"],
        })  # fmt: skip
    return found


def computations(counted):
    """The table of what is computed beside the gradients: a row for each algorithm and number of workers."""
    found = []
    for algorithm, k, (*_, operations), here in predicted_and_counted(counted):
        if algorithm not in WORK:
            continue
        done = here and here.get("most_operations")
        found.append({
            "algorithm": algorithm, "k": k, "computation, paper": PAPER[algorithm]["computation"],
            "its terms, *predicted* millions": work(algorithm, k),
            "operations, *predicted* millions": operations / MILLION, "counted millions": done and done / MILLION,
            "counted/*predicted*": done and done / operations,
        })  # fmt: skip
    return found


def predicted_and_counted(counted):
    """(algorithm, k, what `predicted` returns, the row that was counted or None) of all rows of a table."""
    known = {(row["algorithm"], row["k"]): row for row in counted}
    return [(name, k, predicted(name, k), known.get((name, k))) for name in PAPER for k in WORKERS]


def setting(k):
    """What the paper's letters stand for here, on k workers: D, d and p are in bytes; also the elements of p, and steps."""
    elements = network_names.build(NET, IMAGE, CLASSES).size
    return {
        "k": k, "D": SAMPLES * SAMPLE, "d": DRAWS * DRAWN.itemsize, "p": 4 * elements, "elements": elements,
        "steps": ceil(SAMPLES / (BATCH * k)),
    }  # fmt: skip


def terms(algorithm, k):
    """What the paper's terms for the communication of an algorithm are for the network here on k workers, in MiB: predicted."""
    return TERMS[algorithm][1](setting(k))


def work(algorithm, k):
    """What its terms for the computation are, in millions of operations; None where it has none."""
    return WORK[algorithm][1](setting(k)) if algorithm in WORK else None


def predicted(algorithm, k):
    """(bytes of all workers, of the busiest, the most messages, operations) in an epoch."""
    if algorithm in (SHUFFLE, EXCHANGE):
        return shuffle(k) if algorithm == SHUFFLE else exchange(k)
    ours = algorithms(SAMPLES, k)[algorithm]
    case = case_of(network_names.build(NET, IMAGE, CLASSES), k, whole_nodes(), BATCH)
    found, steps = cost(case, ours.name, **ours.values), ours.steps
    return k * steps * found.bytes, steps * found.most_bytes, steps * found.most_messages, steps * found.operations


def shuffle(k):
    """The same of ShuffleSGD, all samples of which move but one in k. Its messages are those of eight collectives."""
    shared = 8 * (k - 1) * (1 + CLASSES + 1 + k)  # a rank's part in sizes, counts of the strata, and numbers of messages
    moved = SAMPLES / k * (k - 1) / k * (SAMPLE + 8)
    cuts = 8 * (k - 1) * (STRATA - 1)
    drawn = DRAWN.itemsize * DRAWS
    messages = 8 * rounded_up_log2(k)
    return k * (shared + moved) + cuts + (k - 1) * drawn, shared + moved + max(cuts, drawn), messages, k * DRAWS


def distribution(k):
    """The bytes of all workers in ShuffleSGD that are not samples: what is sent to find the distribution of the labels."""
    return shuffle(k)[0] - SAMPLES * (k - 1) / k * (SAMPLE + 8)


def exchange(k):
    """The same of one round in which pairs of workers exchange half of their samples, with their indices."""
    sizes = Partition.even(SAMPLES, k).sizes
    moved = {pair: min(sizes[worker] for worker in pair) // 2 for pair in pairs(k, seed=0, round=1)}
    sample = SAMPLE + 8
    shared, sent = 8 * (k - 1), [count * sample for count in moved.values()]  # all learn how many samples each has
    return k * shared + 2 * sum(sent), shared + max(sent), rounded_up_log2(k) + ARRAYS, 0


def limits():
    """Rows: T, tau and their ratio, and updates a second over those of one worker."""
    found = []
    for name, image in LIMITS:
        net = network_names.build(name, image, CLASSES)
        for machine in (machines.read("ethernet-1g"), whole_nodes()):
            alone = cost(case_of(net, 1, machine, BATCH), "server:asp").seconds
            for words, ownership in (("single", single), ("spread, greedy", greedy)):
                case = case_of(net, SPREAD, machine, BATCH, ownership)
                row = {"net": name, "machine": machine.name, "server": words}
                row |= {"T, ms": 1e3 * case.compute, "tau, ms": 1e3 * tau(case), "T/tau": useful_workers(case)}
                for k in SCALES:
                    step = cost(case_of(net, k, machine, BATCH, ownership), "server:asp").seconds
                    row[f"k = {k}"] = k * alone / step
                found.append(row)
    return found


def count(k):
    """Run all algorithms on k workers: rows as `papers.hegde2016.count_job` prints them."""
    words = [*as_module("papers.hegde2016.count_job"), "--samples", str(SAMPLES)]
    return printed_json(mpiexec(k, words, TIMEOUT), f"papers.hegde2016.count_job on {k} ranks")
