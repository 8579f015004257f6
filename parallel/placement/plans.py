"""Plans: for each layer with weights, how its weights and activations are placed along the model axis.

| choice      | weight W (.., inputs, outputs) | input of the layer          | output                      |
|-------------|--------------------------------|-----------------------------|-----------------------------|
| "out"       | `Shard(outputs)`               | `Replicate`                 | `Shard(C)`                  |
| "in"        | `Shard(inputs)`                | `Shard(C)`                  | `Partial`                   |
| "replicate" | `Replicate`                    | `Shard(N)`                  | `Shard(N)`                  |
| "redundant" | `Invariant`                    | `Invariant`                 | `Invariant`                 |
| "height"    | `Replicate`                    | `Shard(H)`                  | `Shard(H)`                  |
| "width"     | `Replicate`                    | `Shard(W)`                  | `Shard(W)`                  |
| "laugier"   | `Shard(outputs)`               | `Replicate`                 | `Invariant`                 |
| "marques"   | `Shard(outputs)`, handed out   | `Shard(N)`, all on one rank | `Shard(N)`, all on one rank |
| "hidden"    | `Shard(hidden units)`          | `Replicate`                 | `Partial`                   |
| "hypergraph" | `Tile`                        | `Shard(C)`: what is needed  | `Shard(C)`: what is owned   |

With "replicate" every rank of the model axis holds the whole weight and computes the layer for its part of the samples, so the
axis acts as a further batch axis. With "redundant" every rank computes the whole layer for all samples, as all the others do:
the gradient of its weights is the same on all of them and is not summed. That pays where a layer is small, or a minibatch has
one sample alone, and Grabaskas 2018 does so with layers that it does not split; "fewest-bytes" never chooses it. With "height"
or "width", which only convolutions can have, each rank computes its part of the rows or columns of every image. "laugier" is
the algorithm of Laugier et al. 2018 (Algorithms 2 and 3): the outputs are all-gathered to every rank at once, and backward
slices the gradient of the output and all-reduces that of the input: over both directions a rank sends 3 (P-1)/P of a layer's
activations, where all-gather and reduce-scatter send 2 (P-1)/P. It is here for comparison with the other plans. So is
"marques", the algorithm of Marques 2016 (`parallel/placement/marques.py`): the first rank holds all samples and weights, and
hands out the input and the kernels of each convolution. "hidden" is for a TiedAutoencoder alone, whose hidden units are the
columns of its weight: each rank computes some of them, and the part of the output that these add. It can only have this or
"replicate". With "hypergraph" every rank computes the filters, or the channels of filters, that a partition of the network
gives it (`parallel/placement/hypergraph.py`).

Along the axis `height`, convolutions always have "height", and Linear layers and autoencoders "replicate".
"""

from dataclasses import dataclass
from math import prod

from gridgrad.nn.sequence import leaves, shapes
from gridgrad.parallel.placement.move_table import elements_sent
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import PIXELS, C, H, Invariant, N, Partial, Replicate, Shard, W
from gridgrad.parallel.placement.redistribute import Redistribute

OUTPUTS, INPUTS = -1, -2  # dimensions of a weight


@dataclass(frozen=True)
class Choice:
    """What a word of a plan means for a layer with weights along an axis.

    Parameters
    ----------
    input, output
        The placements that the layer needs and leaves; a number stands for a Shard of that dimension.
    weight : int or None
        The dimension of the weight that is sharded: -1 for its outputs, -2 for its inputs; None if every rank holds all of it.
        Its gradient is then a partial sum on each rank, unless the output is Invariant: it is whole on each of them.
    move : subclass of Redistribute
        The layer that brings the input to its placement: Redistribute, or a subclass with another algorithm.

    Examples
    --------
    >>> from gridgrad.parallel import CHOICES, Choice, C, Replicate
    >>> CHOICES["out"] == Choice(Replicate(), C, weight=-1)
    True
    """

    input: Replicate | Invariant | int
    output: Invariant | Partial | int
    weight: int | None = None
    move: type[Redistribute] = Redistribute


CHOICES = {
    "out": Choice(Replicate(), C, OUTPUTS),
    "in": Choice(C, Partial(), INPUTS),
    "replicate": Choice(N, N),
    "redundant": Choice(Invariant(), Invariant()),
    "height": Choice(H, H),
    "width": Choice(W, W),
    "laugier": Choice(Replicate(), Invariant(), OUTPUTS),
    "marques": Choice(N, N, OUTPUTS),
    "hidden": Choice(Replicate(), Partial(), OUTPUTS),
    "hypergraph": Choice(C, C, OUTPUTS),
}
FIXED = {"batch": "replicate", "height": "conv=height,linear=replicate,autoencoder=replicate"}  # axes with one possible plan
CHOSEN = "model"  # the axis whose plan is the user's or the planner's
HYPERGRAPH, REDUNDANT = "hypergraph", "redundant"
WHOLE = "laugier", "marques", HYPERGRAPH  # choices that are the same for all layers
SHARDED = {"linear": ("out", "in"), "conv": ("out", "in"), "autoencoder": ("hidden",)}  # by kind: what "fewest-bytes" chooses
WORDS = "fewest-bytes, laugier, marques, hypergraph, out, in, replicate, redundant, height or width"


def weighted(net):
    """The layers of a network that a plan makes a choice for, those that have a `kind`, in the order in which they run."""
    return weighted_in(net.layers)


def weighted_in(layers):
    """The layers with weights in a list of layers, see `weighted`."""
    return [leaf for leaf in leaves(layers) if leaf.kind]


def choices(layers, words):
    """{axis: {layer: choice}} for all axes. words: for each of these layers, its choice along the axis `CHOSEN`."""
    fixed = {axis: dict(zip(layers, words_of(text, layers), strict=True)) for axis, text in FIXED.items()}
    return fixed | {CHOSEN: dict(zip(layers, words, strict=True))}


def fewest_bytes(sizes, ranks, allowed=None):
    """The plan that sends the fewest bytes in a step on an axis of `ranks` ranks: a list of choices, one for each layer.

    It is a shortest path over the layers, where an edge costs what both directions send between two layers for one sample.
    Halos, which are small beside that, are left out, and the layers of branches count as if they followed one another.
    sizes: (features in, features out) of each layer, for one sample. allowed: one tuple for each layer with the choices that
    are considered, by default those of Linear layers in `SHARDED`, with which all weights are sharded.

    With 3 or more ranks the plan sends at most 2/3 of what "laugier" sends. So it does with 2 ranks, if the network has several
    layers and the last one at most 1.5 times as many outputs as inputs.
    """
    allowed = allowed or [SHARDED["linear"]] * len(sizes)
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
        """Elements sent between a layer with a choice and the next layer, whose input has the placement `kind`.

        Partial sums are reduced immediately behind the layer, where there are `leaving` features. All else is moved just before
        the next layer, where there are `entering` features; pooling in between makes this number smaller.
        """
        target = placement(kind, entering)
        left = CHOICES[choice].output
        if left != Partial():
            return cost(placement(left, entering), target, entering)
        if target.dim is not None:
            return cost(Partial(), placement(kind, leaving), leaving)
        return cost(Partial(), placement(C, leaving), leaving) + cost(placement(C, entering), target, entering)

    best = {choice: (0, [choice]) for choice in allowed[0]}  # reading the input sends no bytes
    for (_, leaving), (entering, _), words in zip(sizes, sizes[1:], allowed[1:], strict=False):
        best = {
            choice: min(
                (total + between(p[-1], CHOICES[choice].input, leaving, entering), [*p, choice]) for total, p in best.values()
            )
            for choice in words
        }
    features = sizes[-1][1]

    def to_loss(choice):
        return 0 if CHOICES[choice].output == Invariant() else between(choice, N, features, features)

    return min((total + to_loss(p[-1]), p) for total, p in best.values())[1]


def feature_sizes(net, shape):
    """(features in, features out) of one sample for each layer with weights. ValueError if a layer does not fit its input."""
    sizes = {layer: (prod(before), prod(after)) for layer, before, after in shapes(net.layers, shape)}
    return [sizes[layer] for layer in weighted(net)]


def words_of(text, layers):
    """The words of a plan, one for each layer with weights. ValueError if they do not fit. text: see `parallelize`."""
    words = text.split(",")
    if all("=" in word for word in words):
        kinds = dict(word.split("=", 1) for word in words)
        if len(kinds) < len(words) or not {"conv", "linear"} <= kinds.keys() <= SHARDED.keys():
            raise ValueError(f"plan '{text}': by kind it names conv and linear, such as conv=width,linear=out: use {WORDS}")
        words = [kinds.get(layer.kind, "fewest-bytes") for layer in layers]
    elif len(words) == 1:
        words *= len(layers)
    if len(words) != len(layers):
        raise ValueError(f"plan '{text}' has {len(words)} choices but the net has {len(layers)} layers with "
                         "weights: give one for each of them, or one for all")  # fmt: skip
    for word, layer in zip(words, layers, strict=True):
        if word not in CHOICES and word != "fewest-bytes":
            raise ValueError(f"plan '{text}': unknown choice '{word}': use {WORDS}")
        if word in CHOICES and CHOICES[word].input in PIXELS and layer.kind != "conv":
            raise ValueError(f"plan '{text}': layer {layer.name} {layer!r} has no {word} to split: use conv={word},linear=..")
        if word == "hidden" and layer.kind != "autoencoder":
            raise ValueError(f"plan '{text}': layer {layer.name} {layer!r} has no hidden units: hidden is for autoencoders")
        if layer.kind == "autoencoder" and word not in ("fewest-bytes", "replicate", "hidden"):
            raise ValueError(f"plan '{text}': layer {layer.name} {layer!r} takes hidden or replicate, not {word}")
    return words


def parse_plan(text, layers, sizes, ranks):
    """The choices that the text of a plan stands for, one for each layer with weights; ValueError if it does not fit.

    text: as the option --plan takes it. layers: see `weighted`. sizes, ranks: see `fewest_bytes`.
    """
    words = words_of(text, layers)
    for word in WHOLE:
        if word in words and len(set(words)) > 1:
            raise ValueError(f"plan '{text}': {word} is a whole algorithm and does not mix with other choices")
    allowed = [SHARDED[layer.kind] if word == "fewest-bytes" else (word,) for word, layer in zip(words, layers, strict=True)]
    return fewest_bytes(sizes, ranks, allowed)
