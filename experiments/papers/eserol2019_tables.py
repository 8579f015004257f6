"""The rows of the tables of `reproduce eserol2019`: published beside ours."""

from math import prod

from gridgrad.experiments.papers import eserol2019_vgg16 as vgg16
from gridgrad.experiments.papers.eserol2019_costs import costs_of, horizontal
from gridgrad.parallel.partitioning import naive

IMAGES = 64000  # of the epoch of Table 5.14
COMPARED = 2, 4, 8  # ranks
BATCHES = 16, 32, 64
MIB, KIB = 2**20, 2**10


def naive_costs():
    """{method: {ranks: Costs}} of the simple partitions."""
    found = {"horizontal": {n: horizontal(n) for n in vgg16.RANKS}}
    for name, method, grain in (
        ("layer-wise", naive.layer_wise, "coarse"),
        ("filter-wise", naive.incremental, "coarse"),
        ("channel-wise", naive.incremental, "fine"),
    ):
        model = vgg16.model(grain)
        ranks = [n for n in vgg16.RANKS if method is not naive.layer_wise or n <= len(vgg16.LAYERS)]
        parts = {n: model.owners(method(model, n), n) for n in ranks}
        found[name] = {n: costs_of(owners, grain, best_root=False) for n, owners in parts.items()}
    return found


def load_rows(published, costs):
    """Work of the ranks. published: [ranks, largest, least, mean] or nothing. costs: {ranks: Costs}."""
    lines, found = {line[0]: line[1:] for line in published or ()}, []
    for ranks in sorted({*lines, *costs}):
        largest, least, mean = lines.get(ranks, (None, None, None))
        loads = costs[ranks].loads if ranks in costs else None
        ours = (None, None, None) if loads is None else (loads.max(), loads.min(), loads.mean())
        row = {"N": ranks}
        for name, theirs, mine in zip(("max", "min", "mean"), (largest, least, mean), ours):
            row |= {f"{name}, published": theirs, name: mine and whole(mine)}
        for name, over in (("max/min", 1), ("max/avg", 2)):
            pair = ((largest, least, mean), ours)
            ratios = [some[0] / some[over] if some[0] and some[over] else None for some in pair]
            row |= {f"{name}, published": ratios[0], name: ratios[1]}
        found.append(row | {"max*N of the published": largest and largest * ranks, "max*N": ours[0] and whole(ours[0] * ranks)})
    return found


def whole(work):
    """Work without its decimals, which the thesis leaves out, but for those that come from rounded weights."""
    return int(work + 0.01)


def volume_rows(published, costs, seconds=None):
    """Volumes. published: [ranks, volume, largest layer, mean]. costs: {ranks: Costs}. seconds: {ranks: of the search}."""
    found = []
    for ranks, volume, largest, mean in published:
        row, ours = {"N": ranks, "volume, published": volume}, costs.get(ranks)
        row |= {"star": ours and ours.star, "connectivity-1": ours and ours.volume}
        row |= {"MiB of float32": ours and ours.volume * vgg16.ITEM_BYTES}
        row |= {"max comm, published": largest, "max comm, star": ours and ours.most_broadcast}
        row |= {"max comm": ours and ours.largest_layer, "avg comm, published": mean}
        row |= {"avg comm, star": ours and ours.star / ranks, "avg comm": ours and ours.volume / ranks}
        row |= {"messages": ours and ours.messages, "largest of a rank, MiB": ours and moved(ours)}
        found.append(row | ({"seconds": seconds.get(ranks)} if seconds is not None else {}))
    return found


def moved(costs):
    """What the rank sends and receives in a forward pass that does most, in MiB of float32; None if that is not known."""
    return None if costs.most_moved is None else costs.most_moved * vgg16.ITEM_BYTES


def search_row(case, costs, seconds):
    """What a search found, beside others."""
    return {
        "N": case.ranks, "grain": case.grain, "objective": case.objective, "max/avg allowed": case.balance,
        "max/avg": costs.balance, "connectivity-1": costs.volume, "star": costs.star,
        "MiB of float32": costs.volume * vgg16.ITEM_BYTES, "messages": costs.messages,
        "largest of a rank, MiB": moved(costs), "seconds": seconds,
    }  # fmt: skip


def summary(costs, seconds):
    """{"2": {..}} for {ranks: Costs}: the numbers of ours that others read."""
    return {
        str(ranks): {
            "volume_melements": ours.volume, "star_melements": ours.star, "max_over_avg": ours.balance,
            "volume_MiB_float32": ours.volume * vgg16.ITEM_BYTES, "messages": ours.messages,
            "largest_of_a_rank_MiB": moved(ours), "seconds": seconds[ranks],
        }
        for ranks, ours in costs.items()
    }  # fmt: skip


def balance_rows(loads, volumes, costs, seconds):
    """Published and ours where no rank has more work, over the mean, than in the thesis."""
    found = []
    for (ranks, largest, _, mean), (_, volume, _, _) in zip(loads, volumes, strict=True):
        ours = costs.get(ranks)
        row = {"N": ranks, "max/avg, published": largest / mean, "max/avg": ours and ours.balance}
        row |= {"volume, published": volume, "connectivity-1": ours and ours.volume, "star": ours and ours.star}
        row |= {"of the published volume": ours and ours.volume / volume, "messages": ours and ours.messages}
        found.append(row | {"seconds": seconds.get(ranks)})
    return found


def parameter_rows(published):
    """Table 5.13: sizes of outputs and numbers of weights, published and of the network of the zoo."""
    found, shape = [(vgg16.IMAGE, 0)], vgg16.IMAGE
    for layer in vgg16.network().leaves():
        shape = layer.output_shape(shape)
        if layer.kind or "Pool" in type(layer).__name__:
            weights = layer.parameters[0] if layer.kind else None  # the thesis counts no biases
            found.append((shape, prod(weights.shape) if weights else 0))
    return [
        {"layer": name, "output size, published": "x".join(map(str, size)),
         "output size": "x".join(map(str, shape)), "elements": prod(shape), "parameters, published": theirs,
         "parameters": count, "equal": list(shape) == size and count == theirs}
        for (name, size, theirs), (shape, count) in zip(published, found, strict=True)
    ]  # fmt: skip


def data_parallel(ranks, batch):
    """MiB of float32 that all ranks send in an epoch with data parallelism."""
    return 2 * (ranks - 1) * vgg16.PARAMETERS * vgg16.ITEM_BYTES / MIB * IMAGES / batch


def model_parallel(volume):
    """An epoch of a partition of this volume, in 2^20 elements: forward and backward, for all its images."""
    return 2 * volume * IMAGES / vgg16.BATCH


def comparison_rows(published, volumes, ours):
    """Table 5.14. volumes: {ranks: published volume}. ours: {"coarse" or "fine": {ranks: Costs}}. The last row is the mean."""
    found, reductions = [], {}
    for ranks, batch, data, hypergraph, reduction in published:
        against = data_parallel(ranks, batch)
        row = {"N": ranks, "batch": batch, "data parallel, published GB": data, "data parallel, GB": against / KIB}
        row |= {"hypergraph, published GB": hypergraph, "hypergraph, 2^30 elements": model_parallel(volumes[ranks]) / KIB}
        row |= {"reduction, published %": reduction}
        theirs = {"mixed units": model_parallel(volumes[ranks])}
        theirs["their partition in bytes"] = theirs["mixed units"] * vgg16.ITEM_BYTES
        for grain, costs in ours.items():
            theirs[f"our {grain} one in bytes"] = (
                model_parallel(costs[ranks].volume) * vgg16.ITEM_BYTES if ranks in costs else None
            )
        for name, size in theirs.items():
            less = None if size is None else 100 * (1 - size / against)
            reductions.setdefault(name, []).append(less)
            row |= {} if name == "mixed units" else {f"{name}, GB": None if size is None else size / KIB}
            row |= {f"{name}: reduction, %": less}
        found.append(row)
    mean = {f"{name}: reduction, %": None if None in some else sum(some) / len(some) for name, some in reductions.items()}
    mean |= {"N": "mean", "reduction, published %": sum(line[-1] for line in published) / len(published)}
    return [*found, {key: mean.get(key) for key in found[0]}]
