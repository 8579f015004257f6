"""Where to cut a network into the chunks of a pipeline so that they take about the same time."""

from itertools import accumulate

from gridgrad.nn.network_summary import rows
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.pipeline.schedule import shortest
from gridgrad.parallel.plans.place_network import checked

PASSES = 80.0  # floating-point operations that take as long as reading or writing one element of a large array
PRODUCTS = 3  # products of matrices in a training step, each as large as that of forward


def balanced_cuts(net, chunks):
    """The positions in `net.layers` at which to begin the second and every later chunk.

    The longest chunk is as short as possible, by the floating-point operations and the memory traffic of the layers; nothing is
    measured. Some chunks are empty if there are fewer layers than chunks. net: a serial Sequential with an input shape, or one
    that begins with a Linear layer; ValueError for others.
    """
    return cuts_of(layer_work(net), chunks)


def layer_work(net):
    """The work of each layer of `net.layers` for one sample in a training step, in floating-point operations."""
    _, shape = checked(net)
    found = {row.name: PRODUCTS * row.flops + 2 * PASSES * row.elements for row in rows(net, shape)}
    return [sum(found.get(leaf.name, 0.0) for leaf in leaves([layer])) for layer in net.layers]


def cuts_of(work, chunks):
    """Where to cut a list of works into consecutive parts such that the largest sum of a part is as small as possible."""
    sums = [0.0, *accumulate(work)]
    return shortest(len(work), chunks, lambda chunk, start, end: sums[end] - sums[start])
