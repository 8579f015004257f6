"""Which reduction a network uses: what `--reduction` and the options beside it say."""

from nn.device import is_cpu
from parallel.probe import fastest
from parallel.reduction import Overlap, Plain
from parallel.shared import Shared

HELP = (
    "how gradients are summed: plain (blocking collectives after backward), overlap:KIB (buckets of that many KiB, while "
    "backward goes on; without a number, of a size that suits the network), shared (in memory that the ranks of a node share, "
    "one all-reduce between nodes), or auto: what is fastest here, measured once and remembered"
)


def choose(text, sharded, half, net):
    """The Reduction that a text names, for a ParallelSequential; ValueError if it names none, or it does not fit. Collective.

    sharded: see `parallel/reduction.py`; None: where parameters are in shared memory.
    """
    if text == "auto" and not is_cpu():
        text = "plain"
    if text in ("auto", "overlap"):
        text = fastest(net, "overlap" if half else text)
    name, _, number = text.partition(":")
    if name == "overlap" and number.isdecimal() and int(number) > 0:
        return Overlap(net, bool(sharded), half, int(number))
    if text == "plain":
        return Plain(net, bool(sharded), half)
    if text == "shared":
        return Shared(net, sharded is None or sharded, half)
    raise ValueError(f"reduction '{text}' is none: use {HELP}")
