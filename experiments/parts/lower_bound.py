"""The least that the ranks have to send for a layer with weights, whatever its placement.

The gradient of the weights is the product of inputs and gradients of the outputs: m k n multiplications, each of which takes
one of m k inputs and one of m n gradients, and adds to one of k n sums. A rank that does a P-th of them needs a inputs and b
gradients, and adds to c sums, where

    a b c >= (m k n / P)^2

(Loomis and Whitney 1949; for ranks: Irony, Toledo and Tiskin 2004). It may hold a P-th of each array. What it needs beyond that
it receives, and what it adds beyond that it sends: the least a + b + c, less these parts, is the bound (in closed form: Al Daas
et al. 2022, Theorem 3). It is for ranks with equally large parts of the work and of the arrays.

A convolution multiplies each element of its images with all places of the kernel: it needs as many elements as a kernel has
places fewer. The inputs of the first layers come from a file, which every rank can read.
"""

from math import prod, sqrt

from gridgrad.nn import Conv2d, Linear

STEPS = 100  # of a bisection


def least_bytes(layer, before, after, samples, ranks, itemsize, is_first):
    """The bytes that a rank sends at least in a training step for a layer; 0.0 for layers of which no bound is known.

    before, after: shapes of an input and an output sample. samples: in the global minibatch. itemsize: bytes of a number.
    is_first: whether its inputs are those of the network.
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
    parts = lambda level: [  # noqa: E731
        min(max(level / one, most / ranks), most) if one else most for one, most in zip(price, whole)
    ]
    low, high = 0.0, max(one * most for one, most in zip(price, whole))
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if sqrt(prod(parts(middle))) >= wanted else (middle, high)
    return sum(one * part for one, part in zip(price, parts(high)))
