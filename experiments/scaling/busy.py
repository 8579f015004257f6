"""Whether runs were measured beside other programs that took so much of the machine that their times do not compare."""

from gridgrad.experiments.common.machine_load import verdict_of


def is_busy(record):
    """Whether the run of a record was."""
    return bool(verdict_of(record))


def is_busy_alone(row):
    """Whether all runs that a Row has its numbers from were, as there are no others."""
    return bool(row.runs) and all(map(is_busy, row.runs))
