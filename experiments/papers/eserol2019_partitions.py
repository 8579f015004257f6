"""VGG16 as Eserol 2019 divides it: its units and works, the partitions that are searched for, and what partitions cost.

Communication is in "MB" of the thesis: elements of a batch of 32 images, divided by 2^20. In float32 four times as many bytes
move. A map is sent after pooling. Work is what the profile of the thesis gave each layer, found by fitting its tables; the
three fully connected layers are one vertex each.

Of a partition only the numbers of filters of each rank, or the owners of blocks of channels, are kept, and how long the search
took, on which processor. What it costs is always counted from these, on the full hypergraph of VGG16, as the hypergraph says
and by way of a star, as the thesis does. For few ranks an integer program proves which coarse partition is the best.
"""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from time import perf_counter

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from gridgrad.nn.kernels.processor import processor
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning import chains, naive
from gridgrad.parallel.partitioning.chains import Chain, capacities
from gridgrad.parallel.partitioning.good_partition import FINE_BLOCKS, fine_search
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.plans.hypergraph import Owners

BATCH = 32
MEBI = 2**20  # elements in the "MB" of the thesis
ITEM_BYTES = 4
RANKS = 2, 4, 8, 16, 32, 64, 128
FILTERS = 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512
WORKS = 629, 6624, 2677, 5896, 2130, 4801, 4740, 2330, 4677, 4600, 1069, 1069, 1069, 546, 84, 60
SIDES = 224, 224, 112, 112, 56, 56, 56, 28, 28, 28, 14, 14, 14  # of the maps that a convolution makes
POOLED = 224, 112, 112, 56, 56, 56, 28, 28, 28, 14, 14, 14, 7  # of those that it sends
IMAGE = 224, 224, 3
NEURONS = 4096, 4096, 1000


def melements(elements):
    """Elements of an image in the unit of the thesis."""
    return np.asarray(elements) * BATCH / MEBI


def chain_of_layers(groups=1):
    """Its layers as a `Chain`: the input, thirteen convolutions, and three fully connected layers. groups: of neurons, into
    which each of the latter is divided: 1, as in the thesis, or 2, 4 or 8."""
    filters = [1, *FILTERS, *len(NEURONS) * [groups]]
    outputs = [np.prod(IMAGE), *(side**2 for side in POOLED), *(neurons / groups for neurons in NEURONS[:-1]), 0]
    return Chain(filters, [work / f for work, f in zip([0, *WORKS], filters)], melements(outputs))


@lru_cache(maxsize=1)
def layer_names():
    """The names of the layers with weights in the network."""
    return [layer.name for layer in network().leaves() if layer.kind]


def network():
    """The network itself, not allocated."""
    return network_names.build("vgg16", IMAGE, NEURONS[-1])


@lru_cache(maxsize=8)
def model(grain="coarse", blocks=None, groups=1):
    """The NetworkHypergraph of the thesis: the input is owned by vertices, one or, in the fine grain, three; the loss is not.
    blocks: of filters, see `of_network`; by default each is a vertex. groups: as for `chain_of_layers`. Weights are work in
    millionths."""
    seconds = {name: work * 1e-6 for name, work in zip(layer_names(), WORKS, strict=True)}
    return of_network(network(), grain, blocks, groups, seconds, with_input=True, with_loss=False)


def owners_of_counts(counts):
    """The `Owners` for counts of `chain_of_layers`, with as many groups as it has."""
    found = {}
    for name, outputs, row in zip(layer_names(), (*FILTERS, *NEURONS), counts[1:], strict=True):
        found[name] = np.repeat(np.arange(len(row)), row * (outputs // row.sum()))
    return Owners(counts.shape[1], found)


# ----- searches

EPSILON = 0.1
OTHERS = 0.03, 0.15, 0.2  # imbalances of appendix A
MORE_EVEN = 1.01  # a limit for 4 ranks, to see what evenness costs
SOLVED = 2, 4  # ranks for which the best partition is proved
DENSE_GROUPS = 8  # of neurons, where the fully connected layers are divided
EVEN = 1.1005  # max/avg: what a partition with an imbalance of 0.1 may have, rounded as it is printed
LOOSE = WORKS[len(FILTERS)] / (sum(WORKS) / 128)  # max/avg of 128 ranks, one of which has FC1


@dataclass(frozen=True)
class SearchCase:
    """A search. grain: "coarse", "fine", or "exact", the coarse grain with a proof. balance: the most work that a rank may
    have, over the mean. objective: see `chains.search`. groups: of the neurons of each fully connected layer."""

    grain: str
    ranks: int
    balance: float = 1 + EPSILON
    objective: str = "volume"
    groups: int = 1

    @property
    def words(self):
        """All of it in words."""
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items())


def cases(ranks, balances, others):
    """All searches for these numbers of ranks. balances: {grain: {ranks: max/avg of the thesis}}. others: the numbers of ranks
    with the imbalances of appendix A."""
    found = [SearchCase("exact", n) for n in ranks if n in SOLVED]
    for grain in ("coarse", "fine"):
        found += [SearchCase(grain, n) for n in ranks]
        found += [SearchCase(grain, n, balances[grain][n]) for n in ranks]
        found += [SearchCase(grain, n, LOOSE) for n in ranks if n == 128]
        found += [SearchCase(grain, n, 1 + imbalance) for imbalance in OTHERS for n in others]
    found += [SearchCase("coarse", n, objective=objective) for n in ranks if n <= 16 for objective in ("messages", "largest")]
    found += [SearchCase("coarse", n, MORE_EVEN) for n in ranks if n == 4]
    return found + [SearchCase("coarse", n, groups=DENSE_GROUPS) for n in ranks if n >= 64]


def search(case):
    """What is kept of a case: its fields, the partition, and the seconds that it took."""
    start = perf_counter()
    if case.grain == "fine":
        models = partial(model, "fine")
        kept = contracted(fine_search(models, case.ranks, case.balance - 1), case)
    else:
        speeds, epsilon, chain = [1] * case.ranks, case.balance - 1, chain_of_layers(case.groups)
        if case.grain == "exact":
            counts, _ = solve(chain, speeds, epsilon)
        else:
            counts = chains.search(chain, speeds, epsilon, case.objective)
        kept = {"counts": [words(row) for row in counts[1:]]}
    return asdict(case) | {"seconds": round(perf_counter() - start, 2), "searched_on": processor().title} | kept


def contracted(owners, case):
    """Owners of blocks, for the fewest blocks of which they are owners."""
    for blocks in FINE_BLOCKS:
        try:
            return {"blocks": blocks, "parts": words(model("fine", blocks).parts(owners))}
        except ValueError:  # they divide one of these blocks
            continue
    raise ValueError(f"the partition for {case} has none of the numbers of blocks {FINE_BLOCKS}")


def owners_of(kept):
    """The case and the Owners of what `search` has returned. Raises UserError if that is not a partition of VGG16."""
    try:
        case = replace(SearchCase("", 0), **{name: kept[name] for name in asdict(SearchCase("", 0))})
        if case.grain == "fine":
            return case, model("fine", kept["blocks"]).owners(numbers(kept["parts"]), case.ranks)
        chain, rows = chain_of_layers(case.groups), [numbers(row) for row in kept["counts"]]
        image = np.eye(1, case.ranks, dtype=int)  # at the first rank that needs it, or at any other: `parts` decides
        return case, owners_of_counts(chain.check(np.vstack([image, *rows])))
    except (KeyError, ValueError, TypeError) as error:
        why = f"a kept partition is none of VGG16 ({error}): search again, without --tables-only"
        raise UserError(f"tables.json: {why}") from None


def words(row):
    """Whole numbers as text, which takes one line of a file."""
    return " ".join(map(str, row))


def numbers(text):
    return np.array(text.split(), int)


# ----- what a partition costs


@dataclass(frozen=True)
class Costs:
    """Of a partition. Volumes are in the unit of the thesis, of a forward pass.

    loads: the work of each rank, (ranks,). volume: connectivity-1. star: by way of a root for each layer. most_broadcast: the
    most that a root sends. messages: of a forward pass, None if not counted. most_moved: the most that one rank sends and
    receives, which is what it sends in a training step.
    """

    loads: np.ndarray
    volume: float
    star: float
    most_broadcast: float
    messages: int | None = None
    most_moved: float | None = None

    @property
    def row(self):
        """All of it as a row. Least and mean work are of the ranks that have any, as in the thesis; the balance is of all."""
        at_work = self.loads[self.loads > 0]
        works = {"max": self.loads.max(), "min": at_work.min(), "mean": at_work.mean()}
        return {
            "N": len(self.loads), **{name: whole(work) for name, work in works.items()},
            "max/avg": float(works["max"] / works["mean"]), "balance": float(self.loads.max() / self.loads.mean()),
            "volume, connectivity-1": self.volume, "volume, star": self.star, "largest layer, star": self.most_broadcast,
            "volume over ranks, star": self.star / len(at_work),
            "MiB of float32": self.volume * ITEM_BYTES, "messages": self.messages,
            "largest of a rank, MiB": None if self.most_moved is None else self.most_moved * ITEM_BYTES,
        }  # fmt: skip


def whole(work):
    """Work without its decimals, which the thesis leaves out, but for those that come from rounded weights."""
    return int(work + 0.01)


def costs_of(owners, grain, groups=1, best_root=True, blocks=None):
    """The Costs of Owners, on the full hypergraph. best_root: see `star`. blocks: of filters, if they are known not to be
    divided: what travels is that of the hypergraph of these blocks, which is smaller."""
    full, few, ranks = model(grain, None, groups), model(grain, blocks, groups), owners.ranks
    traffic = few.hypergraph.traffic(few.parts(owners), ranks)  # alone: `measure` also searches for stars, which takes longer
    loads = full.hypergraph.part_weights(full.parts(owners), ranks) * (sum(WORKS) / full.hypergraph.weights.sum())
    moved = traffic.sum(axis=(0, 2)) + traffic.sum(axis=(0, 1))
    volume, most = melements([traffic.sum(), moved.max()]).tolist()
    return Costs(loads, volume, *star(owners, best_root), int(np.count_nonzero(traffic)), most)


def simple():
    """{method: [Costs for each number of ranks that it can divide by]} of the partitions that need no search."""
    found = {"filter-wise horizontal": [horizontal(n) for n in RANKS]}
    for name, method, grain in (
        ("layer-wise", naive.layer_wise, "coarse"),
        ("filter-wise incremental", naive.incremental, "coarse"),
        ("channel-wise incremental", naive.incremental, "fine"),
    ):
        divided, most = model(grain), len(WORKS) if method is naive.layer_wise else RANKS[-1]
        parts = [divided.owners(method(divided, n), n) for n in RANKS if n <= most]
        found[name] = [costs_of(owners, grain, best_root=False) for owners in parts]
    return found


def equally_divided(grain):
    """What the horizontal partition of a hypergraph sends among two ranks, fully connected layers whole (connectivity-1)."""
    divided = model(grain)
    return costs_of(divided.owners(naive.horizontal(divided, 2), 2), grain).volume


def horizontal(ranks):
    """The Costs of dividing every layer into equal parts, the fully connected ones too, which are not counted as sent."""
    unpooled = melements(filters_times(SIDES) + sum(NEURONS)).item()
    pooled = melements(filters_times(POOLED) + np.prod(IMAGE)).item()
    largest = melements(max(f * side**2 for f, side in zip(FILTERS, POOLED))).item() * (ranks - 1)
    volume = (ranks - 1) * pooled
    return Costs(np.full(ranks, sum(WORKS) / ranks), volume, volume + (1 - 1 / ranks) * unpooled, largest)


def filters_times(sides):
    """The elements of all maps of convolutions whose maps have these sides."""
    return sum(filters * side**2 for filters, side in zip(FILTERS, sides))


def star(owners, best_root):
    """(what travels by way of a root for each layer, the most that a root sends of a layer), in the unit of the thesis.

    Every map, or partial sum of one, is sent to the root of its layer as it was made, and from there, pooled, to each other
    rank that computes any of the next layer. best_root: whether the root is the rank for which this is least, or where the last
    filter is made.
    """
    makers = [made_at(owners, name) for name in layer_names()]
    users = [some.any(0) for some in makers]
    unpooled = [side**2 for side in SIDES] + [1] * len(NEURONS)
    pooled = [side**2 for side in POOLED] + [1] * len(NEURONS)
    total = broadcast = np.prod(IMAGE) * (users[0].sum() - 1)
    for made, need, size, sent in zip(makers, users[1:], unpooled, pooled):
        gathered = size * (made.sum() - made.sum(0))
        from_root = sent * len(made) * (need.sum() - need)
        root = (gathered + from_root).argmin() if best_root else made[-1].nonzero()[0][-1]
        total += gathered[root] + from_root[root]
        broadcast = max(broadcast, from_root[root])
    return float(melements(total)), float(melements(broadcast))


def made_at(owners, name):
    """Whether a rank makes a map of a layer, or a partial sum of it: a bool array (maps, ranks)."""
    pairs = owners.pairs.get(name, owners.outputs[name][None])
    made = np.zeros((pairs.shape[1], owners.ranks), bool)
    made[np.broadcast_to(np.arange(pairs.shape[1]), pairs.shape), pairs] = True
    return made


# ----- the best partition, proved


def solve(chain, speeds, epsilon=0.1):
    """(counts of the partition of least volume in which no rank has more work than `capacities` says, the proved bound of it).
    speeds: the relative speed of each rank. Raises ValueError if there is no such partition."""
    most = capacities(chain, speeds, epsilon)
    layers, ranks = len(chain.filters), len(most)
    size = layers * ranks
    # The filters that a rank has of a layer, whether it has any, and how many of the layer before then need no sending to it:
    # each of these is the row of coefficients that picks the variable.
    x, y, z = np.eye(3 * size).reshape(3, layers, ranks, 3 * size)
    rows = []  # (coefficients, the least, the most of their sum)
    for layer, filters in enumerate(chain.filters):
        rows.append((x[layer].sum(0), filters, filters))
        for r in range(ranks):
            rows.append((x[layer, r] - filters * y[layer, r], -np.inf, 0))
            if layer:
                rows.append((z[layer, r] - x[layer - 1, r], -np.inf, 0))
                rows.append((z[layer, r] - chain.filters[layer - 1] * y[layer, r], -np.inf, 0))
    loads = np.tensordot(chain.works, x, 1)
    rows += [(load, -np.inf, limit) for load, limit in zip(loads, most)]
    equal = np.flatnonzero(most[1:] == most[:-1])  # of partitions that differ in the names of equal ranks alone, one is enough
    rows += [(loads[r] - loads[r + 1], 0, np.inf) for r in equal]
    sent = (chain.filters[:-1, None, None] * y[1:] - z[1:]).sum(1)
    bounds = Bounds(0, np.concatenate([np.repeat(chain.filters, ranks), np.ones(size), np.full(size, np.inf)]))
    limits, whole = LinearConstraint(*map(np.array, zip(*rows))), np.repeat([1, 1, 0], size)
    result = milp(chain.costs[:-1] @ sent, integrality=whole, bounds=bounds, constraints=limits, options={"mip_rel_gap": 0})
    if result.x is None:
        raise ValueError(f"no partition of {layers} layers over {ranks} ranks: {result.message}")
    return chain.check(np.rint(result.x[:size]).reshape(layers, ranks).astype(int)), result.mip_dual_bound
