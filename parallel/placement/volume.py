"""Closed forms of the bytes that communication moves, summed over the ranks.

Laugier et al. 2018 (sections 5 and 6, after Gholami et al. 2018) give the cost of a step as

    batch parallelism   2 sum_l (alpha ceil(log P) + beta P/(P-1) |W_l|)
    model parallelism   3 sum_l (alpha ceil(log P) + beta B P/(P-1) d_l)

Read as volumes these are loose in four places, corrected here:
- The factor is (P-1)/P, not P/(P-1): of an array of n elements a rank sends (P-1)/P n in an all-gather or a
  reduce-scatter and twice that in an all-reduce. With one rank nothing moves.
- |W_l| includes the biases, and the batch term is one all-reduce of all layers (Algorithm 1), so its latency counts
  once and not once a layer.
- The 3 stands for one all-gather in forward and one all-reduce (worth 2) in backward. The all-reduce is of the
  *inputs'* gradient, so it has d_(l-1), and the first layer has none: sum_(l=1..L) d_l + 2 sum_(l=1..L-1) d_l.
- On a 2-D grid the model term has the B / P_batch samples of a batch block, the batch term the |W_l| / P_model
  weights of a model block (section 7 uses this without a formula).

Uneven and empty blocks change none of these sums.
"""

from math import prod

from parallel.placement.moves import elements_sent
from parallel.placement.partition import Partition, Split, size
from parallel.placement.placements import C, H, N, Shard


def all_gather(elements, ranks):
    """Elements sent by all ranks together to give each of them all `elements`."""
    return (ranks - 1) * elements


def all_reduce(elements, ranks):
    """Elements sent by all ranks together to give each of them the sum: a reduce-scatter and an all-gather."""
    return 2 * all_gather(elements, ranks)


def halo(samples, shape, window, ranks, dim=H):
    """Elements that the halo of a convolution or pooling over rows, or columns, split over `ranks` sends in one direction.

    shape: of a whole sample, (height, width, channels). window: an `nn.window.Window`. A rank whose part of the outputs
    looks at rows of others gets each of them once. With stride 1 and a k x k kernel these are (k - 1) rows at each of
    the P - 1 borders (Gholami et al. 2018, section 2.3: B W C floor(k/2) a side), where every rank has at least that many.
    """
    length = shape[dim - 1]
    owned, outputs = (Partition.even(n, ranks) for n in (length, window.outputs(dim, length)))
    needed = outputs.mapped(length, lambda part: window.input_part(dim, part, length))
    missing = sum(needed.size(rank) - size(owned.intersection(rank, needed, rank)) for rank in range(ranks))
    return samples * prod(shape) // length * missing


def laugier_activations(batch_size, widths, batch, model, itemsize=4):
    """Bytes on the model axis of one step of Laugier's Algorithm 3 (Algorithm 2 where batch = 1), over all ranks.

    widths: d_0 (the inputs) to d_L (the outputs). batch, model: the sizes of the axes.
    """
    gathered, reduced = sum(widths[1:]), sum(widths[1:-1])
    return itemsize * batch_size * (all_gather(gathered, model) + all_reduce(reduced, model))


def activations(batch_size, widths, plan, batch, model, itemsize=4):
    """Bytes on the model axis of one step under `plan` ("out" or "in" a layer), over all ranks.

    Between two layers: out -> out is an all-gather and, backward, a reduce-scatter; out -> in moves nothing;
    in -> in is a reduce-scatter and an all-gather; in -> out is both pairs. The end is an all-to-all each way
    after "out", a reduce-scatter and an all-gather after "in".
    """
    rows = Partition.even(batch_size, batch).sizes
    total = 0
    for width, first, second in zip(widths[1:-1], plan, plan[1:]):
        pairs = (first == "in") + (second == "out")
        total += 2 * pairs * batch_size * all_gather(width, model)
    if plan[-1] == "out":
        ends = Shard(C, Partition.even(widths[-1], model)), Shard(N, Split(model))
        total += 2 * sum(elements_sent(*ends, n, (widths[-1],), model) for n in rows)
    else:
        total += 2 * batch_size * all_gather(widths[-1], model)
    return itemsize * total


def gradients(widths, batch, model, itemsize=4):
    """Bytes of the all-reduce of all gradients along the batch axis, over all ranks of the grid."""
    parameters = sum(inputs * outputs + outputs for inputs, outputs in zip(widths, widths[1:]))
    return itemsize * all_reduce(parameters, batch)
