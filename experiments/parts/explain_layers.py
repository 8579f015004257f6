"""A predicted training step layer by layer, as `gridgrad explain` prints it."""

from gridgrad.experiments.parts.lower_bound import least_bytes
from gridgrad.nn.sequence import leaves, shapes
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.process_grid import MODEL
from gridgrad.parallel.placement.plan import weighted_in
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.plans.plans import PLANS


def layer_rows(cost):
    """A dict for each layer with weights, with all that follows up to the next one, in the order of the network; behind them
    one for each thing that belongs to no layer, such as the update. cost: a Cost.

    layer: the name of the layer. kinds: the types of the layers. placement: the word of the plan, empty where the axis `MODEL`
    has one rank. flops, seconds: of the rank, forward and backward. bytes: that it sends, also for the sums of the layers'
    gradients, whose seconds are in the row "gradients". bound_bytes: the least that it could send, see `lower_bound.py`; 0.0
    where no bound is known.
    """
    rows, row_of = _without_work(cost)
    for work in cost.works:
        if work.layer not in row_of:
            row_of[work.layer] = _row(work.layer)
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


def _without_work(cost):
    """(the rows of the layers, {name of a layer: its row})."""
    net, ranks, several = cost.net, cost.grid.size, cost.grid.sizes[MODEL] > 1
    layers, shape = checked(net)
    words = dict(zip((layer.name for layer in layers), cost.placed.plan))
    first = next(layer for layer in net.layers if weighted_in([layer]))
    take_inputs = {layer.name for layer in leaves([first])}
    rows, row_of = [], {}
    for layer, before, after in shapes(net.layers, shape):
        if not rows or layer.name in words and rows[-1]["layer"] in words:
            rows.append(_row(layer.name))
        row = row_of[layer.name] = rows[-1]
        row["kinds"].append(type(layer).__name__)
        if layer.name in words:
            row |= {"layer": layer.name, "placement": words[layer.name] if several else ""}
            if cost.is_even and ranks > 1 and PLANS[words[layer.name]].shares_work:  # the bound is of work that is shared
                is_first = layer.name in take_inputs
                row["bound_bytes"] = least_bytes(layer, before, after, cost.batch_size, ranks, cost.itemsize, is_first)
    row_of["output"] = rows[-1]  # what brings the outputs to the loss
    return rows, row_of


def _row(name):
    return {"layer": name, "kinds": [], "placement": "", "flops": 0.0, "bytes": 0.0, "bound_bytes": 0.0, "seconds": 0.0}
