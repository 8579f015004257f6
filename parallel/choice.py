"""Which reduction a network uses: what `--reduction` and the options beside it say."""

from parallel.reduction import DEFAULT_BUCKET, Overlap, Plain
from parallel.shared import Shared

HELP = (
    "how gradients are summed: plain (blocking collectives after backward), overlap or overlap:KIB (buckets of that many KiB, "
    "while backward goes on), shared (in memory that the ranks of a node share, one all-reduce between nodes)"
)


def choose(text, sharded, half, net):
    """The Reduction that a text names, for a ParallelSequential; ValueError if it names none, or it does not fit.

    sharded: see `parallel/reduction.py`; None: where parameters are in shared memory.
    """
    name, colon, number = text.partition(":")
    if name == "overlap" and (not colon or number.isdecimal() and int(number) > 0):
        reduction = Overlap(net, bool(sharded), half, int(number) * 1024 if colon else DEFAULT_BUCKET)
        reduction.listen()
        return reduction
    if text == "plain":
        return Plain(net, bool(sharded), half)
    if text == "shared":
        return Shared(net, sharded is None or sharded, half)
    raise ValueError(f"reduction '{text}' is none: use {HELP}")
