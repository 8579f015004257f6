"""The reduction that a text such as the value of `--reduction` names."""

import re
from dataclasses import dataclass

from gridgrad.parallel.choose.fastest_reduction import fastest_reduction
from gridgrad.parallel.sync.overlapped import OverlappedReduction
from gridgrad.parallel.sync.power_sgd import PowerSGDReduction
from gridgrad.parallel.sync.reduction import SHARDED, WHOLE, BlockingReduction
from gridgrad.parallel.sync.shared_memory import SharedMemoryReduction, has_room

NAMES = r"auto|plain|shared|overlap|(overlap|powersgd):[1-9][0-9]{0,8}"


def check_name(text):
    """Raise ValueError if no reduction has this name."""
    if not re.fullmatch(NAMES, text):
        raise ValueError(f"there is no reduction '{text}': use plain, overlap, overlap:KIB (such as overlap:1024), shared, "
                         "powersgd:R (such as powersgd:2) or auto")  # fmt: skip


@dataclass(frozen=True)
class ReductionSettings:
    """How gradients are summed. ValueError if no reduction has this name.

    reduction: plain, overlap, overlap:KIB, shared, powersgd:R or auto, see `parallelize`. update, reduce_dtype: see `Reduction`
    in `parallel/sync/reduction.py`; if update is None, only "shared" is sharded.
    """

    reduction: str = "auto"
    update: str | None = None
    reduce_dtype: str = "same"

    def __post_init__(self):
        check_name(str(self.reduction))

    def made(self, net):
        """The Reduction for a ParallelSequential. Collective.

        ValueError if it can not be used on these devices, with this update or type.
        """
        text = str(self.reduction)
        if text == "auto" and (not net.grid.on_cpus or net.pipeline):
            text = "plain"
        if text in ("auto", "overlap"):
            text = _measured_choice(net, "overlap" if self.reduce_dtype == "float16" else text)
        kind, _, number = text.partition(":")
        update, dtype = self.update or (SHARDED if kind == "shared" else WHOLE), self.reduce_dtype
        if kind == "overlap":
            return OverlappedReduction(net, update, dtype, int(number))
        if kind == "plain":
            return BlockingReduction(net, update, dtype)
        if kind == "powersgd":
            return PowerSGDReduction(net, int(number), update, dtype)
        if net.pipeline:  # only shared is left
            raise ValueError("the reduction shared makes all ranks of a node wait for each other, which ranks of a pipeline do "
                             "not: use plain or overlap")  # fmt: skip
        return SharedMemoryReduction(net, update, dtype)


def _measured_choice(net, question):
    """The answer of `fastest_reduction`, but for shared memory that does not fit on every node. Collective."""
    answer = fastest_reduction(net, question)
    if question == "auto" and answer == "shared" and not has_room(net):
        answer = fastest_reduction(net, "overlap") if net.grid.node.size < net.grid.size else "plain"
    return answer
