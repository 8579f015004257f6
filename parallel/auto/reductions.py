"""Which reduction a network uses: what `--reduction` and the options beside it say."""

import re

from nn.device import is_cpu
from parallel.auto.fastest_reduction import fastest_reduction
from parallel.sync.reduction import BlockingReduction, OverlappedReduction
from parallel.sync.shared_memory import SharedMemoryReduction, has_room

HELP = (
    "how gradients are summed: plain (blocking collectives after backward), overlap:KIB (buckets of that many KiB, while "
    "backward goes on; without a number, of a size that suits the network), shared (in memory that the ranks of a node share, "
    "one all-reduce between nodes), or auto: what is fastest here, measured once and remembered"
)


def choose_reduction(text, sharded, float16_gradients, net):
    """The Reduction that a text names, for a ParallelSequential; ValueError if it names none, or it does not fit. Collective.

    sharded: see `parallel/sync/reduction.py`; None: where parameters are in shared memory.
    """
    text = str(text)
    if text == "auto" and not is_cpu():
        text = "plain"
    if text in ("auto", "overlap") and is_cpu():
        text = _measured_choice(net, "overlap" if float16_gradients else text)
    found = re.fullmatch("overlap:([1-9][0-9]{0,8})", text)
    if (found or text in ("overlap", "shared")) and not is_cpu():
        raise ValueError(f"--reduction {text} needs arrays in the host's memory: use plain with --device gpu")
    if found:
        return OverlappedReduction(net, bool(sharded), float16_gradients, int(found[1]))
    if text == "plain":
        return BlockingReduction(net, bool(sharded), float16_gradients)
    if text == "shared":
        return SharedMemoryReduction(net, sharded is None or sharded, float16_gradients)
    raise ValueError(f"reduction '{text}' is none: use plain, overlap, overlap:KIB (such as overlap:1024), shared or auto")


def _measured_choice(net, question):
    answer = fastest_reduction(net, question)
    if question == "auto" and answer == "shared" and not has_room(net):
        answer = fastest_reduction(net, "overlap") if net.grid.node.size < net.grid.size else "plain"
    return answer
