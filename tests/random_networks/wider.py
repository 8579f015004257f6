"""Random cases of serial networks with more options of layers and optimizers than those that are trained on grids have."""

import random

from tests.random_networks.case import DTYPES, Case, random_case
from tests.random_networks.layers import BRANCHING

LENGTHS = 6, 8, 9, 13, 16, 17  # of images, beside those of other cases


def wider_case(seed, ranks=1):
    """The Case of a seed: the layers of a usual one with some changed and blocks of the zoo between them, on one rank.

    Its samples are normal: in integers pixels are equal, and of equal pixels each library takes another one as the maximum.
    """
    rng, usual = random.Random(f"wider {seed}"), random_case(seed, ranks)
    shape = usual.shape
    if len(shape) == 3 and rng.random() < 0.5:
        shape = tuple(rng.choice((length, *LENGTHS)) for length in shape[:2]) + shape[2:]
    return Case(
        wider(rng, usual.layers), shape, optimizer=any_optimizer(rng), lr=any_schedule(rng), loss=usual.loss,
        batch_sizes=usual.batch_sizes, micro_batches=usual.micro_batches, start=usual.start, seed=usual.seed,
        dtype=rng.choice(DTYPES),
    )  # fmt: skip


def wider(rng, values):
    """A list of layers, see `layers.py`, with other arguments here and there, with blocks of the zoo, and with more pairs."""
    found = [rng.choice(BLOCKS)(rng)] if rng.random() < 0.1 else []
    for name, *arguments in values:
        if name in BRANCHING:
            arguments = [wider(rng, branch) for branch in arguments]
        elif name in OPTIONS and rng.random() < 0.5:
            arguments = OPTIONS[name](rng)
        found.append((name, *arguments))
        if name in PAIRS and rng.random() < 0.3:
            found.append(PAIRS[name](rng))
        if rng.random() < 0.1:
            found.append(rng.choice(BLOCKS)(rng))
    return found


def convolution(rng):
    kernel = rng.choice((1, 2, 3, 4, 5, 7, 11)), rng.choice((1, 2, 3, 4, 5, 7, 11))
    stride = rng.choice((1, 2, 4, 5)), rng.choice((1, 2, 4, 5))
    return rng.choice((1, 4, 8, 16, 24, 33)), kernel, stride, any_padding(rng, max(kernel) + 1), rng.random() < 0.5


def pooling(rng):
    return tuple(rng.randint(1, 6) for _ in "hw"), tuple(rng.randint(1, 4) for _ in "hw"), any_padding(rng, 3)


def any_padding(rng, most):
    """At most so many pixels on each side."""
    return tuple((rng.randint(0, most), rng.randint(0, most)) for _ in "hw")


def response_norm(rng):
    return (
        rng.randint(1, 9),
        rng.choice((0.0, 1e-4, 0.01, 0.3, 2.0)),
        rng.choice((0.25, 0.5, 0.75, 1.0)),
        rng.choice((0.5, 1, 2)),
    )


OPTIONS = {
    "Linear": lambda rng: (rng.choice((1, 4, 16, 33)), rng.random() < 0.5),
    "SparseLinear": lambda rng: (rng.choice((1, 4, 16, 33)), rng.random() < 0.5, rng.randint(0, 99)),
    "TiedAutoencoder": lambda rng: (rng.choice((1, 3, 17)),),
    "Conv2d": convolution,
    "MaxPool2d": pooling,
    "AvgPool2d": lambda rng: pooling(rng) if rng.random() < 0.5 else (max(LENGTHS),),  # the mean of the whole image
    "BatchNorm": lambda rng: (rng.choice((1e-5, 1e-3, 0.1)), rng.choice((0.0, 0.01, 0.3, 1.0))),
    "LocalResponseNorm": response_norm,
    "Dropout": lambda rng: (rng.choice((0.01, 0.3, 0.9)),),
    "LeakyReLU": lambda rng: (rng.choice((0.0, 0.01, 0.3, 0.99)),),
}
BLOCKS = (
    lambda rng: ("Inception", *(rng.randint(1, 4) for _ in range(6))),
    lambda rng: ("ResidualBlock", rng.choice((1, 2, 3, 5)), rng.choice((1, 2))),
    lambda rng: ("LocalResponseNorm", 5, 1e-4, 0.75, 2.0),  # AlexNet's
)
PAIRS = {  # what runs as one layer with the one before it: see `fuse` in `nn/sequence.py`
    "Conv2d": lambda rng: ("MaxPool2d", *pooling(rng)),
    "BatchNorm": lambda rng: ("ReLU",),
}


def any_optimizer(rng):
    """A name and options, any of which may be left out."""
    name = rng.choice(("sgd", "adam", "adamw", "adagrad", "adadelta"))
    options = {"weight_decay" if name == "adamw" else "l2": rng.choice((1e-4, 0.02)), "l1": rng.choice((1e-4, 0.01))}
    options |= {"clip_norm": rng.choice((0.01, 1.0, 100.0))}
    if name == "sgd":
        options |= {"momentum": rng.choice((0.3, 0.9, 0.99)), "nesterov": True}
    else:
        options |= {"eps": rng.choice((1e-8, 1e-3, 0.1))}
    if name.startswith("adam"):
        options |= {"betas": (rng.choice((0.0, 0.8, 0.99)), rng.choice((0.0, 0.9, 0.9999)))}
    if name == "adadelta":
        options |= {"rho": rng.choice((0.0, 0.7, 0.99))}
    options = {option: value for option, value in options.items() if rng.random() < 0.5}
    if "momentum" not in options:
        options.pop("nesterov", None)
    return name, options


def any_schedule(rng):
    """The text of a schedule."""
    text = rng.choice(("constant", "cosine", f"step:{rng.randint(1, 9)}:{rng.choice((0.1, 0.5, 1.5))}"))
    return text + rng.choice(("", f",warmup:{rng.randint(0, 9)}"))
