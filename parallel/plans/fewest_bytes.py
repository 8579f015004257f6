"""The plan "fewest-bytes": for each layer the choice with which all layers together send the fewest bytes. With 3 or more ranks
it sends at most 2/3 of what "laugier" sends; with 2 ranks too, if the network has several layers and the last one at most 1.5
times as many outputs as inputs."""

from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import PIXELS, C, Invariant, N, Partial, Shard
from gridgrad.parallel.plans.plans import PLANS, candidates


def fewest_bytes(sizes, ranks, allowed=None):
    """The word for each layer of the plan that sends the fewest bytes: a shortest path over the layers, without halos, branches
    one after another. sizes: (features in, out) of a sample at each layer. allowed: words for each, by default `candidates`."""
    allowed = allowed or [candidates("linear")] * len(sizes)
    if all(len(words) == 1 for words in allowed):
        return [word for (word,) in allowed]

    def placement(kind, features):
        if kind == C:
            return Shard(C, Partition.even(features, ranks))
        # Parts of images are flattened into shards of the samples.
        return Shard(N, Split(ranks)) if kind in (N, *PIXELS) else kind

    def cost(source, target, features):
        samples = ranks  # one for each rank, so that an all-to-all is even
        there_and_back = (source, target), (target.adjoint, source.adjoint)
        return sum(elements_sent(a, b, samples, (features,), ranks) for a, b in there_and_back)

    def between(choice, kind, leaving, entering):
        """Elements sent between a layer and the next. Partial sums are reduced where there are `leaving` features; all else
        moves just before the next layer, where there are `entering` features (fewer after pooling)."""
        target = placement(kind, entering)
        left = PLANS[choice].output
        if left != Partial():
            return cost(placement(left, entering), target, entering)
        if target.dim is not None:
            return cost(Partial(), placement(kind, leaving), leaving)
        return cost(Partial(), placement(C, leaving), leaving) + cost(placement(C, entering), target, entering)

    best = {choice: (0, [choice]) for choice in allowed[0]}  # reading the input sends no bytes
    for (_, leaving), (entering, _), words in zip(sizes, sizes[1:], allowed[1:], strict=False):
        best = {
            choice: min(
                (total + between(p[-1], PLANS[choice].input, leaving, entering), [*p, choice]) for total, p in best.values()
            )
            for choice in words
        }
    features = sizes[-1][1]

    def to_loss(choice):
        return 0 if PLANS[choice].output == Invariant() else between(choice, N, features, features)

    return min((total + to_loss(p[-1]), p) for total, p in best.values())[1]
