"""Loads of machines that tests make up."""

from gridgrad.experiments.common.machine_load import RankLoad, load_of_node


def made_up(others, seconds=10.0):
    """The MachineLoad of a rank on two cores, one of which it kept busy. others: cores that other processes took."""
    cores = {0: (seconds, 0.0), 1: (others * seconds, 0.0)}
    return load_of_node([RankLoad("n1", "n1", seconds, seconds, {}, cores, 0.0, 0.0, 0, None, None, None)])


QUIET, BUSY = made_up(0.02), made_up(0.9)
