"""A predicted training step layer by layer, and the least that the ranks have to send for a layer, whatever its placement.

The gradient of the weights is the product of inputs and gradients of the outputs: m k n multiplications, each of which takes
one of m k inputs and one of m n gradients, and adds to one of k n sums. A rank that does a P-th of them needs a inputs and b
gradients, and adds to c sums, where

    a b c >= (m k n / P)^2

(Loomis and Whitney 1949; for ranks: Irony, Toledo and Tiskin 2004). It may hold a P-th of each array. What it needs beyond that
it receives, and what it adds beyond that it sends: the least a + b + c, less these parts, is the bound (in closed form: Al Daas
et al. 2022, Theorem 3). It is for ranks with equally large parts of the work and of the arrays. A convolution multiplies each
element of its images with all places of the kernel: it needs as many elements as a kernel has places fewer. The inputs of the
first layers come from a file, which every rank can read.
"""

from math import prod, sqrt

from gridgrad.nn import Conv2d, Linear
from gridgrad.nn.sequence import leaves, shapes
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.process_grid import MODEL
from gridgrad.parallel.placement.plan import weighted_in
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.plans.plans import PLANS

STEPS = 100  # of a bisection


def layer_rows(cost):
    """A dict for each layer with weights and what follows up to the next one, then one for what belongs to no layer.

    layer: its name. kinds: the types of the layers. placement: the word of the plan, where the axis `MODEL` has several ranks.
    flops, seconds: of the rank, forward and backward. bytes: that it sends, with the sums of the layers' gradients, whose
    seconds are in the row "gradients". bound_bytes: the least that it could send; 0.0 where no bound is known.
    """
    rows, row_of = without_work(cost)
    for work in cost.works:
        if work.layer not in row_of:
            row_of[work.layer] = empty(work.layer)
            rows.append(row_of[work.layer])
        row = row_of[work.layer]
        row["flops"] += work.flops
        row["bytes"] += work.nbytes if work.group is not None and work.layer != "gradients" else 0.0
        row["seconds"] += cost.seconds_of(work)
    for layer in leaves(cost.placed.layers):
        for parameter in layer.parameters:
            group = cost.grid.group(*parameter.layout.summed)
            if group.size > 1:
                row_of[layer.name]["bytes"] += all_reduce_elements(parameter.size, group.size, group.rank) * cost.itemsize
    return rows


def without_work(cost):
    """(the rows of the layers, {name of a layer: its row})."""
    net, ranks, several = cost.net, cost.grid.size, cost.grid.sizes[MODEL] > 1
    layers, shape = checked(net)
    words = dict(zip((layer.name for layer in layers), cost.placed.plan))
    take_inputs = {layer.name for layer in leaves([next(layer for layer in net.layers if weighted_in([layer]))])}
    rows, row_of = [], {}
    for layer, before, after in shapes(net.layers, shape):
        if not rows or layer.name in words and rows[-1]["layer"] in words:
            rows.append(empty(layer.name))
        row = row_of[layer.name] = rows[-1]
        row["kinds"].append(type(layer).__name__)
        if layer.name in words:
            row |= {"layer": layer.name, "placement": words[layer.name] if several else ""}
            if cost.is_even and ranks > 1 and PLANS[words[layer.name]].shares_work:  # the bound is of work that is shared
                is_first = layer.name in take_inputs
                row["bound_bytes"] = least_bytes(layer, before, after, cost.batch_size, ranks, cost.itemsize, is_first)
    row_of["output"] = rows[-1]  # what brings the outputs to the loss
    return rows, row_of


def empty(name):
    return {"layer": name, "kinds": [], "placement": "", "flops": 0.0, "bytes": 0.0, "bound_bytes": 0.0, "seconds": 0.0}


def least_bytes(layer, before, after, samples, ranks, itemsize, is_first):
    """The bytes that a rank sends at least in a training step for a layer; 0.0 for layers of which no bound is known.

    before, after: shapes of an input and an output sample. is_first: whether its inputs are those of the network.
    """
    if type(layer) not in (Conv2d, Linear):
        return 0.0
    places = prod(layer.window.kernel) if type(layer) is Conv2d else 1
    m, k, n = samples * prod(after[:-1]), places * layer.inputs, after[-1]
    whole, price = (m * k, m * n, k * n), (0.0 if is_first else 1 / places, 1.0, 1.0)
    held = (0.0 if is_first else samples * prod(before)) + m * n + k * n
    return itemsize * max(0.0, least_sum(price, whole, ranks) - held / ranks)


def least_sum(price, whole, ranks):
    """The least sum of price[i] s[i] with s[0] s[1] s[2] >= (m k n / ranks)^2 and whole[i] / ranks <= s[i] <= whole[i].

    (m k n)^2 is the product of `whole`. At the least sum, price[i] s[i] is the same for all that are within their limits.
    """
    wanted = sqrt(prod(whole)) / ranks

    def parts(level):
        return [min(max(level / one, most / ranks), most) if one else most for one, most in zip(price, whole)]

    low, high = 0.0, max(one * most for one, most in zip(price, whole))
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if sqrt(prod(parts(middle))) >= wanted else (middle, high)
    return sum(one * part for one, part in zip(price, parts(high)))
