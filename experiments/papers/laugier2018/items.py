"""Laugier et al. 2018 on the page of all papers: its tables and figures as items."""

from statistics import median

from gridgrad.experiments.common.parallel_schemes import scheme_of
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.cited import RATIO, Formula, published
from gridgrad.experiments.papers.items import Item, ItemRow
from gridgrad.experiments.papers.laugier2018 import follows, formulas, kept, steps
from gridgrad.parallel.grid.process_grid import parse_grid

TITLE = "Laugier, Nisbet, Li, Thompson: Integrated model and data parallelism for training deep neural networks (2018)"
ABOUT = (
    "The paper trains fully connected networks in NumPy and MPI on up to 32 processes of Cori, and splits the minibatch, the "
    "layers, or both: the minibatch gains most, 5.8 times, the layers little, 1.2 times, and both as much as the minibatch "
    "alone. The cost model here predicts the reverse order; with what the paper's public code and its logs show, one hidden "
    "layer and messages that go through Python lists, the printed numbers nearly follow."
)
DESCRIBED = "Figures 1 to 4 are drawings of the method and Algorithms 1 to 3 its steps: they hold no results."
RESULTS = "results/laugier2018/tables.json"
COMMAND = "reproduce laugier2018"
MODEL = "the cost model, machine file `cori-haswell`, for the paper's algorithms in float64"
MODEL += " (`experiments/papers/laugier2018/steps.py`)"
DEPTH = "three hidden layers, but one with the settings of the paper's code"
KNOWN, LOGS = published("laugier2018"), published("laugier2018_logs")
BEST_OF = "the best of {} to {}".format(*(KNOWN.values[f"integrated_{end}_ranks"].value for end in ("least", "most")))
FIGURES = (  # name, kind of curve, title, {label: (name of the printed number, model size)}
    ("Figure 5", "batch", "strong scaling of batch parallelism: speedup over one rank",
     {"size 1024, 32 ranks": ("batch_speedup", "batch_model_size"),
      "size 512, 32 ranks": ("batch_speedup", "batch_model_size_again")}),
    ("Figure 6", "model", "strong scaling of model parallelism: speedup over one rank",
     {"size 1024, the best of 2 to 32 ranks": ("model_speedup", "model_model_size")}),
    ("Figure 7", "2-D over batch", "strong scaling of integrated parallelism",
     {f"size 512, over batch on as many ranks, {BEST_OF}": ("integrated_ratio", "integrated_model_size")}),
)  # fmt: skip
PLACES = {"Figure 5": "section 9.0.1", "Figure 6": "section 9.0.2", "Figure 7": "section 9.0.3"}
SCHEMES = {"batch": "Figure 5", "model": "Figure 6", "2d": "Figure 7"}
WHY = (
    "The cost model reverses the order of the paper: too little for batch parallelism, too much for model and integrated "
    "parallelism. The paper says neither how deep the networks are nor how many processes share a node. Measured is here in "
    "float32, with three hidden layers, and on as many ranks as there are cores: on two, small networks get slower, and large "
    "ones gain more by splitting the layers."
)
PICTURE = "The curves are a picture: of them the text holds the best speedups alone, most on 32 ranks, which are not here."
SPEEDUP = Formula("seconds on one process over seconds on the grid", lambda one, many: one / many)
EPOCHS = LOGS.tables["epochs"].columns[3:]  # 2 to 10
MEDIANS = Formula(
    "median seconds of the epochs 2 to 10 on one process over those on the grid",
    lambda *seconds: median(seconds[: len(EPOCHS)]) / median(seconds[len(EPOCHS) :]),
)


def items(tables):
    """All items. tables: of `laugier2018.tables`."""
    return [
        data(tables), *(figure(tables, *one) for one in FIGURES), curves(tables), hosts(), would_have_to_be(), logs(),
        volumes(tables), crossover(tables),
    ]  # fmt: skip


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    return tables.get("machine", "")


def data(tables):
    """Table 1."""
    rows, printed = [], KNOWN.tables["1"]
    measured = {line["data"]: line for line in tables.get("data", [])}
    for name in dict.fromkeys([*(line["data"] for line in printed.lines()), *measured]):
        for column in printed.columns[1:]:
            rows.append(ItemRow(f"{name}: {column}", printed.cited(column, name), measured.get(name, {}).get(column)))
    return Item(
        "Table 1", "sizes of the data sets: samples, inputs and outputs", "section 8", tuple(rows), results=RESULTS,
        command=COMMAND,
        why="Airfoil is the paper's file. The real ethylene data are downloaded from UCI (docs/data.md); where that is "
        "impossible, a synthetic set of the same size takes their place.",
        reason="The synthetic set is not the paper's. Section 10 has 10 inputs, where this table has 16.",
    )  # fmt: skip


def figure(tables, name, kind, title, numbers):
    """Figure 5, 6 or 7: what the text states, with predictions, and what was measured where each rank has a core."""
    rows, predicted = [], {(line["what"], line["model size"]): line for line in tables["ratios"]}
    for label, (number, size) in numbers.items():
        line = predicted[kind, KNOWN.values[size].value]
        for where in list(line)[-3:]:
            rows.append(ItemRow(f"{label}; {where}", KNOWN.values[number], None, line[where]))
    for line in tables.get("speedups", []):
        if SCHEMES.get(scheme_of(parse_grid(line["grid"]))) == name and not line["oversubscribed"]:
            label = f"{line['data']}, size {formulas.size_of(line['net'])}, {line['grid']}"
            rows.append(ItemRow(label, None, line["speedup"], remark=f"{line['min']:.3g} to {line['max']:.3g}"))
    figures = tuple(f"{name}.png" for name in dict.fromkeys(line["data"] for line in tables.get("speedups", [])))
    return Item(
        name, title, PLACES[name], tuple(rows), WHY, RESULTS, f"{MODEL}, with {DEPTH}", COMMAND,
        figures if name == "Figure 5" else (), reason=PICTURE,
    )  # fmt: skip


def curves(tables):
    """The predicted curves of Figures 5 to 7, in words, and their figure."""
    rows = [
        ItemRow(f"{line['predicted']}, size {line['model size']}, {line['assumed']}", None, None,
            ", ".join(f"{ranks}: {value:.3g}" for ranks, value in line.items() if ranks.isdigit() and value and ranks != "1"))
        for line in tables["curves"]
    ]  # fmt: skip
    return Item(
        "Figures 5 to 7, predicted", "speedups over one rank (of \"2-D over batch\", over batch on as many) by number of ranks",
        "sections 9.0.1 to 9.0.3", tuple(rows), model=f"{MODEL}, with {DEPTH}", command=COMMAND,
        figures=("predicted.png",), why=in_words(tables["curves"]),
        reason="The paper's curves are pictures; what its text says of them is drawn into the figure.",
    )  # fmt: skip


def in_words(lines):
    """What the predicted curves say, a sentence for each assumption. lines: of the table `curves`."""
    values = {
        (line["assumed"], line["predicted"], line["model size"]): {
            int(ranks): value for ranks, value in line.items() if ranks.isdigit() and value and ranks != "1"
        }
        for line in lines
    }
    sizes, found = list(dict.fromkeys(size for *_, size in values)), []
    for assumed in dict.fromkeys(line["assumed"] for line in lines):
        curves = {size: [values[assumed, kind, size] for kind in ("batch", "model", "2-D")] for size in sizes}
        peaks = [", ".join(f"{max(one.values()):.3g}" for one in curves[size]) for size in (sizes[0], sizes[-1])]
        cases = [both[ranks] > max(batch[ranks], model[ranks]) for batch, model, both in curves.values() for ranks in both]
        found.append(
            f"Batch, model and 2-D reach {peaks[0]} times with size {sizes[0]} and {peaks[1]} with size {sizes[-1]:,}, and 2-D "
            f"is the fastest in {sum(cases)} of {len(cases)} cases of a size and 4 to 32 ranks ({assumed})."
        )
    return " ".join(found)


def hosts():
    """What was measured on four hosts, beside what is predicted for them."""

    def choose(report):
        rows = [
            ItemRow(f"{line['grid']}, size {line['model size']}, {line['hidden layers']} hidden", None,
                line["speedup"]["median"], line["predicted speedup"],
                f"{line['speedup']['min']:.3g} to {line['speedup']['max']:.3g}")
            for line in report["rows"] if line["grid"] != "batch=1,model=1"
        ]  # fmt: skip
        return rows, kept.where(report), f" By the medians, {fastest(report['rows'])}."

    found, why_not = kept.of("hosts", choose)
    rows, processor, first = found or ((), "", "")
    return Item(
        "Figures 5 to 7, four hosts", "speedups over one rank, each rank on a host of its own", "sections 9.0.1 to 9.0.3",
        tuple(rows), results=kept.path("hosts"), model="the cost model with the constants that were measured on these hosts",
        command="sweep laugier2018-hosts.toml --machine FILE.json", processor=processor,
        why="The hosts are emulated: they share the cores of one machine, wait for each other, and have networks with limits "
        "of their own, slower than Cori's. So what compares is the order of the grids, not the speedup over one "
        f"rank.{first}",
        reason=why_not or "The paper prints nothing of 4 processes; the logs of its code do, see section 11.4.",
    )  # fmt: skip


def fastest(lines):
    """Which grid is the fastest of those on as many ranks, by depth and size, in words. lines: rows of the study on hosts."""
    cases, of_depth, same = {}, {}, 0
    for line in lines:
        if line["grid"] != "batch=1,model=1":
            cases.setdefault((line["hidden layers"], line["model size"]), []).append(line)
    for (hidden, size), grids in cases.items():
        first = max(grids, key=lambda line: line["speedup"]["median"])
        of_depth.setdefault(hidden, {}).setdefault(first["grid"], []).append(f"{size:,}")
        same += first is max(grids, key=lambda line: line["predicted speedup"] or 0)
    words = [
        f"with {counted(hidden, 'hidden layer')} the fastest is "
        + " and ".join(f"{grid} (size {', '.join(sizes)})" for grid, sizes in grids.items())
        for hidden, grids in of_depth.items()
    ]  # fmt: skip
    return f"{'; '.join(words)}; of {len(cases)} cases it is in {same} the one that is predicted"


def would_have_to_be():
    """The search over assumptions: each alone, the fewest with which the order comes out, the closest."""

    def choose(report):
        cited = dict(zip(report["printed"], ("batch_speedup", "batch_speedup", "model_speedup", "integrated_ratio")))
        logged = report["alone"][-1]
        rows = [
            ItemRow(f"with the settings of the paper's code: {name}", KNOWN.values[number], None, logged[name])
            for name, number in cited.items()
        ]
        parts = {"alone": report["alone"][:-1], "fewest in the paper's order": report["fewest_in_order"]["rows"],
                 "closest": report["closest"][:3], "with the settings of the paper's code": [logged]}  # fmt: skip
        rows += [
            ItemRow(f"{title}; {steps.words(line['assumed'])}", None, None, ", ".join(f"{line[name]:.3g}" for name in cited),
                f"in the paper's order: {'yes' if line['order'] else 'no'}")
            for title, lines in parts.items() for line in lines
        ]  # fmt: skip
        return rows, str(report["conclusion"])

    found, why_not = kept.of("search", choose)
    rows, conclusion = found or ((), "")
    return Item(
        "What would have to be true", "under assumptions that the paper leaves open: batch (sizes 1,024 and 512, 32 ranks), "
        "model (1,024, at its best), 2-D over batch (512, at its best)", "sections 8 and 9", tuple(rows),
        results=kept.path("search"), model=f"{MODEL}, with three hidden layers if nothing else is assumed",
        why=conclusion,
        reason=why_not or "What was true of the runs can not be known: the paper has neither seconds nor depths.",
    )  # fmt: skip


def logs():
    """The speedups that follow from the logs of the paper's public code."""
    predicted, _ = kept.of(
        "search",
        lambda report: {(line["model size"], line["grid"]): line["predicted speedup"] for line in report["logs"]},
    )
    rows, whole, epochs = [], LOGS.tables["seconds"], LOGS.tables["epochs"]
    for size, batch, model, _ in whole.rows:
        if (batch, model) != (1, 1):
            grid = f"batch={batch},model={model}"
            value = SPEEDUP(*(whole.cited("seconds", size, *axes) for axes in ((1, 1), (batch, model))))
            rows.append(ItemRow(f"ethylene, size {size}, {grid}", value, None, (predicted or {}).get((size, grid))))
    for size, batch, model, *_ in epochs.rows:
        if (batch, model) != (1, 1):
            value = MEDIANS(*(epochs.cited(epoch, size, *axes) for axes in ((1, 1), (batch, model)) for epoch in EPOCHS))
            rows.append(ItemRow(f"airfoil, size {size}, batch={batch},model={model}", value))
    return Item(
        "Section 11.4", "speedups over one process in the logs of the code that the paper names", "section 11.4", tuple(rows),
        results=kept.path("search"), model=f"{MODEL}, with one hidden layer and what else this code and its logs show",
        why="These numbers are in the paper's public repository, not in the paper. They have the printed order on 4 processes "
        "already: batch, then 2-D, then model. Their networks have one hidden layer, and messages go through Python lists. Of "
        "what is predicted two numbers are fitted to these logs, the seconds of a number in a list and those of a layer.",
        reason="Nothing is predicted of airfoil, whose networks have other inputs and outputs.",
    )  # fmt: skip


def volumes(tables):
    """The volumes of sections 5 to 7 for ethylene with model size 1,024."""
    sent, rows = {}, []
    for line in tables.get("counted", []):
        if line["data"].startswith("ethylene") and formulas.size_of(line["net"]) == formulas.SIZE.value:
            batch, model = formulas.sizes_of(line["grid"])
            sent[line["grid"]] = (line["gradients_counted"] + line["model_counted"]) / (batch * model) / 1e6
    for line in tables["volumes"]:
        derived = formulas.derived_volume(scheme_of(parse_grid(line["grid"])), line["ranks"])
        rows.append(
            ItemRow(f"{line['ranks']} ranks, {line['grid']}", derived, sent.get(line["grid"]), line["ours_MB"],
                f"corrected: {line['corrected_MB']:.4g}" if line["grid"] in sent else "")
        )  # fmt: skip
    return Item(
        "Sections 5 to 7", "MB that a rank sends in a step: ethylene, model size 1,024, batch 100, float32", "sections 5 to 7",
        tuple(rows), results=RESULTS, command=COMMAND, model="`papers/laugier2018/byte_formulas.py`",
        why="As printed, the formulas have P/(P - 1) for (P - 1)/P (`papers/laugier2018/byte_formulas.py` says what else); "
        "measured are bytes counted in runs, and predicted is our plan, whose backward is a reduce-scatter.",
        reason="For integrated parallelism the paper prints no formula. Three hidden layers are ours.",
    )  # fmt: skip


def crossover(tables):
    """Section 7: one scatter, or a scatter and a broadcast."""
    rows = [
        ItemRow(f"{line['grid']}: block in MB at which both ways take equally long", formulas.crossover(line["grid"]))
        for line in tables["crossover"]
    ]
    lines = [line for line in tables.get("scatter", []) if line["grid"] == follows.FOUR]
    rows += [
        ItemRow(f"{line['grid']}, blocks of {line['block_bytes'] // 1024} KiB: from rank 0 over scatter and broadcast",
            None, line["scatter us"] / line["scatter-broadcast us"],
            float(RATIO.value(*formulas.ways(follows.FOUR, line["block_bytes"] / 1e6))))
        for line in lines
    ]  # fmt: skip
    return Item(
        "Section 7", "the two ways to bring a minibatch to all ranks", "section 7", tuple(rows), results=RESULTS,
        command=COMMAND, model="the paper's own expressions with its constants of Cori",
        why="The limit is the paper's, but sending from rank 0 is faster *below* it: the paper has the opposite inequality. "
        "Its 5.6 TB/s are those of the whole machine, not of a link. The ratios are of seconds.",
        reason="The paper times neither way.",
    )  # fmt: skip
