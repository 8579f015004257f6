"""Making a case that fails as small as it can be while it still fails."""

from dataclasses import fields, replace

from tests.random_networks.case import Case
from tests.random_networks.layers import BRANCHING

ATTEMPTS = 600


def shrunk(case, fails, attempts=ATTEMPTS):
    """The smallest Case that was found and still fails. fails: a function of a Case, called at most `attempts` times."""
    seen, smaller = {repr(case)}, candidates(case)
    while attempts:
        candidate = next(smaller, None)
        if candidate is None:
            break
        if repr(candidate) in seen:
            continue
        seen.add(repr(candidate))
        attempts -= 1
        if fails(candidate):
            case, smaller = candidate, candidates(candidate)
    return case


def candidates(case):
    """Cases that are somewhat smaller, those first from which most is gone."""
    usual = Case(case.layers, case.shape)
    for layers in smaller_layers(case.layers):
        yield replace(case, layers=layers)
    for one in fields(case):
        if one.name not in ("layers", "shape", "grid") and getattr(case, one.name) != getattr(usual, one.name):
            yield replace(case, **{one.name: getattr(usual, one.name)})
    if len(case.batch_sizes) > 1:
        for i in range(len(case.batch_sizes)):
            yield replace(case, batch_sizes=case.batch_sizes[:i] + case.batch_sizes[i + 1 :])
    for i, size in enumerate(case.batch_sizes):
        if size > 1:
            yield replace(case, batch_sizes=(*case.batch_sizes[:i], size - 1, *case.batch_sizes[i + 1 :]))
    for i, length in enumerate(case.shape):
        if length > 1:
            yield replace(case, shape=(*case.shape[:i], length - 1, *case.shape[i + 1 :]))
    for axis, ranks in case.grid.items():
        if ranks > 1:
            shares = {other: numbers for other, numbers in (case.shares or {}).items() if other != axis}
            yield replace(case, grid=case.grid | {axis: ranks - 1}, shares=shares or None)


def smaller_layers(values):
    """Lists of layers that are smaller than this one."""
    for i in range(len(values)):
        yield values[:i] + values[i + 1 :]
    for i, (name, *arguments) in enumerate(values):
        before, behind = values[:i], values[i + 1 :]
        if name in BRANCHING:
            for branch in arguments:
                yield before + branch + behind
            for j, branch in enumerate(arguments):
                for smaller in smaller_layers(branch):
                    yield [*before, (name, *arguments[:j], smaller, *arguments[j + 1 :]), *behind]
        elif len(arguments) > 1:
            yield [*before, (name, *arguments[:-1]), *behind]
        if name in ("Linear", "SparseLinear", "Conv2d", "TiedAutoencoder") and arguments[0] > 1:
            yield [*before, (name, arguments[0] - 1, *arguments[1:]), *behind]
