"""The table of all checks, and a test on several ranks that runs any of them for any cases."""

from dataclasses import replace
from importlib.util import find_spec

from tests.mpi import mpi
from tests.parallel.equality import on_cpus
from tests.random_networks.case import Case, random_case
from tests.random_networks.checks import EXCUSED, copied_case, copies_are_equal, equals_serial
from tests.random_networks.predictions import are_as_predicted
from tests.random_networks.protocols import keeps_its_promise
from tests.random_networks.relocating import moves_after_every_step
from tests.random_networks.resuming import resumes_elsewhere
from tests.random_networks.serial import gradients_equal_differences, halves_are_the_whole, memory_may_be_used_again
from tests.random_networks.staleness import gradients_are_of_the_weights_used, stale_case
from tests.random_networks.tables import table_of
from tests.random_networks.wider import wider_case


def alone(case, comm):
    """What is true of the serial network."""
    case = replace(case, dtype="float64")  # for finite differences
    gradients_equal_differences(case)
    memory_may_be_used_again(case)
    halves_are_the_whole(case)


def as_pytorchs(case, comm):
    """What is true of the serial network beside that of PyTorch."""
    from tests.random_networks import pytorch  # here, since it need not be installed

    pytorch.states_are_exchanged(case)
    pytorch.updates_equal_pytorchs(case)
    pytorch.passes_equal_pytorchs(case)


CHECKS = {
    "serial": alone,
    "pytorch": as_pytorchs,
    "training": equals_serial,
    "copies": copies_are_equal,
    "predictions": are_as_predicted,
    "resuming": resumes_elsewhere,
    "relocating": moves_after_every_step,
    "protocols": keeps_its_promise,
    "stale": gradients_are_of_the_weights_used,
}
ON_ONE_RANK = "serial", "pytorch"
DRAWN = {"pytorch": wider_case, "copies": copied_case, "stale": stale_case}  # checks whose cases are not those of `random_case`
NO_PYTORCH = "PyTorch is not installed here: run `make peers`, which installs it"
MISSING = {} if find_spec("torch") else {"pytorch": NO_PYTORCH}  # what can not be checked here, and why


def drawn(name, seed, ranks):
    """The Case of a seed for a check, on so many ranks."""
    return DRAWN.get(name, random_case)(seed, ranks)


def check(comm, name, cases):
    """Run a check for cases; what fails says which one it was. Collective."""
    cpus = on_cpus(comm)
    for case in cases:
        try:
            with table_of(case):
                CHECKS[name](case if cpus else case.on_devices(), comm)
        except Exception as failure:
            failure.add_note(f"{name}: {case!r}")
            raise


def check_seeds(comm, name, seeds):
    """The same for the cases of some seeds. Collective.

    It also fails if the differences of too many cases are taken for rounding: one may be, and one more for every twenty cases.
    """
    EXCUSED.clear()
    for seed in seeds:
        try:
            check(comm, name, [drawn(name, seed, comm.size)])
        except Exception as failure:
            failure.add_note(f"seed {seed} on {comm.size} ranks")
            raise
    assert len(EXCUSED) <= 1 + len(seeds) // 20, f"too many differences are said to be rounding: {EXCUSED}"


def ordered(comm, order):
    """What the program asks for: {"check": its name, "seeds": a list, or "case": the expression of one}."""
    if "case" in order:
        check(comm, order["check"], [eval(order["case"], {"Case": Case, "replace": replace})])
    else:
        check_seeds(comm, order["check"], order["seeds"])


on_ranks = mpi()(ordered)
