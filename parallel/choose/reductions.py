"""The reduction that a text such as the value of `--reduction` names."""

import re

from gridgrad.parallel.choose.fastest_reduction import fastest_reduction
from gridgrad.parallel.sync.power_sgd import PowerSGDReduction
from gridgrad.parallel.sync.reduction import SHARDED, WHOLE, BlockingReduction, OverlappedReduction
from gridgrad.parallel.sync.shared_memory import SharedMemoryReduction, has_room

NAMES = r"auto|plain|shared|overlap|(overlap|powersgd):[1-9][0-9]{0,8}"


def check_name(text):
    """Raise ValueError if no reduction has this name."""
    if not re.fullmatch(NAMES, text):
        raise ValueError(f"there is no reduction '{text}': use plain, overlap, overlap:KIB (such as overlap:1024), shared, "
                         "powersgd:R (such as powersgd:2) or auto")  # fmt: skip


def choose_reduction(text, update, reduce_dtype, net):
    """The Reduction that a text names, for a ParallelSequential. Collective.

    text: plain, overlap, overlap:KIB, shared, powersgd:R or auto, see `parallelize`. update, reduce_dtype: see `Reduction` in
    `parallel/sync/reduction.py`; if update is None, only "shared" is sharded.
    Raises ValueError if there is no such reduction, or if it can not be used on these devices, with this update or type.
    """
    text = str(text)
    check_name(text)
    if text == "auto" and (not net.grid.on_cpus or net.pipeline):
        text = "plain"
    if text in ("auto", "overlap"):
        text = _measured_choice(net, "overlap" if reduce_dtype == "float16" else text)
    kind, _, number = text.partition(":")
    if kind == "overlap":
        return OverlappedReduction(net, update or WHOLE, reduce_dtype, int(number))
    if kind == "plain":
        return BlockingReduction(net, update or WHOLE, reduce_dtype)
    if kind == "powersgd":
        return PowerSGDReduction(net, int(number), update or WHOLE, reduce_dtype)
    if net.pipeline:  # only shared is left
        raise ValueError("the reduction shared makes all ranks of a node wait for each other, which ranks of a pipeline do "
                         "not: use plain or overlap")  # fmt: skip
    return SharedMemoryReduction(net, update or SHARDED, reduce_dtype)


def _measured_choice(net, question):
    """The answer of `fastest_reduction`, but for shared memory that does not fit on every node. Collective."""
    answer = fastest_reduction(net, question)
    if question == "auto" and answer == "shared" and not has_room(net):
        answer = fastest_reduction(net, "overlap") if net.grid.node.size < net.grid.size else "plain"
    return answer
