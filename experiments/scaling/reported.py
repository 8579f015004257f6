"""What a report says of layers, collectives and the network, checked: what `hatchet.py`, `extrap.py`, `volumes.py`, `terms.py`
and `fit.py` read of it beside what `summary.py` checks. Seconds that are missing or null count as 0."""

from gridgrad.nn.files.documents import AT_LEAST_0, TEXT, WHOLE, Each, Kind, Optional, check
from gridgrad.parallel.observe.span_observer import METHODS

COLLECTIVE = {"layer": TEXT, "kind": TEXT, "calls": AT_LEAST_0, "bytes": AT_LEAST_0, "seconds": Optional(AT_LEAST_0)}
LAYER = {"layer": TEXT, "kind": TEXT} | dict.fromkeys(METHODS, AT_LEAST_0)
PLAN = Kind("a text or a list of texts", lambda value: all(isinstance(one, str) for one in value)
            if isinstance(value, list) else isinstance(value, str))  # fmt: skip
REPORTED = {
    "time": Optional(Each(AT_LEAST_0)), "communication": Optional([COLLECTIVE]), "layers": Optional([LAYER]),
    "parts": Optional(Each(AT_LEAST_0)), "terms": Optional(Each(AT_LEAST_0)), "rank_bytes": Optional(AT_LEAST_0),
    "features": Optional(WHOLE), "outputs": Optional(WHOLE), "shape": Optional([WHOLE]), "plan": Optional(PLAN),
    "samples_per_step": Optional(AT_LEAST_0),
}  # fmt: skip


def checked(records):
    """The records; ValueError for one that is damaged."""
    for record in records:
        try:
            check(record, REPORTED)
        except ValueError as error:
            raise ValueError(f"a report of {record['net']} on {record['grid']} is damaged ({error}): measure it again, with "
                             "--anew") from None  # fmt: skip
    return records
