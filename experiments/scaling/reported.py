"""What a report says of layers and collectives, checked: what `hatchet.py` and `extrap.py` read of it."""

from gridgrad.nn.files.json_forms import AT_LEAST_0, TEXT, Each, Optional, check
from gridgrad.parallel.observe.span_observer import METHODS

COLLECTIVE = {"layer": TEXT, "kind": TEXT, "calls": AT_LEAST_0, "bytes": AT_LEAST_0, "seconds": Optional(AT_LEAST_0)}
LAYER = {"layer": TEXT, "kind": TEXT} | dict.fromkeys(METHODS, AT_LEAST_0)
REPORTED = {"time": Optional(Each(AT_LEAST_0)), "communication": Optional([COLLECTIVE]), "layers": Optional([LAYER]),
            "parts": Optional(Each(AT_LEAST_0)), "rank_bytes": Optional(AT_LEAST_0)}  # fmt: skip


def checked(records):
    """The records; ValueError for one that is damaged."""
    for record in records:
        try:
            check(record, REPORTED)
        except ValueError as error:
            raise ValueError(f"a report of {record['net']} on {record['grid']} is damaged ({error}): measure it again, with "
                             "--anew") from None  # fmt: skip
    return records
