"""Loads of machines that tests make up."""

from gridgrad.experiments.common.machine_load import Counters, load_of_node


def made_up(others, seconds=10.0):
    """The MachineLoad of a rank on two cores, one of which it kept busy. others: cores that other processes took."""
    cores = {0: (0.0, 0.0), 1: ((1 - others) * seconds, 0.0)}
    return load_of_node([Counters(seconds, seconds, {}, cores)])


QUIET, BUSY = made_up(0.02), made_up(0.9)
