"""The closed formulas of what a step sends on each number of ranks of a curve, beside which measured bytes can be put.

All in bytes of all ranks together, see `experiments/common/byte_formulas.py`:

| term        | what is sent                                                               | networks                        |
|-------------|----------------------------------------------------------------------------|---------------------------------|
| gradients   | 2 (B - 1) n: the all-reduce of n bytes over the B ranks of the axis batch; | perceptrons; all on batch alone |
|             | (B - 1) n in shared memory, where each rank reads those of others once     |                                 |
| activations | (M - 1) times what the samples have in the layers of the plan              | perceptrons                     |
| loss        | 2 (P - 1) times three numbers of 8 bytes: it, and the number of samples     | all                             |
"""

from math import prod

from gridgrad.experiments.common import byte_formulas
from gridgrad.experiments.common.published_networks import published
from gridgrad.experiments.scaling.growth import constant, product
from gridgrad.nn import Linear
from gridgrad.parallel.grid.process_grid import BATCH, MODEL, parse_grid
from gridgrad.parallel.protocols.protocol_names import SYNC

GRADIENTS, ACTIVATIONS, LOSS = TERMS = "gradients", "activations", "loss"
SHARED = "shared sum"  # as reports call sums in shared memory
KNOWN = {"out", "in", "redundant"}  # plans that have a formula
OF_A_LOSS = 24  # bytes: it, the number of samples, and its square are summed in float64
EXACT = 1e-9  # the relative difference up to which values count as equal


def sent(row):
    """{term: bytes of all ranks in a step} of a Row by the closed formulas; without the terms that have none."""
    sizes, settings, run = parse_grid(row.grid), row.settings, row.runs[0] if row.runs else {}
    batch, model = sizes.get(BATCH, 1), sizes.get(MODEL, 1)
    if settings.get("protocol", SYNC) != SYNC or batch * model != row.ranks or settings.get("shares"):
        return {}
    found = {LOSS: byte_formulas.all_reduce(OF_A_LOSS, row.ranks)}
    net = network_of(row, run)
    if net is None:
        return found
    plan, widths = plan_of(run, net), widths_of(net)
    summed = settings.get("reduce_dtype") in (None, "same") and not str(settings.get("reduction")).startswith("powersgd")
    once = 0.5 if SHARED in (run.get("bytes") or {}) else 1
    if summed and model == 1:
        found[GRADIENTS] = once * byte_formulas.all_reduce(net.size * net.dtype.itemsize, batch)
    elif summed and widths and plan:
        found[GRADIENTS] = once * byte_formulas.gradients(widths, batch, model, net.dtype.itemsize, plan)
    if model == 1:
        found[ACTIVATIONS] = 0
    elif widths and plan:
        share = (run.get("samples_per_step") or row.batch) / row.batch  # the last minibatch of an epoch may be smaller
        found[ACTIVATIONS] = share * byte_formulas.activations(row.batch, widths, plan, batch, model, net.dtype.itemsize)
    return found


def network_of(row, run):
    """The serial network of a Row, which takes no memory until it is used; None where there is none of the samples that the
    report says: a report of `train` has only their number of features, which must be that of the published shape."""
    dtype = row.settings.get("dtype") or "float32"
    features, outputs, shape = run.get("features"), run.get("outputs"), run.get("shape")
    if not outputs or not (shape or features):
        return None
    try:
        if shape or row.net.startswith("mlp:"):
            return published(row.net, shape or [features], outputs, dtype)
        net = published(row.net, None, outputs, dtype)  # of the published shape
    except ValueError:
        return None
    return net if prod(net.input_shape) == features else None


def widths_of(net):
    """The numbers of features from the inputs to the outputs of a perceptron; None of another network."""
    layers = [layer for layer in net.leaves() if layer.parameters]
    if not all(type(layer) is Linear for layer in layers):
        return None
    return [layers[0].inputs, *(layer.outputs for layer in layers)]


def plan_of(run, net):
    """The words of the plan of each layer with weights, as a report or a prediction has it; None for plans without formula."""
    plan = run.get("plan") or []
    words = plan.split(",") if isinstance(plan, str) else list(plan)
    layers = [layer for layer in net.leaves() if layer.parameters]
    words = words * len(layers) if len(words) == 1 else words
    return words if len(words) == len(layers) and set(words) <= KNOWN else None


def laws(rows):
    """{term: Growth} of the terms that have one law in all Rows of a curve."""
    several = [row for row in rows if row.ranks > 1]
    values = [sent(row) for row in several]
    found = {}
    for term in TERMS:
        if values and all(term in value for value in values):
            law = law_of([(row, value[term]) for row, value in zip(several, values)], term)
            if law:
                found[term] = law
    return found


def law_of(points, term):
    """The Growth of a term with these values: (Row, bytes) pairs. None without a law c (x - 1), x the ranks of the axis.

    With weak scaling the activations have a factor p, as the samples have.
    """
    axis = {GRADIENTS: BATCH, ACTIVATIONS: MODEL}.get(term)
    weak = int(points[0][0].scaling == "weak" and term == ACTIVATIONS)
    sizes = {row.ranks: parse_grid(row.grid).get(axis, 1) if axis else row.ranks for row, _ in points}
    alone = [value for row, value in points if sizes[row.ranks] == 1]
    several = [value / row.ranks**weak / (sizes[row.ranks] - 1) for row, value in points if sizes[row.ranks] > 1]
    if any(alone) or not alike(several):
        return None
    coefficient = several[0] if several else 0.0
    if alike(list(sizes.values())):  # an axis that does not grow
        return constant(coefficient * (next(iter(sizes.values())) - 1), weak)
    for power in (1, 2):  # the axis has all ranks but for a factor, or their square root
        divisors = [ranks ** (1 / power) / size for ranks, size in sizes.items()]
        if alike(divisors):
            return product(coefficient, weak, f"1/{power}", divisors[0])
    return None


def alike(values):
    """Whether some numbers are the same but for rounding."""
    return all(abs(value - values[0]) <= EXACT * abs(values[0]) for value in values)
