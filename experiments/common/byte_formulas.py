"""Closed formulas for the bytes that communication sends in a training step, summed over all ranks.

Laugier et al. 2018 (sections 5 and 6, after Gholami et al. 2018) give the cost of a step as

    batch parallelism   2 sum_l (alpha ceil(log P) + beta P/(P-1) |W_l|)
    model parallelism   3 sum_l (alpha ceil(log P) + beta B P/(P-1) d_l)

where P ranks share a minibatch of B samples, W_l is the weight of layer l, d_l the number of its outputs, alpha the latency and
1/beta the bandwidth. As volumes these formulas are inexact in four places, which are corrected here:
- The factor is (P-1)/P, not P/(P-1): of n elements a rank sends (P-1)/P n in an all-gather or a reduce-scatter and twice that
  in an all-reduce. With one rank nothing moves.
- |W_l| includes the biases, and the batch term is a single all-reduce of all layers, so its latency counts once.
- The 3 stands for one all-gather in forward and one all-reduce (worth 2) in backward. The all-reduce is of the *inputs'*
  gradient, so it has d_(l-1), and the first layer has none: sum_(l=1..L) d_l + 2 sum_(l=1..L-1) d_l.
- On a 2-D grid the model term counts the B / P_batch samples of one batch block, and the batch term the |W_l| / P_model
  weights of one model block (section 7 uses this without a formula).

The sums over the ranks are the same for even, uneven and empty blocks.
"""

from operator import mul

from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import C, N, Shard


def all_gather(elements, ranks):
    """Elements that all ranks together send in an all-gather, after which each of them holds `elements` elements."""
    return (ranks - 1) * elements


def all_reduce(elements, ranks):
    """Elements that all ranks together send in an all-reduce of `elements` elements: a reduce-scatter and an all-gather."""
    return 2 * all_gather(elements, ranks)


def laugier_activations(batch_size, widths, batch, model, itemsize=4):
    """Bytes that all ranks together send along the model axis in one step of Laugier et al. 2018, Algorithm 3, which for batch
    = 1 is Algorithm 2. batch_size: of the global minibatch. widths: the numbers of features d_0 (inputs) to d_L (outputs).
    batch, model: the sizes of the axes. itemsize: bytes of an element."""
    gathered, reduced = sum(widths[1:]), sum(widths[1:-1])
    return itemsize * batch_size * (all_gather(gathered, model) + all_reduce(reduced, model))


def activations(batch_size, widths, plan, batch, model, itemsize=4):
    """Bytes that all ranks together send along the model axis in one step. plan: "out", "in" or "redundant" for each layer. The
    other arguments: see `laugier_activations`."""
    # Between a layer with "out" and the next with "out" there is an all-gather in forward and a reduce-scatter in backward;
    # from "in" to "in" a reduce-scatter and then an all-gather; from "in" to "out" both pairs; from "out" to "in" nothing. To
    # "redundant" and from it, an all-gather in one direction is behind the sums of "in"; only from "redundant" to "out" there
    # is an all-reduce in backward. The outputs cost an all-to-all in each direction after "out", and a pair after "in".
    rows = Partition.even(batch_size, batch).sizes
    total = 0
    for width, first, second in zip(widths[1:-1], plan, plan[1:]):
        single = second != "out" and (first == "redundant") != (second == "redundant")
        total += (2 * (first == "in") + 2 * (second == "out") + single) * batch_size * all_gather(width, model)
    if plan[-1] == "out":
        ends = Shard(C, Partition.even(widths[-1], model)), Shard(N, Split(model))
        total += 2 * sum(elements_sent(*ends, n, (widths[-1],), model) for n in rows)
    elif plan[-1] == "in":
        total += 2 * batch_size * all_gather(widths[-1], model)
    return itemsize * total


def gradients(widths, batch, model, itemsize=4, plan=()):
    """Bytes that all ranks of the grid together send in the all-reduce of all gradients along the batch axis. plan: as
    `activations` takes it; of layers with "redundant" each rank of the model axis has all gradients."""
    parameters = [inputs * outputs + outputs for inputs, outputs in zip(widths, widths[1:])]
    copies = [model if word == "redundant" else 1 for word in plan] or [1] * len(parameters)
    return itemsize * all_reduce(sum(map(mul, parameters, copies)), batch)
