"""Where to cut a network into the chunks of a pipeline so that they take about the same time."""

from math import inf

from nn.sequence import leaves
from nn.summary import rows
from parallel.placement.place_network import checked

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
    """Where to cut a list of works into consecutive parts such that the largest sum of a part is as small as possible.

    Of several such choices, the one in which the parts behind are the smallest, too.
    """
    sums = [0.0]
    for one in work:
        sums.append(sums[-1] + one)
    best = [(total, None) for total in sums]  # for the first i works: (the largest sum of a part, where the last part begins)
    tables = [best]
    for _ in range(chunks - 1):
        before = best
        best = []
        for end, total in enumerate(sums):
            options = ((max(before[start][0], total - sums[start]), start) for start in range(end + 1))
            best.append(min(options, default=(inf, 0)))
        tables.append(best)
    cuts, end = [], len(work)
    for table in reversed(tables[1:]):
        end = table[end][1]
        cuts.append(end)
    return tuple(reversed(cuts))
