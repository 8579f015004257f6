"""The options of `train` that find faults of a job: ranks that hang, replicas that differ, NaN."""

from gridgrad.experiments.common.options import number, whole
from gridgrad.parallel.faults.checks import FiniteCheck, ReplicaCheck
from gridgrad.parallel.faults.watchdog import Watchdog


def add_faults(parser):
    """Add the options."""
    add = parser.add_argument
    add("--watchdog", type=number(above=0), metavar="SECONDS", help="end the job when a rank has waited so long in one "
        "collective or receive once the network is on the grid, and say where all ranks are; give more than the ranks ever "
        "wait for the slowest one (default: ranks wait for ever)")  # fmt: skip
    add("--check-replicas", type=whole(1), metavar="N", help="compare checksums of the parameters, the buffers and the "
        "optimizer's state every N steps on ranks that hold the same, and end the job if they differ")  # fmt: skip
    add("--check-finite", action="store_true", help="look for NaN and infinity in every pass of every layer, and name the "
        "first; slow (default: look where one comes from when a loss is not finite)")  # fmt: skip


class Faults:
    """Looks for faults while a network is trained, as the options say, until `stop`. Making one is collective.

    args: the options. comm: all ranks. net: the ParallelSequential. protocol: its update protocol. ValueError for options that
    do not fit the devices.
    """

    def __init__(self, args, comm, net, protocol):
        self.checks = [FiniteCheck(net)] if args.check_finite else []
        if args.check_replicas:
            self.checks.append(ReplicaCheck(net, protocol.optimizer, args.check_replicas))
        self.watchdog = Watchdog(comm, args.watchdog, net) if args.watchdog else None
        if self.watchdog:
            self.watchdog.start()

    def after_step(self, step):
        """Called after each training step, with its number. Collective."""
        for check in self.checks:
            check.after_step(step)

    def stop(self):
        """Called at the end."""
        if self.watchdog:
            self.watchdog.stop()
