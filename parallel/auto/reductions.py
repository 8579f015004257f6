"""Which reduction a network uses: what `--reduction` and the options beside it say."""

import re

from nn.device import is_cpu
from parallel.auto.fastest_reduction import fastest
from parallel.sync.reduction import Overlap, Plain
from parallel.sync.shared_memory import Shared, has_room

HELP = (
    "how gradients are summed: plain (blocking collectives after backward), overlap:KIB (buckets of that many KiB, while "
    "backward goes on; without a number, of a size that suits the network), shared (in memory that the ranks of a node share, "
    "one all-reduce between nodes), or auto: what is fastest here, measured once and remembered"
)


def choose(text, sharded, half, net):
    """The Reduction that a text names, for a ParallelSequential; ValueError if it names none, or it does not fit. Collective.

    sharded: see `parallel/sync/reduction.py`; None: where parameters are in shared memory.
    """
    text = str(text)
    if text == "auto" and not is_cpu():
        text = "plain"
    if text in ("auto", "overlap") and is_cpu():
        text = _measured(net, "overlap" if half else text)
    found = re.fullmatch("overlap:([1-9][0-9]{0,8})", text)
    if (found or text in ("overlap", "shared")) and not is_cpu():
        raise ValueError(f"--reduction {text} needs arrays in the host's memory: use plain with --device gpu")
    if found:
        return Overlap(net, bool(sharded), half, int(found[1]))
    if text == "plain":
        return Plain(net, bool(sharded), half)
    if text == "shared":
        return Shared(net, sharded is None or sharded, half)
    raise ValueError(f"reduction '{text}' is none: use plain, overlap, overlap:KIB (such as overlap:1024), shared or auto")


def _measured(net, question):
    answer = fastest(net, question)
    if question == "auto" and answer == "shared" and not has_room(net):
        answer = fastest(net, "overlap") if net.grid.node.size < net.grid.size else "plain"
    return answer
