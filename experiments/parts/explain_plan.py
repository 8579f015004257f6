"""What the axes of a grid do in a plan, in words."""

from gridgrad.parallel.placement.plan import CHOSEN, weighted
from gridgrad.parallel.plans.all_plans import PLANS

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
            yield f"{axis}={size}: {model_in_words(cost) if axis == CHOSEN else OTHERS[axis]}"


def model_in_words(cost):
    """What the axis `CHOSEN` does: the most frequent use first, and then in which layers it does something else."""
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
