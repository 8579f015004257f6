"""A covering array: few seeds whose cases have every two options together that cases have at all."""

from functools import cache
from itertools import combinations, product

from tests.random_networks.case import random_case

CANDIDATES = 400  # cases of which they are chosen
PLAIN = "layers", "shape", "batch_sizes", "seed", "cuts", "grid", "shares", "plan", "optimizer", "ranks_per_node"


def options(case):
    """The (field, value) pairs of a Case, a set; of what has many values it says what kind they are."""
    name, more = case.optimizer
    axes = [axis for axis, ranks in case.grid.items() if ranks > 1]
    words = case.plan if isinstance(case.plan, tuple) else [case.plan.partition("=")[0]]
    found = {(field, str(getattr(case, field))) for field in case.__dataclass_fields__ if field not in PLAIN}
    found |= {("axis", axis) for axis in axes} | {("plan", word) for word in words} | {("optimizer", name)}
    found |= {("option", option) for option in more if option not in ("eps", "momentum")}
    found |= {("shares", "with none" if 0 in numbers else "uneven") for numbers in (case.shares or {}).values()}
    found |= {("nodes", "several" if case.ranks_per_node < case.ranks else "one"), ("branches", str(not case.has_chain))}
    return found


def pairs(case):
    """All two options that a Case has together."""
    return set(combinations(sorted(options(case)), 2))


@cache
def covering(*numbers, candidates=CANDIDATES):
    """{number of ranks: seeds}: the cases of all candidates have no pair of options that theirs have not, on any number."""
    each = product(numbers, range(candidates // len(numbers)))
    found = {(ranks, seed): pairs(random_case(seed, ranks)) for ranks, seed in each}
    left, chosen = set().union(*found.values()), {ranks: [] for ranks in numbers}
    while left:
        ranks, seed = best = max(found, key=lambda one: len(found[one] & left))
        chosen[ranks].append(seed)
        left -= found[best]
    return chosen
