"""Section 5 of Hegde and Usmani 2016: what ParallelSGD, ShuffleSGD, ADMM SGD and Downpour SGD cost.

The paper has orders of magnitude. Beside them stands what they are for one epoch of a network on k workers: its terms without
their constants; what the protocols here send and compute, *predicted* by `parallel/performance/protocol_cost.py`; and what jobs
counted. The paper's log(1/eps) iterations of a worker are the steps of the epoch, its theta are those of all workers.
"""

import json
from math import ceil, log2, prod

from experiments.common.jobs import check_ended
from experiments.papers.eserol2019_times import nodes
from nn import network_names
from parallel.job.launch import mpiexec
from parallel.performance import machine as machines
from parallel.performance.protocol_cost import PROTOCOLS, case_of, tau, useful_workers
from parallel.protocols.ownership import greedy, single
from parallel.protocols.shuffle_sgd import DRAWN, DRAWS, STRATA

WORKERS = 2, 4, 8
SAMPLES, CLASSES, IMAGE = 60_000, 10, (28, 28, 1)  # those of MNIST
BATCH = 64  # samples in a minibatch of a worker
NET = "mnist-cnn"
LIMITS = (NET, IMAGE), ("cifar-cnn", (32, 32, 3))
SCALES = 2, 4, 8, 16, 32, 64  # workers beside a server
SPREAD = 8  # workers for which tau is given
MIB, MILLION = 2**20, 10**6
TIMEOUT = 120  # seconds of a job
SHUFFLE = "ShuffleSGD"
PAPER = {  # communication and computation, as in the paper
    SHUFFLE: ("O(Lk) + O(dk/B log k) + O(D)", "O(kd)"),
    "ParallelSGD": ("O(Lk) + O(kp/B)", "O(p/q log k) + O(p log 1/eps)"),
    "ADMM SGD": ("O(kp log 1/eps)", "O(p log k log 1/eps) + O(p log 1/eps)"),
    "Downpour SGD": ("O(theta p)", "as ADMM SGD"),
}
TITLE = (
    f"Section 5: an epoch of {SAMPLES:,} images of MNIST, sorted by label, on k workers with {NET} and minibatches of {BATCH} "
    "each. The paper's terms for communication without constants and latencies; beside them what all workers send, and the one "
    "that sends the most. ParallelSGD has one average at the end, ADMM SGD one after every step, and the single server of "
    "Downpour SGD gets gradients and sends parameters in every step. Operations: sums and updates of the rank with the most"
)
LIMIT_TITLE = (
    f"Section 5.2.1, *predicted*: with P = T/tau workers an asynchronous server is busy. Updates a second over those of one "
    f"worker, minibatches of {BATCH}; tau is that of the busiest server, for {SPREAD} workers. The server's own worker sends "
    "nothing, and so is not among those P. The machines have a rank a node"
)


def rows(counted):
    """The table of costs: a row for each algorithm and number of workers. counted: rows of `count`."""
    known = {(row["algorithm"], row["k"]): row for row in counted}
    found = []
    for algorithm, (communication, computation) in PAPER.items():
        for k in WORKERS:
            terms, total, most, messages, operations = predicted(algorithm, k)
            here = known.get((algorithm, k))
            found.append({
                "algorithm": algorithm, "k": k, "communication, paper": communication, "its terms, MiB": terms / MIB,
                "all workers, *predicted* MiB": total / MIB, "counted MiB": here and here["bytes"] / MIB,
                "busiest, *predicted* MiB": most / MIB, "busiest, counted MiB": here and here["most"] / MIB,
                "messages of the busiest, *predicted*": messages, "computation, paper": computation,
                "operations, *predicted* millions": operations / MILLION,
            })  # fmt: skip
    return found


def predicted(algorithm, k):
    """(the paper's terms in bytes, bytes of all workers, of the busiest, its messages, its operations) in an epoch."""
    if algorithm == SHUFFLE:
        return shuffle(k)
    steps = ceil(SAMPLES / (BATCH * k))
    name, options, times = {
        "ParallelSGD": ("parallel-sgd", {"every": steps}, k),
        "ADMM SGD": ("admm", {}, k * steps),
        "Downpour SGD": ("downpour", {}, k * steps),
    }[algorithm]
    case = case_of(network_names.build(NET, IMAGE, CLASSES), k, nodes(), BATCH)
    cost = PROTOCOLS[name](case, **options)
    terms = times * case.elements * case.itemsize
    return terms, k * steps * cost.bytes, steps * cost.most_bytes, steps * cost.most_messages, steps * cost.operations


def shuffle(k):
    """The same of ShuffleSGD, all samples of which move but one in k. Its messages are those of an all-to-all."""
    sample = prod(IMAGE) + 1
    terms = 2 * DRAWN.itemsize * DRAWS * k * log2(k) + SAMPLES * sample
    shared = 8 * (k - 1) * (1 + CLASSES + 1 + k)  # a rank's part in sizes, counts of the strata, and numbers of messages
    moved = SAMPLES / k * (k - 1) / k * (sample + 8)
    cuts = 8 * (k - 1) * (STRATA - 1)
    drawn = DRAWN.itemsize * DRAWS
    return terms, k * (shared + moved) + cuts + (k - 1) * drawn, shared + moved + max(cuts, drawn), k - 1, k * DRAWS


def limits():
    """Rows: T, tau and their ratio, and updates a second over those of one worker."""
    found = []
    for name, image in LIMITS:
        net = network_names.build(name, image, CLASSES)
        for machine in (machines.read("ethernet-1g"), nodes()):
            alone = PROTOCOLS["server:asp"](case_of(net, 1, machine, BATCH)).seconds
            for words, ownership in (("single", single), ("spread, greedy", greedy)):
                case = case_of(net, SPREAD, machine, BATCH, ownership)
                row = {"net": name, "machine": machine.name, "server": words}
                row |= {"T, ms": 1e3 * case.compute, "tau, ms": 1e3 * tau(case), "T/tau": useful_workers(case)}
                for k in SCALES:
                    step = PROTOCOLS["server:asp"](case_of(net, k, machine, BATCH, ownership)).seconds
                    row[f"k = {k}"] = k * alone / step
                found.append(row)
    return found


def count():
    """Run ShuffleSGD on each number of workers: rows with the bytes of all, and of the one that sends the most."""
    found = []
    for k in WORKERS:
        arguments = ["--samples", str(SAMPLES), "--classes", str(CLASSES), "--numbers", str(prod(IMAGE))]
        job = mpiexec(k, ["-m", "experiments.papers.hegde2016_shuffle_job", *arguments], TIMEOUT)
        check_ended(job, f"ShuffleSGD on {k} ranks")
        found.append({"algorithm": SHUFFLE, "k": k} | json.loads(job.stdout.splitlines()[-1]))
    return found
