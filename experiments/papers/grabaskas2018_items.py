"""Grabaskas 2018 on the page of all papers: its tables and figures as items."""

from math import log2

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers import grabaskas2018 as paper
from gridgrad.experiments.papers.items import Item, Row, rows_of

TITLE = (
    "Grabaskas: Automated parallelization to improve usability and efficiency of distributed neural network training "
    "(Master's thesis, University of Washington, 2018)"
)
DESCRIBED = (
    "Tables 1.1, 2.2, 3.3 and 3.5 to 3.8 and Figures 2.1 to 3.5 are code, definitions and drawings: they hold no results. "
    "Published numbers are in `experiments/papers/published/grabaskas2018.toml`."
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
GPUS = "published numbers are of the boards' GPUs, measured ones of CPU cores here: neither seconds nor efficiencies compare"
MIXED = f"{BOARDS}. Of the lines with GPU, {GPUS}."
COLUMNS = {"s": "seconds", "efficiency": "efficiency, %", "accuracy": "accuracy, %"}  # of the tables, and their names here
SOURCES = {
    "4.14": "section 4.2.2, page 50", "4.15": "section 4.2.2, page 51", "4.16": "section 4.2.3, page 53",
    "4.17": "section 4.2.3, page 54", "4.18": "section 4.2.4, page 56", "4.19": "section 4.2.4, page 56",
    "4.21": "section 4.2.6, page 61", "4.22": "section 4.2.6, page 63", "4.23": "section 4.2.7, page 66",
    "Appendix C": "Appendix C, page 92", "Appendix D": "Appendix D, page 94",
}  # fmt: skip
WHYS = {
    "4.14": f"{BOARDS}.",
    "4.15": f"The {GPUS}. On the thesis' GPU a step was shorter, so that messages were more of it.",
    "4.16": f"The {GPUS}. The more samples between two averages, the less they cost, there and here.",
    "4.17": "The accuracies of a part of the data on one node are the thesis' point; here they take a long measurement.",
    "4.18": "The thesis times everything before training; here it is reading and standardising, which is far less.",
    "4.19": "As for Table 4.18; the thesis does not say what it does to CIFAR for a minute.",
    "4.21": f"{BOARDS}. Larger layers are more efficient, there and here.",
    "4.22": f"The {GPUS}. `half` and `first` compute unsplit layers on one rank here, which is the wrong choice for one "
    "sample.",
    "4.23": f"The {GPUS}. What did not fit the memory of a TX1 fits here.",
    "Appendix C": MIXED,
    "Appendix D": MIXED,
}
HALSTEAD = (  # section 4.1.3: distinct operators and operands, all operators and operands, of Tables 4.9 to 4.12
    ("Table 4.9", "Manual Backward()", 26, 14, 65, 30, 44), ("Table 4.10", "Automated Backward()", 7, 11, 21, 19, 45),
    ("Table 4.11", "Manual SGD Train()", 29, 21, 104, 56, 45), ("Table 4.12", "Automated SGD Train()", 7, 11, 21, 19, 46),
)  # fmt: skip
SAME_PURPOSE = {  # program of the thesis: program of `experiments/studies/usability` with the same purpose
    "Manual Backward()": "gridgrad: by_hand_data", "Automated Backward()": "gridgrad: data",
    "Manual Model Parallel SGD Train()": "gridgrad: by_hand_model", "Auto Model Parallel SGD Train()": "gridgrad: model",
}  # fmt: skip


def items(tables):
    """All items. tables: of `grabaskas2018.tables`."""
    return [
        Item(
            "Table 3.4", "Wave2D, a simulation of waves, on the thesis' two clusters", "section 3.1.3, page 22",
            reason="It compares two clusters by a program that trains nothing; neither the program nor the boards are here.",
        ),
        halstead(tables),
        usability(tables, "4.13", "Halstead's effort of data parallelism", ("effort", "seconds"), "section 4.2.1, page 48"),
        *(lines(tables, name) for name in ("4.14", "4.15", "4.16")),
        of_lines(
            tables, "Figure 4.1", "accuracy and efficiency of C.9 to C.11 on 4 GPUs, by n", ("accuracy", "efficiency"),
            ("C.9", "C.10", "C.11"), "section 4.2.3, page 54", plot="figure4_1.png",
        ),
        *(lines(tables, name) for name in ("4.17", "4.18", "4.19")),
        usability(tables, "4.20", "lines of code of model parallelism", ("lines",), "section 4.2.5, page 59"),
        *(lines(tables, name) for name in ("4.21", "4.22")),
        of_lines(
            tables, "Figure 4.2", "training MLP3 on 1, 2 and 4 nodes: published and predicted on GPUs, measured on CPU cores",
            ("s",), ("D.97", "D.98", "D.99"), "section 4.2.6, page 64", plot="figure4_2.png",
        ),
        *(lines(tables, name) for name in ("4.23", "Appendix C", "Appendix D")),
    ]  # fmt: skip


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    return tables.get("machine", "")


def lines(tables, name):
    """A table of lines of the appendices."""
    columns = {"pre-processing": "seconds", "speedup": "speedup"} if name in paper.READING else COLUMNS
    quantities = {words: tuple(f"{column}, {kind}" for kind in ("published", "measured", "predicted"))
                  for column, words in columns.items()}  # fmt: skip
    title = paper.TITLES[name].split(". ")[0].rstrip(".")
    table = f"Table {name}" if name[0] == "4" else name
    return Item(
        table, title, SOURCES[name], rows_of(tables[name], label, quantities, how), WHYS[name],
        RESULTS, MODEL, COMMAND, reason="Lines on more nodes than cores are not measured, and short runs have no accuracy.",
    )  # fmt: skip


def label(line):
    """What identifies a line."""
    nodes = f"{counted(line['nodes'], 'node')}"
    if "net" in line:
        widths = "x".join(str(line[name]) for name in ("FLS", "SLS", "TLS") if line[name] != "-")
        return f"{line['ref']} {line['device']} {line['net']} {widths}, {nodes}"
    return f"{line['ref']} {line['version']}, {nodes}, n {line['n']}"


def how(line):
    """How a line was measured."""
    return f"{line['how']}, on CPU cores" if line["device"] == "GPU" else line["how"]


def of_lines(tables, name, title, columns, refs, source, plot):
    """A figure that plots columns of some lines."""
    known = {line["ref"]: line for appendix in ("Appendix C", "Appendix D") for line in tables[appendix]}
    quantities = {COLUMNS[column]: tuple(f"{column}, {kind}" for kind in ("published", "measured", "predicted"))
                  for column in columns}  # fmt: skip
    found = rows_of([known[ref] for ref in refs], label, quantities, how)
    return Item(
        name, title, source, found, WHYS["4.16"] if name == "Figure 4.1" else WHYS["4.22"], RESULTS, MODEL, COMMAND, plot=plot,
        reason="Four nodes need four cores: without them they are not measured, but predicted.",
    )  # fmt: skip


def halstead(tables):
    """Tables 4.9 to 4.12: the effort that follows from their totals, beside that of Table 4.13."""
    published = {line["program"]: line["effort, published"] for line in tables["4.13"]}
    rows = tuple(
        Row(f"{name}, {table} on page {page}: effort", published[name], None, effort(n1, n2, N1, N2))
        for table, name, n1, n2, N1, N2, page in HALSTEAD
    )
    return Item(
        "Tables 4.9 to 4.12", "Halstead's effort from the totals of the tables", "section 4.1.3", rows,
        "Table 4.11 does not have the effort that Table 4.13 prints for it; the others do.",
        model="(N1 + N2) log2(n1 + n2) x n1/2 x N2/n2, equations of Table 3.7",
        reason="The counted programs are Lua: there is nothing to measure but our own, which is in Table 4.13.",
    )  # fmt: skip


def effort(n1, n2, N1, N2):
    """Halstead's effort."""
    return (N1 + N2) * log2(n1 + n2) * n1 / 2 * N2 / n2


def usability(tables, name, title, columns, source):
    """Table 4.13 or 4.20: programs of the thesis beside those of ours with the same purpose."""
    ours = {line["program"]: line for line in tables[name]}
    rows = []
    for program, line in ours.items():
        if not program.startswith("gridgrad"):
            mine = ours.get(SAME_PURPOSE.get(program, ""), {})
            beside = f" (ours: {SAME_PURPOSE[program].removeprefix('gridgrad: ')})" if mine else ""
            rows += [Row(f"{program}{beside}: {column}", line[f"{column}, published"], mine.get(f"{column}, measured"))
                     for column in columns]  # fmt: skip
    return Item(
        f"Table {name}", title, source, tuple(rows),
        "One call against many statements: but Lua and Python are counted by different rules, and do not compare one to one.",
        "results/usability.json", command="study usability",
        reason="Programs without a counterpart here have no measured number.",
    )  # fmt: skip
