"""Which tests `make test` runs, and which of the others each run of CI.

- `--quick`: what a newcomer waits for. It leaves out tests that are marked long or listed in `slow.txt`, and more than four
  ranks. Of its other numbers of ranks a test runs on one, above 1; a test that is marked quick runs on all of them.
- `--slow`: all that `--quick` leaves out, with the other cases of the same functions, which may build on one another.
- `--part N`: of the tests that are left every sixth, from the N-th on. Six runs with N = 0 to 5, or 6 to 11, run all of them.

`slow.txt` lists what took more than 0.6 s on several ranks, or 1 s elsewhere, when everything took 15 minutes on two cores of
an EPYC (Zen 4): `pytest --durations=0` says what takes long now.
"""

from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

from tests.mpi import ranks_of

PARTS = 6
MOST_RANKS = 4  # in `make test`
SLOW = Path(__file__).with_name("slow.txt")


def add_options(parser):
    group = parser.getgroup("selection")
    group.addoption("--quick", action="store_true", help="only what `make test` runs")
    group.addoption("--slow", action="store_true", help="only what `make test` does not run")
    group.addoption("--part", type=int, metavar="N", help=f"every {PARTS}th test from the N-th on")


def select(config, items):
    """Leave those of the collected items that the options ask for."""
    option, kept = config.option, items
    if option.quick or option.slow:
        slow = listed()
        unknown = slow - {name for item in items for name in names_of(item)}
        if unknown and config.args == [SLOW.parent.name] and not option.ignore:  # all tests are collected
            raise pytest.UsageError(f"{SLOW.name} names {min(unknown)}, which is no test: delete the line")
        quick = quick_ones(items, slow)
        left_out = {together(item) for item in items if item not in quick}
        kept = [item for item in items if (item in quick if option.quick else together(item) in left_out)]
    if option.part is not None:
        mine = {*list(dict.fromkeys(map(together, kept)))[option.part % PARTS :: PARTS]}
        kept = [item for item in kept if together(item) in mine]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def quick_ones(items, slow):
    """The set of those items that `make test` runs. slow: the names of slow tests."""
    found, on_ranks = set(), defaultdict(list)
    for item in items:
        ranks, is_quick = ranks_of(item), item.get_closest_marker("quick")
        if item.get_closest_marker("long") or ranks > MOST_RANKS or not slow.isdisjoint(names_of(item)):
            continue
        if ranks and not is_quick:
            on_ranks[item.nodeid.rpartition("[")[0]].append(item)
        else:
            found.add(item)
    for name, candidates in on_ranks.items():
        several = [item for item in candidates if ranks_of(item) > 1] or candidates
        found.add(several[crc32(name.encode()) % len(several)])
    return found


def together(item):
    """What a test belongs to: itself if it is of ranks, else all cases of its function, where one may need what others made."""
    return item.nodeid if ranks_of(item) else item.nodeid.partition("[")[0]


def listed():
    """The names in `slow.txt`: a set."""
    return {line for line in SLOW.read_text().splitlines() if line and not line.startswith("#")}


def names_of(item):
    """The names of a test in `slow.txt`: with its parameters, and without them, which stands for all of them."""
    name = item.nodeid.removeprefix(f"{SLOW.parent.name}/")
    return name, name.partition("[")[0]
