"""The rows of the tables of `reproduce eserol2019`: what the thesis prints, what follows from that, and ours."""

from math import prod

from gridgrad.experiments.papers.cited import NOT_PRINTED, RATIO, Formula
from gridgrad.experiments.papers.eserol2019 import vgg16
from gridgrad.experiments.papers.eserol2019.costs import costs_of, horizontal
from gridgrad.experiments.papers.eserol2019.vgg16 import KNOWN
from gridgrad.nn import Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.network_hypergraph import of_network

KIB = 2**10
LIMITS = 1.1, 1.03, 1.15, 1.2  # max/avg of the searches that a row of their seconds has for itself
WORKS, VOLUMES = ("max", "min", "mean", "max/avg"), ("volume", "max", "mean")
SENT = Formula("2 (N - 1) times the MB of the parameters, for the epoch's images over the batch, in GB",
               lambda ranks, batch, mb, images: 2 * (ranks - 1) * mb * images / batch / KIB, "section 5.1.8")  # fmt: skip
OF_VOLUME = Formula("twice the volume, for the epoch's images over 32, in GB",
                    lambda volume, images, batch: 2 * volume * images / batch / KIB, "section 5.1.8")  # fmt: skip
LESS = Formula(
    "1 less the GB of the hypergraph over those of data parallelism, in %", lambda ours, data: 100 * (1 - ours / data)
)
LESS_BYTES = Formula(
    "the same with 4 bytes for each of the elements that the GB of the hypergraph are, in %",
    lambda ours, data: 100 * (1 - vgg16.ITEM_BYTES * ours / data),
)
MEMORY = Formula("the sum of the column, 4 bytes a number, in MB", lambda *texts: sum(map(of_text, texts)) * 4 / 1e6)
WEIGHTS = Formula("the sum of the column", lambda *counts: sum(counts))


def sizes_of(*some):
    """(channels of the image, filters, kernels, fully connected layers), of the output sizes of the image and of all layers but
    poolings, and the parameters of the convolutions, as Table 5.13 has them."""
    image, *layers = [one.split("x") for one in some if isinstance(one, str)]
    filters = sum(int(size[-1]) for size in layers if size[0] != "1")
    kernels = sum(one for one in some if not isinstance(one, str)) // 9
    return int(image[-1]), filters, kernels, sum(size[0] == "1" for size in layers)


def counts(words, function):
    """The Formula of a number of vertices or nets. function: of what `sizes_of` returns."""
    return Formula(words, lambda *some: function(*sizes_of(*some)))


HYPERGRAPHS = {  # grain: the Formulas of its vertices and its nets
    "coarse": (
        counts("a vertex for each filter, each fully connected layer and the image", lambda c, f, k, d: 1 + f + d),
        counts("a net for each vertex but the last layer", lambda c, f, k, d: f + d),
    ),
    "fine": (
        counts(
            "a vertex for each kernel of a filter (parameters over 9), for its sum, for each fully connected layer and each "
            "channel of the image", lambda c, f, k, d: c + k + f + d,
        ),
        counts(
            "two nets for each filter, one for each channel of the image and each fully connected layer but the last",
            lambda c, f, k, d: c + 2 * f + d - 1,
        ),
    ),
}  # fmt: skip


def of_text(text):
    """The number that the column Memory of Table 5.13 writes, such as 3.2M."""
    return float(text.rstrip("KM")) * {"K": 1e3, "M": 1e6}.get(text[-1], 1)


def cited(name, column):
    """A function of a line of ours that makes the Cited of its number of ranks; None where the thesis has no such table."""
    table = KNOWN.tables.get(name)
    return lambda line: table and table.cited(column, line["N"])


def balance_of(name):
    """A function of a line that makes the Cited of max over mean, which tables print with one decimal."""
    return lambda line: RATIO(cited(name, "max")(line), cited(name, "mean")(line))


def printed(name):
    """{ranks: its line} of a table of the thesis; {} where it has none."""
    table = KNOWN.tables.get(name)
    return {line["N"]: line for line in table.lines()} if table else {}


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


def grain_rows():
    """What the horizontal partition sends in both grains, among two ranks."""
    row = {"N": 2}
    for grain in ("coarse", "fine"):
        model = vgg16.model(grain)
        row[grain] = costs_of(model.owners(naive.horizontal(model, row["N"]), row["N"]), grain).volume
    return [row]


def load_rows(name, costs):
    """Work of the ranks, printed and ours. name: of the thesis' table. costs: {ranks: Costs}."""
    lines, found = printed(name), []
    for ranks in sorted({*lines, *costs}):
        theirs, row = lines.get(ranks, {}), {"N": ranks}
        loads = costs[ranks].at_work if ranks in costs else None
        ours = {} if loads is None else {"max": loads.max(), "min": loads.min(), "mean": loads.mean()}
        for column in WORKS[:3]:
            row |= {f"{column}, printed": theirs.get(column), column: whole(ours[column]) if ours else None}
        row |= {"max/avg, printed": theirs.get("max/avg")}
        row |= {"max/avg, derived": theirs["max"] / theirs["mean"] if theirs else None}
        found.append(row | {"max/avg": float(ours["max"] / ours["mean"]) if ours else None})
    return found


def whole(work):
    """Work without its decimals, which the thesis leaves out, but for those that come from rounded weights."""
    return int(work + 0.01)


def volume_rows(name, costs):
    """Volumes, printed and ours. name: of the thesis' table. costs: {ranks: Costs}."""
    lines, found = printed(name), []
    for ranks in sorted({*lines, *costs}):
        theirs, row, ours = lines.get(ranks, {}), {"N": ranks}, costs.get(ranks)
        row |= {"volume, printed": theirs.get("volume"), "star": ours and ours.star, "connectivity-1": ours and ours.volume}
        row |= {"MiB of float32": ours and ours.volume * vgg16.ITEM_BYTES}
        row |= {"max comm, printed": theirs.get("max"), "max comm, star": ours and ours.most_broadcast}
        row |= {"max comm": ours and ours.largest_layer, "avg comm, printed": theirs.get("mean")}
        at_work = ours and len(ours.at_work)
        row |= {"avg comm, star": ours and ours.star / at_work, "avg comm": ours and ours.volume / at_work}
        found.append(row | {"messages": ours and ours.messages, "largest of a rank, MiB": ours and moved(ours)})
    return found


def moved(costs):
    """What the rank sends and receives in a forward pass that does most, in MiB of float32; None if that is not known."""
    return None if costs.most_moved is None else costs.most_moved * vgg16.ITEM_BYTES


def search_row(case, costs):
    """What a search found, beside others."""
    return {
        "N": case.ranks, "grain": case.grain, "objective": case.objective, "max/avg allowed": case.balance,
        "max/avg": costs.balance, "connectivity-1": costs.volume, "star": costs.star,
        "MiB of float32": costs.volume * vgg16.ITEM_BYTES, "messages": costs.messages,
        "largest of a rank, MiB": moved(costs),
    }  # fmt: skip


def seconds_rows(kept):
    """How long searches took: a row for each processor, grain and limit. kept: {SearchCase: what is kept of it}."""
    found = {}
    for case, one in kept.items():
        if (case.objective, case.groups) == ("volume", 1):
            key = one["searched_on"], case.grain, case.balance if case.balance in LIMITS else "other"
            found.setdefault(key, {})[case.ranks] = max(one["seconds"], found.get(key, {}).get(case.ranks, 0.0))
    return [
        {"on": place, "grain": grain, "max/avg allowed": limit} | {f"N = {n}": took.get(n) for n in vgg16.RANKS}
        for (place, grain, limit), took in found.items()
    ]  # fmt: skip


def balance_rows(works, volumes, costs):
    """Printed and ours where no rank has more work, over the mean, than in the thesis. works, volumes: names of its tables."""
    found = []
    for ranks, line in printed(works).items():
        ours, volume = costs.get(ranks), printed(volumes)[ranks]["volume"]
        row = {"N": ranks, "max/avg, derived": line["max"] / line["mean"], "max/avg": ours and ours.balance}
        row |= {"volume, printed": volume, "connectivity-1": ours and ours.volume, "star": ours and ours.star}
        found.append(row | {"of the printed volume": ours and ours.volume / volume, "messages": ours and ours.messages})
    return found


def column_rows():
    """(rows for what the thesis prints in columns that follow from others, where it prints something else, how many numbers it
    prints there)."""
    found, counted = [], 0
    for name, table in KNOWN.tables.items():
        for line in table.lines():
            for column, value, slack in follows(line):
                counted += 1
                if abs(line[column] - value) > slack:
                    found.append(
                        {"table": name, "N": line["N"], "column": column, "printed": line[column], "follows": value}
                    )  # fmt: skip
    return found, counted


def follows(line):
    """(column, what follows for it from other columns, how far off it may be since all are cut) of a line of the thesis."""
    cut = lambda column: 1 if isinstance(line[column], int) else 0.1  # noqa: E731
    for column, over in (("max/min", "min"), ("max/avg", "mean")):
        if line.get(column, NOT_PRINTED) != NOT_PRINTED:
            ratio = line["max"] / line[over]
            yield column, ratio, 0.1 + (cut("max") + ratio * cut(over)) / line[over]
    if "max*N" in line:
        yield "max*N", line["max"] * line["N"], line["N"]
    if "volume" in line:
        yield "mean", line["volume"] / line["N"], cut("mean") + cut("volume") / line["N"]


def hypergraph_rows():
    """Sizes of hypergraphs: of the sample of Figure 3.5, and of VGG16, where what the thesis prints says how many there are."""
    layers = [Conv2d(3, 4, 3, padding=1), ReLU(), Conv2d(4, 3, 3, padding=1), ReLU(), Conv2d(3, 2, 3, padding=1), ReLU(),
              Flatten(), Linear(32, 4), Linear(4, 4), Linear(4, 2)]  # fmt: skip
    sample = of_network(Sequential(layers, input_shape=(4, 4, 3)), "coarse", None, 1, None, with_input=True, with_loss=False)
    known = {"sample, coarse": (sample, KNOWN.tables["3.5"].lines()[0])}
    for grain in HYPERGRAPHS:
        known[f"VGG16, {grain}"] = vgg16.model(grain), {what: one.value for what, one in hypergraph_sizes(grain).items()}
    found = []
    for name, (model, expected) in known.items():
        graph = model.hypergraph
        counts = {"vertices": graph.vertices, "nets": graph.nets, "pins": len(graph.pins)}
        row = {"hypergraph": name}
        for what, count in counts.items():
            row |= {f"{what}, the thesis": expected.get(what), what: count}
        found.append(row)
    return found


def hypergraph_sizes(grain):
    """{"vertices" or "nets": the Cited number of those of VGG16 that follows from Table 5.13}."""
    table = KNOWN.tables["5.13"]
    layers = [line["layer"] for line in table.lines() if "POOL" not in line["layer"]]
    inputs = [table.cited("output size", name) for name in layers]
    inputs += [table.cited("parameters", name) for name in layers if "CONV" in name]
    return {what: formula(*inputs) for what, formula in zip(("vertices", "nets"), HYPERGRAPHS[grain], strict=True)}


def parameter_rows():
    """Table 5.13: outputs, their elements, and numbers of weights, printed and of the network of the zoo; at the end sums."""
    shapes, shape = [(vgg16.IMAGE, 0)], vgg16.IMAGE
    biases = 0
    for layer in vgg16.network().leaves():
        shape = layer.output_shape(shape)
        if layer.kind or "Pool" in type(layer).__name__:
            weights = layer.parameters[0] if layer.kind else None  # the column counts no biases
            biases += sum(prod(other.shape) for other in layer.parameters[1:]) if layer.kind else 0
            shapes.append((shape, prod(weights.shape) if weights else 0))
    lines, found = KNOWN.tables["5.13"].lines(), []
    for line, (shape, count) in zip(lines, shapes, strict=True):
        size = "x".join(map(str, shape if len(shape) == 3 else (1, 1, *shape)))
        found.append(
            {"layer": line["layer"], "output size, printed": line["output size"], "output size": size,
             "memory, printed": line["memory"], "elements": prod(shape), "parameters, printed": line["parameters"],
             "parameters": count}
        )  # fmt: skip
    elements, weights = sum(row["elements"] for row in found), sum(row["parameters"] for row in found)
    values = KNOWN.values
    return [
        *found,
        dict.fromkeys(found[0]) | {"layer": "Total", "memory, printed": f"{values['image_MB'].value} MB", "elements": elements,
         "parameters, printed": values["parameters"].value, "parameters": weights + biases},
    ]  # fmt: skip


def memory_of_image():
    """The Cited of the memory of an image, in MB, that follows from the column Memory of Table 5.13."""
    table = KNOWN.tables["5.13"]
    return MEMORY(*(table.cited("memory", line["layer"]) for line in table.lines()))


def data_parallel(ranks, batch):
    """GB of float32 that all ranks send in an epoch with data parallelism."""
    values = KNOWN.values
    return SENT(ranks, batch, values["parameter_MB"], values["epoch_images"])


def model_parallel(volume):
    """An epoch of a partition of this volume, in units of 2^30 elements: forward and backward, for all images."""
    values = KNOWN.values
    return OF_VOLUME(volume, values["epoch_images"], values["volume_batch"])


def comparison_rows(ours):
    """Table 5.14. ours: {"coarse" or "fine": {ranks: Costs}}. The last row is the mean."""
    table, volumes, found = KNOWN.tables["5.14"], KNOWN.tables["5.10"], []
    data, hypergraph, reduction = table.columns[2:]
    for line in table.lines():
        key, ranks = (line["N"], line["batch"]), line["N"]
        against, theirs = table.cited(data, *key), table.cited(hypergraph, *key)
        row = {"N": ranks, "batch": line["batch"], "data parallel, printed GB": line[data]}
        row |= {"data parallel, GB": data_parallel(*key).value, "hypergraph, printed GB": line[hypergraph]}
        row |= {"hypergraph, GB by the volume of Table 5.10": model_parallel(volumes.cited("volume", ranks)).value}
        row |= {"reduction, printed %": line[reduction], "reduction, %": LESS.value(theirs, against)}
        row |= {"reduction in bytes, derived %": LESS_BYTES.value(theirs, against)}
        for grain, costs in ours.items():
            size = vgg16.ITEM_BYTES * model_parallel(costs[ranks].volume).value if ranks in costs else None
            row |= {f"our {grain} one, GB in bytes": size}
            row |= {f"our {grain} one: reduction, %": None if size is None else 100 * (1 - size / row["data parallel, GB"])}
        found.append(row)
    means = {"N": "mean", "reduction, printed %": KNOWN.values["reduction"].value}
    for column in found[0]:
        if column not in means and "reduction" in column:
            some = [row[column] for row in found]
            means[column] = None if None in some else sum(some) / len(some)
    return [*found, {key: means.get(key) for key in found[0]}]


def summary(costs):
    """{"2": {..}} for {ranks: Costs}: the numbers of ours that others read."""
    return {
        str(ranks): {
            "volume_melements": ours.volume, "star_melements": ours.star, "max_over_avg": ours.balance,
            "volume_MiB_float32": ours.volume * vgg16.ITEM_BYTES, "messages": ours.messages,
            "largest_of_a_rank_MiB": moved(ours),
        }
        for ranks, ours in costs.items()
    }  # fmt: skip
