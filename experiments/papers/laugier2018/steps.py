"""Laugier et al. 2018: the seconds of a training step under assumptions on their machine and on their code. All is predicted.

The pieces are those of the cost model: the operations of the rank with the most work (`parallel/prediction/cost.py`) and the
collectives of Algorithms 1 to 3, priced with the constants of the machine file `cori-haswell`. What is assumed beyond them is
named in `ASSUMPTIONS`, each with its source. The first option of each is what the cost model takes.
"""

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product

import numpy as np

from gridgrad.experiments.common.problems import published as network_of
from gridgrad.parallel.grid.collectives import all_reduce_elements, rounded_up_log2
from gridgrad.parallel.grid.process_grid import AXES, GridDescription
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

MACHINE, RANKS, BATCH_SIZE = "cori-haswell", 32, 100
SHAPE, OUTPUTS, HIDDEN = [16], 2, 3  # ethylene; the paper does not say how many hidden layers there are: three are our choice
PLAN = "laugier"
ITEMSIZE = {"float64": 8, "float32": 4}
COPIES = 2e9  # bytes a second of pickling, and of unpickling
# These two are fitted to the logs of the paper's code on 1 and 4 processes (results/laugier2018/search.md):
OF_LIST = 55e-9  # seconds a number that becomes a float of a Python list, or is read from one
OF_LAYER = 2.5e-4  # seconds a layer, forward or backward, that the interpreter takes


@dataclass(frozen=True)
class Assumption:
    """options: of which the first is what the cost model takes. source: why others are thought of."""

    name: str
    options: tuple
    source: str


ALL_CORES, GATHERED, PICKLED, LISTS, PRINTED = "all cores", "gather and broadcast", "pickled", "Python lists", "as printed"
FROM_FIRST, INTEGRATED, NARROW = "from rank 0", "the integrated one for all", "a whole layer is 1/model ranks as wide"
LAYERS, NUMBERS, NODE, THREADS, PEAK = "hidden layers", "numbers", "ranks on a node", "BLAS threads", "share of peak"
SUMS, MESSAGES, PYTHON, MINIBATCH = "sums", "messages", "Python, s a layer", "minibatch"
PROGRAM, ALGORITHM, NETWORK = "program", "algorithm", "network"
ASSUMPTIONS = (
    Assumption(LAYERS, (3, 1, 2, 4, 8), "the paper says nothing; the logs of its code are of one hidden layer"),
    Assumption(NUMBERS, ("float64", "float32"), "float64 is what NumPy takes if nothing else is said"),
    Assumption(NODE, (32, 16, 8, 4, 2, 1), "the paper says nothing; a node of Cori has 32 cores, the paper's job scripts start "
               "one rank on each"),
    Assumption(THREADS, ("one a rank", ALL_CORES), "a BLAS library takes all cores of a node if nothing else is said; the "
               "ranks of a node share them evenly"),
    Assumption(PEAK, (1.0, 0.1, 0.01), "a NumPy without an optimised BLAS library multiplies at a few per cent of the peak"),
    Assumption(SUMS, ("all-reduce", GATHERED), "sums at rank 0 are a usual first implementation"),
    Assumption(MESSAGES, ("buffers", PICKLED, LISTS), "mpi4py's methods in lower case pickle arrays, here at 2 GB/s, and sum "
               "in a tree; the paper's code turns arrays into Python lists, and back, at 55 ns a number by its logs"),
    Assumption(PYTHON, (0.0, OF_LAYER, 1e-3), "seconds that the interpreter takes for each layer, forward and backward; "
               "0.00025 by the logs"),
    Assumption(MINIBATCH, ("on all ranks", FROM_FIRST), "Algorithms 1 and 3 scatter each minibatch from rank 0"),
    Assumption(PROGRAM, ("one for each scheme", INTEGRATED), "the logs of all grids, that of one rank included, are of the "
               "integrated program, which packs messages also where an axis has one rank"),
    Assumption(ALGORITHM, ("no sum that nobody needs", PRINTED), "Algorithms 2 and 3 also sum the gradient of the network's "
               "inputs, and Algorithm 3 sums the weights' gradients layer by layer"),
    Assumption(NETWORK, ("whole", NARROW), "in some logs of the paper's code the network gets narrower as model ranks grow"),
)  # fmt: skip
BASE = {one.name: one.options[0] for one in ASSUMPTIONS}
AS_LOGGED = BASE | {  # what the paper's code and its logs show
    LAYERS: 1, NODE: 1, MESSAGES: LISTS, PYTHON: OF_LAYER, MINIBATCH: FROM_FIRST, PROGRAM: INTEGRATED, ALGORITHM: PRINTED,
}  # fmt: skip
CHOICES = {  # what is predicted wherever the paper leaves out what decides
    "all ranks on one node": BASE, "one rank a node": BASE | {NODE: 1}, "with the settings of the paper's code": AS_LOGGED,
}  # fmt: skip


def widths_of(width, hidden, model=1, network=BASE[NETWORK]):
    """The numbers of features from the inputs to the outputs. model: ranks, by which a network that is NARROW is divided."""
    return [SHAPE[0], *[max(1, width // model if network == NARROW else width)] * hidden, OUTPUTS]


def network(width, dtype, hidden=HIDDEN, outputs=OUTPUTS, shape=tuple(SHAPE)):
    """The network of the paper for a model size."""
    return network_of(f"mlp:{','.join([str(width)] * hidden)},relu", list(shape), outputs, dtype)


@lru_cache
def machine_of(node=RANKS, cores=1, share=1.0):
    """Cori with so many ranks on a node, and for its products so many cores a rank at a share of their peak."""
    found = machines.read(MACHINE)
    core = found.core | {"flops": found.core["flops"] * cores * share, "bandwidth": found.core["bandwidth"] * cores}
    return replace(found, core=core, node=found.node | {"ranks": node})


@cache
def operations(widths, batch, model):
    """The operations of the rank with the most work, in float64. widths: see `widths_of`."""
    net = network(widths[1], "float64", len(widths) - 2, widths[-1], widths[:1])
    cost = cost_of_slowest_rank(net, PlacementSpec({"batch": batch, "model": model}, PLAN), BATCH_SIZE, machine_of())
    return tuple(work for work in cost.works if work.group is None)


@cache
def computing(cases, hidden, numbers, node, threads, share, network):
    """Seconds of all operations, an array with a number for each case. cases: (width, batch, model)."""
    found, itemsize = [], ITEMSIZE[numbers]
    for width, batch, model in cases:
        ranks = batch * model
        cores = RANKS // min(ranks, node) if threads == ALL_CORES else 1
        alone, products = machine_of(node), machine_of(node, cores, share)
        seconds = 0.0
        for work in operations(tuple(widths_of(width, hidden, model, network)), batch, model):
            where = products if work.name.startswith("linear.") else alone
            nbytes = work.nbytes * itemsize / 8
            seconds += where.operation_seconds(work.name, work.sizes, work.scale, work.flops, nbytes, itemsize, ranks)
        found.append(seconds)
    return np.array(found)


@cache
def messages(widths, batch, model, algorithm):
    """[(kind, axis, numbers that a rank gives, numbers that it gets)] of the collectives of a step, see Algorithms 1 to 3."""
    samples = -(-BATCH_SIZE // batch)
    own = [-(-width // model) for width in widths]
    found = [("all-gather", "model", samples * part, samples * width) for part, width in list(zip(own, widths))[1:]]
    summed = widths[:-1] if algorithm == PRINTED else widths[1:-1]
    found += [("all-reduce", "model", samples * width, samples * width) for width in summed]
    gradients = [(before + 1) * part for before, part in zip(widths, own[1:])]
    if not (algorithm == PRINTED and model > 1):
        gradients = [sum(gradients)]
    return found + [("all-reduce", "batch", count, count) for count in gradients]


@cache
def sending(cases, hidden, numbers, node, sums, how, algorithm, network):
    """Seconds of the collectives, without what packs them."""
    found, itemsize, machine = [], ITEMSIZE[numbers], machine_of(node)
    for width, batch, model in cases:
        grid, seconds = GridDescription({"batch": batch, "model": model}, ranks_per_node=node), 0.0
        for kind, axis, given, _ in messages(tuple(widths_of(width, hidden, model, network)), batch, model, algorithm):
            group = grid.group(axis)
            for name, count in steps_of(kind, group.size, given, sums, how):
                seconds += machine.collective_seconds(name, group, grid.size, count * itemsize)
        found.append(seconds)
    return np.array(found)


def steps_of(kind, ranks, given, sums, how):
    """[(collective, numbers that its busiest rank sends)] of which a collective of a group of ranks consists."""
    if kind == "all-gather":
        return [(kind, given * (ranks - 1))]
    tree = rounded_up_log2(ranks) * given
    if sums == GATHERED:
        return [("gather", given * (ranks - 1)), ("broadcast", tree)]
    return [("broadcast", tree)] * 2 if how == PICKLED else [(kind, all_reduce_elements(given, ranks, 0))]


@cache
def packing(cases, hidden, numbers, how, program, algorithm, network):
    """Seconds in which a rank packs and unpacks its messages beyond the copies of the cost model."""
    found = []
    for width, batch, model in cases:
        sizes, count = {"batch": batch, "model": model}, 0
        for _, axis, given, got in messages(tuple(widths_of(width, hidden, model, network)), batch, model, algorithm):
            count += (given + got) * (sizes[axis] > 1 or program == INTEGRATED)
        found.append(count * seconds_a_number(how, numbers))
    return np.array(found)


def seconds_a_number(how, numbers):
    """Seconds for which a number in a message is packed, or unpacked."""
    return {PICKLED: ITEMSIZE[numbers] / COPIES, LISTS: OF_LIST}.get(how, 0.0)


@cache
def scattering(cases, numbers, node, how, minibatch, program):
    """Seconds in which rank 0 hands out the minibatch by the method that section 7 chooses: to each rank its own copy."""
    found, itemsize = [], ITEMSIZE[numbers]
    for _, batch, model in cases:
        grid = GridDescription({"batch": batch, "model": model}, ranks_per_node=node)
        block = -(-BATCH_SIZE // batch) * (SHAPE[0] + OUTPUTS)
        done = minibatch == FROM_FIRST and (batch > 1 or program == INTEGRATED)
        sent = machine_of(node).collective_seconds("scatter", grid.group(*AXES), grid.size, block * (grid.size - 1) * itemsize)
        found.append(done * (sent + block * (grid.size + 1) * seconds_a_number(how, numbers)))
    return np.array(found)


def seconds(cases, choice):
    """Seconds of a step, an array with a number for each case: (width, batch, model). choice: {assumption: option}."""
    hidden, numbers, node, threads, share, sums, how, _, minibatch, program, algorithm, network = (
        choice[one.name] for one in ASSUMPTIONS
    )
    return (
        computing(cases, hidden, numbers, node, threads, share, network)
        + sending(cases, hidden, numbers, node, sums, how, algorithm, network)
        + packing(cases, hidden, numbers, how, program, algorithm, network)
        + scattering(cases, numbers, node, how, minibatch, program)
        + interpreting(choice)
    )


def interpreting(choice):
    """Seconds of a step that the interpreter takes for the layers, forward and backward."""
    return 2 * (choice[LAYERS] + 1) * choice[PYTHON]


def combinations():
    """All combinations of options, {assumption: option}."""
    names = [one.name for one in ASSUMPTIONS]
    return (dict(zip(names, options)) for options in product(*(one.options for one in ASSUMPTIONS)))


def words(choice):
    """What is assumed in words. choice: {assumption: option}."""
    return "; ".join(f"{name} = {option}" for name, option in choice.items()) or "nothing"
