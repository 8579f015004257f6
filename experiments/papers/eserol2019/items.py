"""Eserol 2019 on the page of all papers: its tables and figures as items."""

from gridgrad.experiments.papers.cited import Formula
from gridgrad.experiments.papers.eserol2019 import experiments as paper
from gridgrad.experiments.papers.eserol2019 import items_times
from gridgrad.experiments.papers.eserol2019 import tables as rows
from gridgrad.experiments.papers.eserol2019.items_times import COMMAND
from gridgrad.experiments.papers.eserol2019.vgg16 import KNOWN
from gridgrad.experiments.papers.items import Item, ItemRow, rows_of

TITLE = (
    "Eserol: Fast and efficient model parallelism for deep convolutional neural networks (Master's thesis, Bilkent "
    "University, 2019)"
)
ABOUT = (
    "VGG16 is divided among processors by partitions of a hypergraph of its filters, which a partitioner finds, and trained "
    "in a pipeline of several minibatches. The thesis claims better balance, less communication and faster training than "
    "with other ways to divide the network, and than with data parallelism."
)
DESCRIBED = (
    "Tables 2.1 to 2.3 and Figures 1.1 to 3.4, 4.1 to 4.7 and 5.1 are definitions, drawings and the specification of a node: "
    "they hold no results. What the thesis prints is in `experiments/papers/published/eserol2019.toml`. Of a partition, what "
    "was measured is what was counted, in full, on a partition that was found."
)
RESULTS = "results/eserol2019/tables.json"
UNIT = "2^20 elements of a batch of 32"
FITTED = (
    "The works of the layers are not in the thesis. They were fitted to Tables 5.1 and 5.5, so that they agree there proves "
    "little: what they give is called a prediction"
)
BY_WORKS = "works of the layers, fitted to Tables 5.1 and 5.5 (`experiments/papers/eserol2019/vgg16.py`)"
STAR = "Counted by way of a star, as the thesis does"
FINDER = (
    "PaToH is not open: these are partitions of our own searches, with at most 1.10 times the mean work on a rank, and they "
    "send less. The thesis does not say whether it counts a star or connectivity-1: both are here"
)
METHODS = {
    "5.1": "layer-wise partition", "5.3": "filter-wise horizontal partition", "5.5": "filter-wise incremental partition",
    "5.7": "channel-wise incremental partition", "5.9": "coarse hypergraph", "5.11": "fine hypergraph",
}  # fmt: skip
SECTIONS = {"5.1": "5.1.1", "5.3": "5.1.2", "5.5": "5.1.3", "5.7": "5.1.4", "5.9": "5.1.5", "5.11": "5.1.6"}
WORKS = {
    "5.1": f"{FITTED}.", "5.3": f"All ranks have the same work. {FITTED}.",
    "5.5": f"{FITTED}. Ranks without work are left out of least and mean, as the thesis does from N = 64 on.",
    "5.7": f"{FITTED}.", "5.9": f"{FINDER}.", "5.11": f"{FINDER}; the thesis' partitions are more even.",
}  # fmt: skip
VOLUMES = {
    "5.2": f"{STAR}; the thesis rounds down.", "5.4": f"{STAR}; the thesis leaves the decimals out.",
    "5.6": f"{STAR}; from N = 64 on the thesis' cuts could not be found.",
    "5.8": f"{STAR}; the thesis' cuts of channels could not all be found.",
    "5.10": f"{FINDER}. For N = 2, 8 and 16 the thesis' layer-wise partitions send less (Table 5.2), with up to 2.5 times the "
    "mean work on a rank.",
    "5.12": f"{FINDER}.",
}  # fmt: skip
SEARCHED = "5.9", "5.10", "5.11", "5.12"
PREDICTED_WORKS = "5.1", "5.3", "5.5", "5.7"
TORN = "The table is torn in the text that the numbers were taken from: there is nothing to compare with."
SEARCH = f"Nothing was searched for at this limit yet: `gridgrad {COMMAND}` does."
SOME = "Some numbers of ranks were not searched for yet at this limit."


def items(tables):
    """All items, in the order of the thesis. tables: of `eserol2019.tables`."""
    found = [hypergraphs(tables)]
    for number in range(1, 13):
        found.append(work(tables, f"5.{number}") if number % 2 else volumes(tables, f"5.{number}", f"5.{number - 1}"))
    found += [parameters(tables), comparison(tables), *items_times.items(tables)]
    return [*found, *as_even(tables), *(appendix(tables, name) for name in paper.APPENDIX)]


def measured_on(tables):
    """How partitions were measured, in words; empty where none were."""
    return "counted, on any processor" if tables else ""


def rank(line):
    return f"N = {line['N']}"


def hypergraphs(tables):
    """Figure 3.5, and the hypergraphs of VGG16."""
    sample, found = KNOWN.tables["3.5"], []
    for row in tables["hypergraphs"]:
        name = row["hypergraph"]
        grain = name.rpartition(", ")[2]
        for what in ("vertices", "nets", "pins"):
            one = sample.cited(what, 13) if name.startswith("sample") else rows.hypergraph_sizes(grain).get(what)
            found.append(ItemRow(f"{name}: {what}", one, row[what]))
    return Item(
        "Figure 3.5", "sizes of the hypergraphs: the sample, and VGG16", "sections 3.3 to 3.5", tuple(found),
        "The hypergraphs here are those of the thesis, as far as its sample and its rules say.", RESULTS, command=COMMAND,
        reason="The thesis prints the sizes of the sample alone.",
    )  # fmt: skip


def work_quantities(name, predicted=False):
    """The quantities of a table of work, for `rows_of`."""
    ours = lambda column: (None, column) if predicted else (column, None)  # noqa: E731
    quantities = {column: (rows.cited(name, column), *ours(column)) for column in rows.WORKS[:3]}
    return quantities | {"max/avg": (rows.balance_of(name), *ours("max/avg"))}


def work(tables, name):
    """A table of work of section 5.1."""
    predicted = name in PREDICTED_WORKS
    return Item(
        f"Table {name}", f"work of the ranks, {METHODS[name]}", f"section {SECTIONS[name]}",
        rows_of(tables[name], rank, work_quantities(name, predicted)), WORKS[name], RESULTS,
        BY_WORKS if predicted else "", COMMAND, reason=TORN if name in paper.TORN else "",
    )  # fmt: skip


def volume_quantities(name, searched):
    """The quantities of a table of communication, for `rows_of`."""
    volume = rows.cited(name, "volume")
    return {
        "volume, star": (volume, "star", None),
        "volume, connectivity-1": (volume if searched else None, "connectivity-1", None),
        "largest layer, star": (rows.cited(name, "max"), "max comm, star", None),
        "volume over ranks, star": (rows.cited(name, "mean"), "avg comm, star", None),
    }


def volumes(tables, name, works):
    """A table of communication of section 5.1."""
    searched = name in SEARCHED
    figures = ("partition.png",) if name == "5.10" and tables["coarse"] else ()
    return Item(
        f"Table {name}", f"communication, {METHODS[works]}: {UNIT}", f"section {SECTIONS[works]}",
        rows_of(tables[name], rank, volume_quantities(name, searched)), VOLUMES[name], RESULTS,
        command=COMMAND, figures=figures, reason="" if searched else "The thesis has no connectivity-1 of simple partitions.",
    )  # fmt: skip


def parameters(tables):
    """Table 5.13."""
    table, values = KNOWN.tables["5.13"], KNOWN.values
    cited = lambda column: lambda line: table.cited(column, line["layer"])  # noqa: E731
    quantities = {
        "output": (cited("output size"), "output size", None), "memory, numbers": (cited("memory"), "elements", None),
        "parameters": (cited("parameters"), "parameters", None),
    }  # fmt: skip
    *layers, total = tables["5.13"]
    megabytes = total["elements"] * 4 / 1e6
    weights = rows.WEIGHTS(*(table.cited("parameters", line["layer"]) for line in layers))
    sums = (
        ItemRow("Total: memory of an image, MB", values["image_MB"], megabytes),
        ItemRow("Total, from the column: memory of an image, MB", rows.memory_of_image(), megabytes),
        ItemRow("Total: memory of a batch of 128, GB", values["batch_GB"], megabytes * 128 / rows.KIB),
        ItemRow("Total: parameters with biases", values["parameters"], total["parameters"]),
        ItemRow("Total, from the column: parameters without biases", weights, sum(line["parameters"] for line in layers)),
    )
    return Item(
        "Table 5.13", "VGG16: sizes of outputs, memory and numbers of weights", "section 5.1.7",
        rows_of(layers, lambda line: line["layer"], quantities) + sums,
        "The same network. The column of parameters is without biases, its sum with them. The sum of the memory, 93 MB, does "
        "not follow from the column, which makes 61 MB in numbers of 4 bytes.",
        RESULTS, command=COMMAND,
    )  # fmt: skip


def comparison(tables):
    """Table 5.14."""
    known, values = KNOWN.tables, KNOWN.values
    table, volumes = known["5.14"], known["5.10"]
    data, hypergraph, reduction = table.columns[2:]

    def cited(column):
        return lambda line: table.cited(column, line["N"], line["batch"])

    def derived(formula):
        return lambda line: formula(cited(hypergraph)(line), cited(data)(line))

    quantities = {
        "data parallel, GB": (cited(data), None, None),
        "data parallel by its formula, GB": (lambda line: rows.data_parallel(line["N"], line["batch"]), None, None),
        "hypergraph, GB of the thesis": (cited(hypergraph), None, None),
        "hypergraph by Table 5.10, GB of the thesis": (
            lambda line: rows.model_parallel(volumes.cited("volume", line["N"])), None, None,
        ),
        "reduction in mixed units, %": (cited(reduction), None, None),
        "reduction by these GB, %": (derived(rows.LESS), None, None),
        "reduction in bytes, our coarse one, %": (derived(rows.LESS_BYTES), "our coarse one: reduction, %", None),
        "reduction in bytes, our fine one, %": (derived(rows.LESS_BYTES), "our fine one: reduction, %", None),
    }  # fmt: skip
    *lines, mean = tables["5.14"]
    pairs = [one for line in lines for one in (cited(hypergraph)(line), cited(data)(line))]
    means = (
        ItemRow("mean: reduction in mixed units, %", values["reduction"]),
        ItemRow("mean, as the table has it: reduction in mixed units, %", values["reduction_table"]),
        ItemRow("mean: reduction by these GB, %", mean_of(rows.LESS)(*pairs)),
        *(
            ItemRow(f"mean: reduction in bytes, our {grain} one, %", mean_of(rows.LESS_BYTES)(*pairs),
                mean[f"our {grain} one: reduction, %"])
            for grain in ("coarse", "fine")
        ),
    )  # fmt: skip
    return Item(
        "Table 5.14", "data parallelism against hypergraph partitions, an epoch of 64,000 images", "section 5.1.8",
        rows_of(lines, lambda line: f"N = {line['N']}, batch {line['batch']}", quantities) + means,
        "The thesis compares elements of its partitions with bytes of data parallelism; in bytes on both sides the reduction "
        "is smaller, and that of our partitions lies between.",
        RESULTS, command=COMMAND, reason="The thesis has no reduction in bytes: it is derived from its GB.",
    )  # fmt: skip


def mean_of(formula):
    """The Formula of the mean of what a formula of two numbers makes of some pairs, which are its inputs in one row."""

    def mean(*some):
        return sum(map(formula.value, some[::2], some[1::2])) / (len(some) / 2)

    return Formula(f"the mean of: {formula.words}", mean)


def as_even(tables):
    """Tables A.3, A.9, and 5.11 with 5.12: our partitions with no more work on a rank than the thesis'."""
    for names, kind, source in ((("A.3", "A.9"), "coarse", "appendix A"), (("5.11", "5.12"), "fine", "section 5.1.6")):
        volume = rows.cited(names[1], "volume")
        quantities = {
            "max/avg": (rows.balance_of(names[0]), "max/avg", None),
            "volume, connectivity-1": (volume, "connectivity-1", None),
            "volume, star": (volume, "star", None),
        }
        lines = tables[f"balance, {kind}"]
        ratios = [line["of the printed volume"] for line in lines if line["of the printed volume"]]
        yield Item(
            f"Tables {names[0]} and {names[1]}, as even",
            f"{kind} partitions with no more work on a rank than in the thesis: {UNIT}", source,
            rows_of(lines, rank, quantities),
            f"As even as PaToH's partitions, ours send {min(ratios):.2f} to {max(ratios):.2f} times as much (connectivity-1)."
            if ratios else "",
            RESULTS, command=COMMAND, reason="" if ratios else SEARCH,
        )  # fmt: skip


def appendix(tables, name):
    """A table of appendix A, with our partitions at its own imbalance."""
    what, grain, imbalance = paper.APPENDIX[name]
    quantities = work_quantities(name) if what == "work" else volume_quantities(name, True)
    found = rows_of(tables[name], rank, quantities)
    ours = {line["N"] for line in tables[name] if line.get("max" if what == "work" else "star") is not None}
    whose = "Our partitions" if name in paper.TORN else "PaToH's partitions and ours"
    lacking = SEARCH if not ours else SOME if len(ours) < len(paper.vgg16.RANKS) else ""
    return Item(
        f"Table {name}", f"{what}, {grain} hypergraph, imbalance {imbalance}" + f": {UNIT}" * (what == "communication"),
        "appendix A", found,
        f"{whose}, with at most {1 + imbalance:g} times the mean work on a rank, or FC1 alone."
        if ours else "",
        RESULTS, command=COMMAND, reason=" ".join(filter(None, (TORN if name in paper.TORN else "", lacking))),
    )  # fmt: skip
