"""Laugier et al. 2018 on the page of all papers: its tables and figures as items."""

from gridgrad.experiments.papers.items import Item, Row, rows_of

TITLE = "Laugier, Nisbet, Li, Thompson: Integrated model and data parallelism for training deep neural networks (2018)"
DESCRIBED = "Figures 1 to 4 are drawings of the method and Algorithms 1 to 3 its steps: they hold no results."
RESULTS = "results/laugier2018/tables.json"
COMMAND = "reproduce laugier2018"
MODEL = "the cost model, machine file `cori-haswell`, for the paper's algorithm in float64"
MODEL += " (`experiments/studies/laugier2018_predicted.py`)"
SIZES = {"airfoil": "1503 x 4, 1503 x 1", "ethylene": "700000 x 16, 700000 x 2"}
SCHEMES = (
    ("Figure 5", "batch", "strong scaling of batch parallelism: speedup over one rank", "section 9.0.1 and the abstract"),
    ("Figure 6", "model", "strong scaling of model parallelism: speedup over one rank", "section 9.0.2 and the abstract"),
    ("Figure 7", "2d", "strong scaling of integrated parallelism: speedup over one rank", "section 9.0.3 and the abstract"),
)
WHY = (
    "The paper ran on 32 ranks of Cori and says neither how deep the networks are nor how many ranks share a node; measured is "
    "on the cores here, in float32, with three hidden layers. On its 16 inputs and 100 samples a step is short, so messages "
    "weigh more than products, and small networks get slower with more ranks."
)
PICTURE = "The curves are a picture: of them the text holds the best speedups alone, on 32 ranks, which are not here."


def items(tables):
    """All items. tables: of `laugier2018.tables`."""
    return [data(tables), *(figure(tables, *one) for one in SCHEMES), volumes(tables), crossover(tables)]


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    return tables.get("machine", "")


def data(tables):
    """Table 1."""
    measured = {line["data"]: f"{line['samples']} x {line['inputs']}, {line['samples']} x {line['outputs']}"
                for line in tables.get("data", [])}  # fmt: skip
    rows = [Row(name, SIZES.get(name), measured.pop(name, None)) for name in SIZES]
    rows += [Row(name, None, size) for name, size in measured.items()]
    return Item(
        "Table 1", "sizes of the data sets, inputs and outputs", "section 8", tuple(rows), results=RESULTS, command=COMMAND,
        why="Airfoil is the paper's file. The real ethylene data are downloaded from UCI (docs/data.md); where that is "
        "impossible, a synthetic set of the same size takes their place.",
        reason="The synthetic set is not the paper's.",
    )  # fmt: skip


def figure(tables, name, scheme, title, source):
    """Figure 5, 6 or 7: what the text states for 32 ranks, with a prediction, and what was measured on fewer."""
    rows = []
    for claim in tables["claims"]:
        if claim["scheme"] == scheme:
            for where, column in (("one node", "predicted on 1 node"), ("32 nodes", "predicted on 32 nodes")):
                over = "" if claim["times as fast as"] == "1 rank" else f" over {claim['times as fast as']}"
                label = f"size {claim['model size']}, 32 ranks on {where}{over}"
                rows.append(Row(label, claim["published"], None, claim[column]))
    for line in tables.get("speedups", []):
        batch, model = (int(word.split("=")[1]) for word in line["grid"].split(","))
        kind = "2d" if batch > 1 and model > 1 else "batch" if batch > 1 else "model" if model > 1 else ""
        if kind == scheme:
            size = line["net"].removeprefix("mlp:").split(",")[0]
            spread = f"{line['min']:.3g} to {line['max']:.3g}" + (", oversubscribed" if line["oversubscribed"] else "")
            rows.append(Row(f"{line['data']}, size {size}, {line['grid']}", None, line["speedup"], remark=spread))
    figures = tuple(f"{name}.png" for name in dict.fromkeys(line["data"] for line in tables.get("speedups", [])))
    return Item(
        name, title, source, tuple(rows), WHY, RESULTS, MODEL, COMMAND, figures if name == "Figure 5" else (),
        reason=PICTURE,
    )  # fmt: skip


def volumes(tables):
    """The volumes of sections 5 to 7 for ethylene with model size 1,024."""
    counted = {}
    for line in tables.get("counted", []):
        if line["data"].startswith("ethylene") and line["net"].startswith("mlp:1024,"):
            ranks = 1
            for word in line["grid"].split(","):
                ranks *= int(word.split("=")[1])
            counted[line["grid"]] = (line["gradients_counted"] + line["model_counted"]) / ranks / 1e6
    rows = [
        Row(f"{line['ranks']} ranks, {line['grid']}", line["printed_MB"], counted.get(line["grid"]), line["ours_MB"])
        for line in tables["volumes"]
    ]
    return Item(
        "Sections 5 to 7", "MB that a rank sends in a step: ethylene, model size 1,024, batch 100, float32", "sections 5 to 7",
        tuple(rows), results=RESULTS, command=COMMAND, model="`parallel/placement/volume.py`",
        why="As printed, the formulas have P/(P - 1) for (P - 1)/P (`parallel/placement/volume.py` says what else); measured "
        "are bytes counted in runs, and predicted is our plan, whose backward is a reduce-scatter.",
        reason="For integrated parallelism the paper prints no formula.",
    )  # fmt: skip


def crossover(tables):
    """Section 7: one scatter, or a scatter and a broadcast."""
    rows = [
        Row(f"{line['grid']}: block in MB at which both ways take equally long", line["scatter_faster_below_MB"],
            None, line["scatter_faster_below_MB"])
        for line in tables["crossover"]
    ]  # fmt: skip
    rows += rows_of(
        [line | {"ratio": line["scatter us"] / line["scatter-broadcast us"]} for line in tables.get("scatter", [])
         if line["grid"] == "batch=2,model=2"],
        lambda line: f"{line['grid']}, blocks of {line['block_bytes'] // 1024} KiB: time of one scatter over that of both",
        {"": (None, "ratio", None)},
    )  # fmt: skip
    return Item(
        "Section 7", "the two ways to bring a minibatch to all ranks", "section 7", tuple(rows), results=RESULTS,
        command=COMMAND, model="the formulas of section 7 with the paper's constants of Cori",
        why="The number is the paper's, but one scatter is faster *below* it: the paper has the opposite inequality. Its "
        "5.6 TB/s are those of the whole machine, not of a link.",
        reason="The paper times neither way.",
    )  # fmt: skip
