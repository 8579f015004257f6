"""What the axes of a grid do in a plan, and why other grids and plans lost, in words."""

from gridgrad.parallel.grid.process_grid import MODEL
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.plans import PLANS

OTHERS = {
    "batch": "all layers split the samples; the ranks sum their gradients",
    "height": "convolutions split the rows of each image, other layers the samples",
    "stage": "the ranks of a stage hold some of the layers, one stage after another",
}
NAMED = 3  # layers that are called by their names


def axes_in_words(sizes, cost):
    """A line for each axis of a grid with several ranks. cost: the Cost of its plan."""
    for axis, size in sizes.items():
        if size > 1:
            yield f"{axis}={size}: {model_in_words(cost) if axis == MODEL else OTHERS[axis]}"


def model_in_words(cost):
    """What the axis `MODEL` does: the most frequent use first, and then in which layers it does something else."""
    layers = {}
    for layer, word in zip(weighted(cost.net), cost.placed.plan):
        layers.setdefault(PLANS[word].use, []).append(f"{layer.name} {type(layer).__name__}")
    if len(layers) == 1:
        return f"all layers with weights {next(iter(layers))}"
    total = sum(map(len, layers.values()))
    first, *others = sorted(layers.items(), key=lambda item: -len(item[1]))
    parts = [f"{len(first[1])} of {total} layers with weights {first[0]}"]
    return "; only ".join([*parts, *(f"{named(names)} {words}" for words, names in others)])


def named(names):
    """Some layers: by their names, or the first and the last of many."""
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} from {names[0]} to {names[-1]}"


def why_lost(other, chosen):
    """In words, what makes one Candidate slower than another."""
    if other.reason:
        return other.reason
    if other.seconds < chosen.seconds:
        more, fewer = (candidate.step.bounding.collectives for candidate in (other, chosen))
        why = f"{more} collectives instead of {fewer}"
        if other.pipelined and not chosen.pipelined:
            why = "a pipeline, whose prediction leaves out more"
        elif more == fewer:
            why = "as many collectives, and later in the order of grids and plans"
        return f"{why}, for {milliseconds(chosen.seconds - other.seconds)} that the model may be wrong about"
    mine, theirs = other.step.parts, chosen.step.parts
    names = {
        "compute": "computing", "update": "the update", "gradients": "sums of gradients", "activations": "moving activations",
        "waiting": "waiting for other ranks",
    }  # fmt: skip
    more = sorted(((mine.get(part, 0.0) - theirs.get(part, 0.0), name) for part, name in names.items()), reverse=True)
    worse = [f"{milliseconds(value)} more for {name}" for value, name in more if value > 0.05 * abs(more[0][0])][:2]
    better = [f"{milliseconds(-value)} less for {name}" for value, name in more[::-1] if -value > 0.05 * abs(more[0][0])][:1]
    return ", ".join(worse + better) or "no difference that counts"


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms"
