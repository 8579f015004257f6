"""Grabaskas 2018 on the page of all papers: its tables and figures as items."""

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.grabaskas2018 import automated, overhead, usability
from gridgrad.experiments.papers.grabaskas2018 import experiments as paper
from gridgrad.experiments.papers.grabaskas2018.runs import PAPER, lines
from gridgrad.experiments.papers.items import Item, ItemRow, rows_of

TITLE = (
    "Grabaskas: Automated parallelization to improve usability and efficiency of distributed neural network training "
    "(Master's thesis, University of Washington, 2018)"
)
ABOUT = (
    "A module for Torch, TorchAD-NN, that makes the training of a network data-parallel with one call and its dense layers "
    "model-parallel by their names, on four small boards with GPUs. It claims that this is far easier than parallelizing by "
    "hand and as fast."
)
DESCRIBED = (
    "Tables 1.1, 2.2, 3.3 and 3.5 to 3.8 and Figures 2.1 to 3.5 are code, definitions and drawings: they hold no results. "
    "Its numbers are in `experiments/papers/published/grabaskas2018.toml`."
)
RESULTS = "results/grabaskas2018/tables.json"
COMMAND = "reproduce grabaskas2018"
MODEL = (
    "the cost model for the thesis' network, machine file `ethernet-1g`, with nodes as fast as its own single node of the line"
)
BOARDS = (
    "The thesis ran on ARM boards (Jetson TX1) with Torch: here cores are faster, share memory, and train the same network, so "
    "the efficiencies compare and the seconds do not"
)
GPUS = (
    "numbers of the thesis are of the boards' GPUs, measured ones of CPU cores here: neither seconds nor efficiencies compare"
)
MIXED = f"{BOARDS}. Of the lines with GPU: the {GPUS}."
COLUMNS = {"s": "seconds", "efficiency": "efficiency, %", "accuracy": "accuracy, %"}  # of the tables, and their names here
PRINTED = {"s": "seconds", "speedup": "speedup of pre-processing"}  # columns of the appendices that are called otherwise
# Items of which neither seconds nor efficiencies compare: those of GPUs, of other work, or of both devices.
NOT_COMPARED = "4.15", "4.16", "4.17", "4.18", "4.19", "4.22", "4.23", "Appendix C", "Appendix D"
SOURCES = {
    "4.14": "Table 4.14, page 50", "4.15": "Table 4.15, page 51", "4.16": "Table 4.16, page 53",
    "4.17": "Table 4.17, page 54", "4.18": "Table 4.18, page 56", "4.19": "Table 4.19, page 56",
    "4.21": "Table 4.21, page 61", "4.22": "Table 4.22, page 63", "4.23": "Table 4.23, page 66",
    "Figure 4.1": "Figure 4.1, page 54", "Figure 4.2": "Figure 4.2, page 64",
}  # fmt: skip
WHYS = {
    "4.14": f"{BOARDS}. Automated and manual lines share a run here.",
    "4.15": f"The {GPUS}. On the thesis' GPU a step was shorter, so that messages were more of it.",
    "4.16": f"The {GPUS}. The more samples between two averages, the less they cost.",
    "4.17": "The accuracies of a part of the data on one node are the thesis' point. Here the weights are averaged; there "
    "nothing was synchronised.",
    "4.18": "The thesis times everything before training; here it is reading and standardising, which is far less.",
    "4.19": "As for Table 4.18; the thesis does not say what it does to CIFAR for a minute.",
    "4.21": f"{BOARDS}.",
    "4.22": f"The {GPUS}. A layer that is split sends its outputs and their gradients for each sample.",
    "4.23": f"The {GPUS}. What did not fit the memory of a TX1 fits here.",
    "Appendix C": MIXED,
    "Appendix D": MIXED,
    "overhead": "The same bytes are sent by both ways to train, in a few milliseconds; the thesis has no explanation for what "
    "`Train()` loses. Its code synchronises nothing there that is read or written.",
}  # fmt: skip


def items(tables):
    """All items. tables: of `grabaskas2018.tables`."""
    used = lambda *words: usability.used(tables, *words)  # noqa: E731
    return [
        automated.item(),
        usability.equation(),
        wave2d(),
        usability.halstead(),
        used("4.13", "Halstead's effort of data parallelism", ("effort", "seconds"), "section 4.2.1, page 48"),
        *(of_table(tables, name) for name in ("4.14", "4.15", "4.16")),
        of_lines(
            tables, "Figure 4.1", "accuracy and efficiency of C.9 to C.11 on 4 GPUs, by n", ("accuracy", "efficiency"),
            ("C.9", "C.10", "C.11"), WHYS["4.16"], "figure4_1.png",
        ),
        overhead.item(tables, WHYS["overhead"], RESULTS, MODEL, COMMAND),
        *(of_table(tables, name) for name in ("4.17", "4.18", "4.19")),
        used("4.20", "lines of code of model parallelism", ("lines",), "section 4.2.5, page 59"),
        *(of_table(tables, name) for name in ("4.21", "4.22")),
        of_lines(
            tables, "Figure 4.2", "training MLP3 on 1, 2 and 4 nodes: thesis and predictions on GPUs, measured on CPU cores",
            ("s",), ("D.97", "D.98", "D.99"), WHYS["4.22"], "figure4_2.png",
        ),
        *(of_table(tables, name) for name in ("4.23", "Appendix C", "Appendix D")),
    ]  # fmt: skip


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    return tables.get("machine", "")


def quantities(columns, place=""):
    """What `rows_of` takes, for some columns of the tables. place: where the thesis prints these lines."""
    return {
        words: (citing(PRINTED.get(column, column), place), f"{column}, measured", f"{column}, predicted")
        for column, words in columns.items()
    }


def citing(column, place):
    """A function of a line of the tables that makes the Cited of a column."""
    return lambda row: lines()[row["ref"]].cited(column, place)


def of_table(tables, name):
    """A table of lines of the appendices."""
    columns = {"pre-processing": "seconds", "speedup": "speedup"} if name in paper.READING else COLUMNS
    title = paper.TITLES[name].split(". ")[0].rstrip(".")
    place = SOURCES.get(name, "")
    return Item(
        f"Table {name}" if name[0] == "4" else name, title, place or f"{name}, page {92 if name[-1] == 'C' else 94}",
        rows_of(tables[name], label, quantities(columns, place), how),
        WHYS[name] + (accuracies(tables[name]) if name in NOT_COMPARED and place else ""), RESULTS, MODEL, COMMAND,
        reason="Lines on more nodes than cores are not measured, and runs of a part of a line have no accuracy.",
        compares=name not in NOT_COMPARED,
    )  # fmt: skip


def accuracies(rows):
    """The accuracies of a table that were measured, beside the printed ones, in a sentence; empty if none were."""
    numbers = [(row["ref"], row.get("accuracy, measured"), row.get("accuracy, published")) for row in rows]
    words = [f"{ref} {ours:.1f} ({theirs:.1f})" for ref, ours, theirs in numbers if None not in (ours, theirs)]
    return f" Accuracies do compare, in % (printed): {', '.join(words)}." if words else ""


def label(row):
    """What identifies a line."""
    nodes = counted(row["nodes"], "node")
    if "net" in row:
        widths = "x".join(str(row[name]) for name in ("FLS", "SLS", "TLS") if row[name] != "-")
        return f"{row['ref']} {row['device']} {row['net']} {widths}, {nodes}"
    return f"{row['ref']} {row['version']}, {nodes}, n {row['n']}"


def how(row):
    """How a line was measured."""
    return f"{row['how']}, on CPU cores" if row["device"] == "GPU" else row["how"]


def of_lines(tables, name, title, columns, refs, why, plot):
    """A figure that plots columns of some lines, whose numbers the thesis prints in its appendix."""
    known = {row["ref"]: row for appendix in ("Appendix C", "Appendix D") for row in tables[appendix]}
    found = rows_of([known[ref] for ref in refs], label, quantities({column: COLUMNS[column] for column in columns}), how)
    return Item(
        name, title, SOURCES[name], found, why, RESULTS, MODEL, COMMAND, plot=plot,
        reason="Four nodes need four cores: without them they are not measured, but predicted.", compares=False,
    )  # fmt: skip


def wave2d():
    """Table 3.4: nothing of it can be measured here."""
    table = published(PAPER).tables["3.4"]
    rows = tuple(
        ItemRow(f"{row['machine']}, {counted(row['nodes'], 'node')}: {column}", cited)
        for row in table.lines()
        for column in ("time", "speedup", "efficiency")
        if (cited := table.cited(column, row["machine"], row["nodes"]))
    )
    return Item(
        "Table 3.4", "Wave2D, a simulation of waves, on the thesis' two clusters", "section 3.1.3, page 22", rows,
        reason="It compares two clusters by a program that trains nothing; neither the program nor the boards are here.",
    )  # fmt: skip
