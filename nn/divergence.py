"""Training that left the finite numbers: the error, and where they were left, in the same words on one rank and on a grid."""

from nn.device import xp
from nn.minibatch_checks import as_input
from nn.sequence import leaves


class Diverged(ArithmeticError):
    """Training left the finite numbers. The message names the step, and the input, the parameter or the layer."""


def explained(net, loss, x, context, first_not_finite=None):
    """What is to be said of a loss that is not finite: where a value first stops being finite, and what to do.

    x: the input. context: that of the forward pass. first_not_finite: from a list of arrays to the position of the first that is not
    finite, their number if all are: on a grid, over all ranks, and this is collective.
    """
    culprits = [("the input", x)]
    x = as_input(x, net.dtype)
    for layer in net.layers:
        for leaf in leaves([layer]):
            culprits += [(f"parameter {leaf.name}.{p.name}", p.value) for p in leaf.parameters]
        x = layer.forward(x, context)
        kind = type(layer).__name__ if layer.children else repr(layer)
        culprits.append((f"the output of layer {layer.name} ({kind})", x.copy()))
    position = (first_not_finite or _first_not_finite)([array for _, array in culprits])
    if position == len(culprits):
        where, advice = "the outputs are finite, the loss of them is not", "look at the targets, or try a lower learning rate"
    else:
        where = f"first not finite: {culprits[position][0]}"
        advice = "take NaN and infinity out of the data" if position == 0 else "try a lower learning rate"
    return f"step {net.step}: the loss is {loss}: {where}; {advice}"


def is_finite(array):
    """Whether every element is."""
    return bool(xp.isfinite(array).all())


def _first_not_finite(arrays):
    return next((position for position, array in enumerate(arrays) if not is_finite(array)), len(arrays))
