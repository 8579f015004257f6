"""A good partition of a network, with one call: what `--plan hypergraph` uses; and partitions in files, for `--plan FILE`.

In a chain of layers the filters of a layer are interchangeable, so the coarse grain is a search over their numbers (`chains`).
For other networks and the fine grain there is a partitioner of hypergraphs. It does better where the filters of each layer are
joined to a few blocks, since a good partition gives a rank some consecutive filters with some channels, and takes about a
second: several numbers of blocks and seeds are tried, and the best is refined by annealing.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import h5py
import numpy as np

from gridgrad.nn.files import limits
from gridgrad.nn.files.hdf5_arrays import made_in_memory, own, read_array, reading
from gridgrad.parallel.partitioning import chains, mt_kahypar, naive
from gridgrad.parallel.partitioning.annealing import refine
from gridgrad.parallel.partitioning.hypergraph import limits_of
from gridgrad.parallel.partitioning.network_hypergraph import GRAINS, OBJECTIVES, measure, of_network
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH, Owners

NEURON_BLOCKS = 64  # the most of a Linear layer, where hypergraphs are partitioned
BLOCKS, LARGEST_BLOCK = (8, 16, 32), 0.35  # of a layer, at least; the most work of a block, in shares of a rank
MOVES = 200_000  # of `refine`
FINE_BLOCKS, FINE_MOVES = (8, 12, 16), 1_000_000  # of `fine_search`: blocks of the filters of a layer, and moves of `refine`
SEEDS = 2  # for each of these numbers of blocks
CYCLES = 6  # of improvement, each some hundredths of a second
FORMAT, SUFFIX = "gridgrad owners 1", ".h5"  # of files of Owners, which any program can write, and of their names


def partition(net, ranks, grain="coarse", speeds=None, **options):
    """The Owners of a network, so that little is sent and no rank has more work than it should. options: of a PartitionSearch.
    The same arguments give the same partition. ValueError, in one line, for bad ones, and without a partitioner."""
    if grain not in GRAINS:
        raise ValueError(f"grain '{grain}' is unknown: use {' or '.join(GRAINS)}")
    search = PartitionSearch(net, ranks, speeds, **options)
    return search.coarse() if grain == "coarse" else search.fine()


@dataclass(frozen=True)
class PartitionSearch:
    """What a partition is searched for, in either grain. ValueError for arguments that are none."""

    net: Any  # a Sequential with an `input_shape`
    ranks: int
    speeds: Any = None  # the shares of the ranks are as these numbers; None if they are equal
    epsilon: float = 0.1  # how much too much work a rank may have, in shares; if impossible, the most even partition is taken
    objective: str = "volume"  # to minimise: the elements sent; "messages"; or "largest", what one rank sends and receives
    seed: int = 0
    seconds: dict | None = None  # as for `of_network`

    def __post_init__(self):
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective '{self.objective}' is unknown: use {', '.join(OBJECTIVES)}")
        limits_of(np.ones(1), self.ranks, self.epsilon, self.speeds)  # refuses bad speeds

    def cost(self, model, parts):
        """What is minimised, a tuple: the objective, then all of them."""
        found = measure(model, parts, self.ranks, self.speeds)
        return tuple(getattr(found, name) for name in (OBJECTIVES[self.objective], *OBJECTIVES.values()))

    def coarse(self):
        """The best Owners of the coarse grain; of a network with branches, the best `candidates` or the most even ones."""
        if chain := chains.chain_of(self.net, self.seconds):
            speeds = np.ones(self.ranks) if self.speeds is None else self.speeds
            with suppress(chains.TooFull):
                counts = chains.search(chain[0], speeds, self.epsilon, self.objective, self.seed)
                return chains.owners(counts, chain[1])

        def value(candidate):
            model, parts = candidate
            most, _ = model.hypergraph.limits(self.ranks, self.epsilon, self.speeds)
            excess = (model.hypergraph.part_weights(parts, self.ranks) / most).max()
            return (max(1.001, excess), *self.cost(model, parts))

        model, parts = min(self.candidates(), key=value)
        if self.objective == "volume" and self.ranks > 1:
            parts = refine(model.hypergraph, parts, self.ranks, self.epsilon, self.speeds, self.seed, MOVES)
        return model.owners(parts, self.ranks)

    def candidates(self):
        """Yield pairs (NetworkHypergraph of the coarse grain, the part of each vertex), some with parts that are too large."""
        layers = of_network(self.net, "coarse", 1, 1, self.seconds)
        work = {name: layers.hypergraph.weights[vertices[0]] for name, vertices in layers.outputs.items()}
        most, _ = layers.hypergraph.limits(self.ranks, self.epsilon, self.speeds)
        share = max(1, most.min() / (1 + self.epsilon))
        for least in BLOCKS:
            blocks = {name: max(least, ceil(some / (LARGEST_BLOCK * share))) for name, some in work.items()}
            neurons = {name: min(most, NEURON_BLOCKS) for name, most in blocks.items()}
            model = of_network(self.net, "coarse", blocks, neurons, self.seconds)
            yield from ((model, method(model, self.ranks, self.speeds)) for method in (naive.layer_wise, naive.incremental))
            given = model.hypergraph, self.ranks, self.epsilon, self.speeds, self.seed
            for preset in mt_kahypar.PRESETS:
                try:
                    yield model, mt_kahypar.partition(*given, preset)
                except mt_kahypar.Overfilled as overfilled:
                    yield model, overfilled.parts

    def fine(self):
        """The best Owners of the fine grain, of which the partitions of the coarse grain are some."""
        found = [self.coarse()]
        blocks = partial(of_network, self.net, "fine", neuron_blocks=NEURON_BLOCKS, seconds=self.seconds)
        with suppress(mt_kahypar.Overfilled):
            given = self.ranks, self.epsilon, self.speeds, self.objective, self.seed
            found.insert(0, fine_search(blocks, *given, moves=MOVES))
        whole = of_network(self.net, "fine", neuron_blocks=None)
        return min(found, key=lambda owners: self.cost(whole, whole.parts(owners)))


def fine_search(contracted, ranks, epsilon=0.1, speeds=None, objective="volume", seed=0, blocks=FINE_BLOCKS, moves=FINE_MOVES):
    """The best Owners found in the fine grain, in which no rank has more work than `limits_of` says; Overfilled if none was
    found. contracted: a function of the number of blocks to the NetworkHypergraph. blocks: the numbers of blocks to try."""
    candidates, failure = [], None
    for model in map(contracted, blocks):
        graph, found = model.hypergraph, []
        for attempt in range(SEEDS * seed, SEEDS * (seed + 1)):
            try:
                found.append(mt_kahypar.partition(graph, ranks, epsilon, speeds, attempt, "HIGHEST_QUALITY", CYCLES))
            except mt_kahypar.Overfilled as error:  # a part became too large, as it does where blocks are large: others may fit
                failure = error
        if found and ranks > 1 and moves:
            least = min(found, key=lambda parts: graph.volume(parts, ranks))
            found.append(refine(graph, least, ranks, epsilon, speeds, seed, moves))
        for parts in found:
            measures = measure(model, parts, ranks, speeds)
            candidates.append((getattr(measures, OBJECTIVES[objective]), measures.volume, len(candidates), model, parts))
    if not candidates:
        raise failure
    *_, model, parts = min(candidates)
    return model.owners(parts, ranks)


# ----- partitions that a plan names


def is_partition(plan):
    """Whether the text of a plan stands for a partition: "hypergraph", "hypergraph:fine", or the name of a file of Owners."""
    word, _, grain = plan.partition(":")
    if word == HYPERGRAPH and grain not in ("", *GRAINS):
        raise ValueError(f"plan '{plan}': the grain '{grain}' is unknown: use {' or '.join(GRAINS)}")
    return word == HYPERGRAPH or plan.endswith(SUFFIX)


def owners_of_plan(plan, net, ranks, speeds=None):
    """The Owners for the ranks of the axis `model`, of the text of a plan; ValueError or OSError if it does not fit."""
    if not plan.endswith(SUFFIX):
        return partition(net, ranks, plan.partition(":")[2] or "coarse", speeds)
    owners = read_owners(plan, net)
    if owners.ranks != ranks:
        raise ValueError(f"{plan}: it is for {owners.ranks} ranks along the axis model, not for {ranks}: make one for {ranks}")
    return owners


def write_owners(owners, path):
    """Write attributes `format`, `ranks`, `loss`, and an array for each layer in `outputs` and `pairs`; whole or not at all."""
    kind = np.min_scalar_type(owners.ranks)
    with made_in_memory(path) as file:
        file.attrs.update({"format": FORMAT, "ranks": owners.ranks, "loss": owners.loss})
        for group in ("outputs", "pairs"):
            folder = file.create_group(group, track_order=True)
            for name, found in getattr(owners, group).items():
                folder.create_dataset(name, data=found.astype(kind), compression="gzip" if found.size else None)


def read_owners(path, net):
    """The Owners in a file, for a network. Raises OSError without the file, ValueError if it is none or does not fit."""
    with open(path, "rb", opener=limits.ordinary):  # a missing file is said in words of the system
        pass
    layers = {layer.name: layer for layer in net.leaves() if layer.kind}
    shapes = {"outputs": lambda layer: (layer.outputs,), "pairs": lambda layer: (layer.inputs, layer.outputs)}
    with reading(path, "not the owners of this network", "write it anew, for example by the program partition") as file:
        if file.attrs.get("format") != FORMAT:
            raise ValueError(f"it does not say that it is '{FORMAT}'")
        for name in ("ranks", "loss"):
            if not isinstance(file.attrs.get(name), np.integer):
                raise ValueError(f"the attribute {name} must be a whole number")
        outputs, pairs = (_arrays(file, group, layers, shape) for group, shape in shapes.items())
        owners = Owners(int(file.attrs["ranks"]), outputs, pairs, int(file.attrs["loss"]))
        owners.check(layers.values())
    return owners


def _arrays(file, group, layers, shape):
    """{name: array} of a group of a file. shape: a function of a layer. ValueError for a wrong array, before it is read."""
    folder, found = own(file, group, h5py.Group), {}
    for name in folder:
        if name not in layers:
            raise ValueError(f"there is no layer {name} with weights")
        what = f"the {group} of layer {name} {layers[name]!r}"
        found[name] = read_array(folder, name, shape(layers[name]), "iu", what)
    return found
