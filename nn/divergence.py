"""The error for a loss that is NaN or infinite, and the search for the first value that is not finite."""

from gridgrad.nn.device import as_input, xp
from gridgrad.nn.sequence import leaves

DATA, RATE = "take NaN and infinity out of the data", "try a lower learning rate"


class Diverged(ArithmeticError):
    """The error of `Sequential.learn` for a loss that is NaN or infinite.

    Parameters
    ----------
    message : str
        It names the step and where the first value that is not finite was found.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MSE, SGD, Diverged, Linear, Sequential
    >>> net = Sequential([Linear(2, 1)])
    >>> try:
    ...     net.learn([[1.0, np.nan]], [0.0], MSE(), SGD(net, lr=0.1))
    ... except Diverged as error:
    ...     print(error)
    step 0: the loss is nan: first not finite: the input; take NaN and infinity out of the data
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


def all_finite(array):
    """Whether no element of the array is NaN or infinite."""
    return bool(xp.isfinite(array).all())


def first_of(arrays):
    """The position of the first array with a value that is not finite, else their number."""
    return next((position for position, array in enumerate(arrays) if not all_finite(array)), len(arrays))


def explain_divergence(net, loss, x, context, first_not_finite=first_of):
    """The message for a loss that is not finite. first_not_finite: as `first_of`, but it may ask all ranks."""
    x = as_input(x, net.dtype)
    suspects = [("the input", x)]
    for layer in net.layers:
        for leaf in leaves([layer]):
            suspects += [(f"parameter {leaf.name}.{p.name}", p.value) for p in leaf.parameters]
        x = layer.forward(x, context)
        suspects.append((f"the output of layer {layer.name} ({layer.description})", x.copy()))
    position = first_not_finite([array for _, array in suspects])
    if position == len(suspects):
        where, advice = "the outputs are finite, the loss of them is not", f"look at the targets, or {RATE}"
    else:
        where = f"first not finite: {suspects[position][0]}"
        advice = DATA if position == 0 else RATE
    return not_finite(net.step, loss, where, advice)


def not_finite(step, loss, where, advice):
    return f"step {step}: the loss is {loss}: {where}; {advice}"
