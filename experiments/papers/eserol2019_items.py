"""Eserol 2019 on the page of all papers: its tables and figures as items."""

from gridgrad.experiments.papers import eserol2019 as paper
from gridgrad.experiments.papers import eserol2019_claims
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers.items import Item, Row, rows_of

TITLE = (
    "Eserol: Fast and efficient model parallelism for deep convolutional neural networks (Master's thesis, Bilkent "
    "University, 2019)"
)
DESCRIBED = (
    "Tables 2.1 to 2.3 and Figures 1.1 to 4.7 and 5.1 are definitions, drawings and the specification of a node: they hold no "
    "results. Published numbers are in `experiments/papers/published/eserol2019.toml`. Of partitions no time is measured but "
    "that of the search: measured here is what was counted, in full, on a partition that was found."
)
RESULTS = "results/eserol2019/tables.json"
COMMAND = "reproduce eserol2019"
MODEL = "the cost model, machine file `cori-haswell`, a node a rank (`experiments/papers/eserol2019_times.py`)"
UNIT = "2^20 elements of a batch of 32"
FITTED = "The works of the layers are not in the thesis: they were fitted to its Tables 5.1 and 5.5"
STAR = "Counted by way of a star, as the thesis does"
FINDER = (
    "PaToH is not open: these are partitions of our own searches, with at most 1.10 times the mean work on a rank, and they "
    "send less. The thesis does not say whether it counts a star or connectivity-1: both are here"
)
SECTIONS = {
    "5.1": "5.1.1", "5.2": "5.1.1", "5.3": "5.1.2", "5.4": "5.1.2", "5.5": "5.1.3", "5.6": "5.1.3", "5.7": "5.1.4",
    "5.8": "5.1.4", "5.9": "5.1.5", "5.10": "5.1.5", "5.11": "5.1.6", "5.12": "5.1.6",
}  # fmt: skip
METHODS = {
    "5.1": "layer-wise partition", "5.3": "filter-wise horizontal partition", "5.5": "filter-wise incremental partition",
    "5.7": "channel-wise incremental partition", "5.9": "coarse hypergraph", "5.11": "fine hypergraph",
}  # fmt: skip
LOADS = {
    "5.1": f"{FITTED}.", "5.3": "All ranks have the same work.",
    "5.5": f"{FITTED}, whose rounding to whole weights could not be found.", "5.7": f"{FITTED}.", "5.9": f"{FINDER}.",
    "5.11": f"{FINDER}; the thesis' partitions are more even.",
}  # fmt: skip
VOLUMES = {
    "5.2": f"{STAR}; the thesis rounds down.", "5.4": f"{STAR}; the thesis leaves the decimals out.",
    "5.6": f"{STAR}; from N = 64 on the thesis' cuts could not be found.",
    "5.8": f"{STAR}; the thesis' cuts of channels could not all be found.",
}  # fmt: skip
TORN = "The table is torn in the text that the numbers were taken from: there is nothing to compare with."
LOST = {"A.1": "work, coarse, imbalance 0.03", "A.2": "work, coarse, imbalance 0.15"}
IMBALANCES = (  # table, the table of our partitions beside it, PaToH's final imbalance
    ("A.4", "5.11", 0.03), ("A.5", "5.11", 0.15), ("A.6", "5.11", 0.2), ("A.7", "5.10", 0.03), ("A.8", "5.10", 0.15),
    ("A.10", "5.12", 0.03), ("A.11", "5.12", 0.15), ("A.12", "5.12", 0.2),
)  # fmt: skip
CONVERGENCE = {  # section 5.3: times as fast to 90 % training accuracy
    "4 processors over one": 2.77, "over asynchronous data parallelism, N = 2": 1.2, "over synchronous, N = 2": 2.25,
    "over asynchronous data parallelism, N = 4": 1.5, "over synchronous, N = 4": 3.5,
}  # fmt: skip


def items(tables):
    """All items, in the order of the thesis. tables: of `eserol2019.tables`."""
    found = []
    for number in range(1, 13):
        name = f"5.{number}"
        found.append(loads(tables, name) if number % 2 else volumes(tables, name, f"5.{number - 1}"))
    return [
        *found,
        parameters(tables),
        comparison(tables),
        *run_times(tables),
        convergence(),
        *balance(tables),
        *other_imbalances(tables),
        claims(tables),
    ]


def measured_on(tables):
    """Where partitions were searched for, in words; empty if nowhere."""
    return tables.get("processor", "")


def rank(line):
    return f"N = {line['N']}"


def loads(tables, name):
    """A table of work."""
    quantities = {words: (f"{words}, published", words, None) for words in ("max", "min", "mean", "max/avg")}
    torn = name in ("5.7", "5.9")
    return Item(
        f"Table {name}", f"work of the ranks, {METHODS[name]}", f"section {SECTIONS[name]}",
        rows_of(tables[name], rank, quantities), LOADS[name], RESULTS, command=COMMAND, reason=TORN if torn else "",
    )  # fmt: skip


def volumes(tables, name, work):
    """A table of communication."""
    searched = name in ("5.10", "5.12")
    quantities = {
        "volume, star": ("volume, published", "star", None),
        "volume, connectivity-1": ("volume, published" if searched else None, "connectivity-1", None),
        "largest layer, star": ("max comm, published", "max comm, star", None),
    }
    figures = ("partition.png",) if name == "5.10" and tables["coarse"] else ()
    return Item(
        f"Table {name}", f"communication, {METHODS[work]}: {UNIT}", f"section {SECTIONS[name]}",
        rows_of(tables[name], rank, quantities), f"{FINDER}." if searched else VOLUMES[name], RESULTS, command=COMMAND,
        figures=figures, reason="" if searched else "The thesis does not print connectivity-1 of simple partitions.",
    )  # fmt: skip


def parameters(tables):
    """Table 5.13."""
    quantities = {
        "output": ("output size, published", "output size", None), "parameters": ("parameters, published", "parameters", None),
    }  # fmt: skip
    return Item(
        "Table 5.13", "VGG16: sizes of outputs and numbers of weights", "section 5.1.7",
        rows_of(tables["5.13"], lambda line: line["layer"], quantities), "The same network; the thesis counts no biases.",
        "`nn/network_names.py`, the network `vgg16`", command=COMMAND,
    )  # fmt: skip


def comparison(tables):
    """Table 5.14."""
    quantities = {
        "data parallel, GB": ("data parallel, published GB", None, "data parallel, GB"),
        "hypergraph, GB of the thesis": ("hypergraph, published GB", None, "hypergraph, 2^30 elements"),
        "reduction in mixed units, %": ("reduction, published %", None, "mixed units: reduction, %"),
        "reduction in bytes, their partition, %": (None, None, "their partition in bytes: reduction, %"),
        "reduction in bytes, our coarse one, %": (None, "our coarse one in bytes: reduction, %", None),
        "reduction in bytes, our fine one, %": (None, "our fine one in bytes: reduction, %", None),
    }
    return Item(
        "Table 5.14", "data parallelism against hypergraph partitions, an epoch of 64,000 images", "section 5.1.8",
        rows_of(
            tables["5.14"], lambda line: f"N = {line['N']}, batch {line['batch']}" if line["batch"] else "mean", quantities
        ),
        "The thesis compares elements of its partitions with bytes of data parallelism; in bytes on both sides the reduction "
        "is smaller, and that of our partitions lies between.",
        RESULTS, "the thesis' own formulas", COMMAND, reason="The thesis has no reduction in bytes.",
    )  # fmt: skip


def run_times(tables):
    """Table 5.15, in speed-ups and in seconds, and section 4.2."""
    label = lambda line: f"N = {line['N']}, {line['method']}"  # noqa: E731
    quantities = {f"batch {b}": (f"{b}, published", None, f"{b}, *predicted*") for b in times.BATCHES}
    why = (
        "The thesis measured TensorFlow on nodes with 112 logical cores; predicted are nodes of another machine at their peak, "
        "without the second or more that each step of data parallelism takes beyond computing in the thesis"
    )
    yield Item(
        "Table 5.15", "speed-up over N = 1 with the same batch", "section 5.2",
        rows_of(tables["5.15"], label, quantities), f"{why}.", model=MODEL, command=COMMAND,
        reason="VGG16 on such nodes is not measured: it is predicted for another machine.",
    )  # fmt: skip
    yield Item(
        "Table 5.15, seconds", "seconds for 102,400 images", "section 5.2",
        rows_of(tables["5.15, seconds"], label, quantities), f"{why}. Of seconds of different machines only the order means "
        "something.", model=MODEL, command=COMMAND, reason="VGG16 was not measured on such nodes: the seconds are predicted.",
    )  # fmt: skip
    yield Item(
        "Section 4.2", "gain of the asynchronous pipeline over one minibatch at a time", "section 4.2, Figures 4.4 to 4.7",
        rows_of(tables["5.15, pipeline"], lambda line: f"N = {line['N']}, {line['method']}, batch {line['batch']}",
                {"": (None, None, "gain of the pipeline")}),
        "The drawings of the thesis promise full use of the processors; the gain is at most N.", model=MODEL, command=COMMAND,
        reason="The thesis has drawings of it, and no numbers.",
    )  # fmt: skip
    yield Item(
        "Section 5.2.3", "VGG16 on several parameter servers: the largest load over the mean", "section 5.2.3",
        rows_of(tables["servers"], lambda line: f"{line['servers']} servers", {
            "round-robin": (None, None, "round-robin, max/avg"), "greedy": (None, None, "greedy, max/avg"),
        }),
        "FC1 alone is most of the parameters, so whole parameters can not be spread evenly.",
        model="sizes of the parameters", command=COMMAND, reason="The thesis does not say how its servers share parameters.",
    )  # fmt: skip


def convergence():
    """Figure 5.2."""
    return Item(
        "Figure 5.2", "times as fast to a training accuracy of 90 %, hypergraph model parallelism", "section 5.3",
        tuple(Row(words, value) for words, value in CONVERGENCE.items()),
        reason="It needs days of training VGG16 on its cluster (about 122 hours on one of its nodes), and its partitions.",
    )  # fmt: skip


def balance(tables):
    """Tables A.3, A.9, and 5.11 with 5.12: our partitions with no more work on a rank than the thesis'."""
    for name, kind, source in (
        ("Tables A.3 and A.9", "coarse", "Appendix A"), ("Tables 5.11 and 5.12, as even", "fine", "section 5.1.6")
    ):  # fmt: skip
        quantities = {
            "max/avg": ("max/avg, published", "max/avg", None),
            "volume, connectivity-1": ("volume, published", "connectivity-1", None),
            "volume, star": ("volume, published", "star", None),
        }
        yield Item(
            name, f"{kind} partitions with no more work on a rank than in the thesis: {UNIT}", source,
            rows_of(tables[f"balance, {kind}"], rank, quantities), "As even as PaToH's partitions, ours send less.",
            RESULTS, command=COMMAND,
        )  # fmt: skip
    for name, title in LOST.items():
        yield Item(f"Table {name}", title, "Appendix A", reason=TORN)


def other_imbalances(tables):
    """Tables A.4 to A.8 and A.10 to A.12: PaToH with other limits, beside our partitions of Tables 5.10 to 5.12."""
    known = paper.published()
    why = (
        "The thesis gives PaToH other limits here, and its partitions hardly change; ours are those of Tables 5.10 to 5.12, "
        "with at most 1.10 times the mean work on a rank."
    )
    for name, ours, imbalance in IMBALANCES:
        theirs = known[f"{'loads' if ours == '5.11' else 'volumes'}_{name.replace('.', '_')}"]
        mine = {line["N"]: line for line in tables[ours]}
        if ours == "5.11":
            rows = [Row(f"N = {n}: max/avg", largest / mean, mine[n]["max/avg"]) for n, largest, _, mean in theirs]
            what = "work, fine"
        else:
            rows = [Row(f"N = {n}: volume, {count}", volume, mine[n][count])
                    for n, volume, *_ in theirs for count in ("star", "connectivity-1")]  # fmt: skip
            what = f"communication, {'coarse' if ours == '5.10' else 'fine'}, {UNIT}"
        yield Item(
            f"Table {name}", f"{what}, PaToH's imbalance {imbalance}", "Appendix A", tuple(rows), why, RESULTS, command=COMMAND
        )  # fmt: skip


def claims(tables):
    """What the thesis says, and what is asked of the partitions, one by one."""
    rows = []
    for line in tables["claims"]:
        holds = {True: "holds", False: "does not hold", None: ""}[line["holds"]]
        remark = f"asked for here: {line['asked here']}; {holds}" if line["asked here"] else holds
        predicted = "*predicted*" in line["claim"] or line["claim"].startswith("5.14: the same")
        ours = (None, line["ours"]) if predicted else (line["ours"], None)
        rows.append(Row(line["claim"].replace("*", ""), line["published"], *ours, remark=remark))
    return Item(
        "Claims", "what the thesis says, and what is asked of partitions here", "sections 5.1 and 5.2", tuple(rows),
        f"{eserol2019_claims.TOLERANCE}. Most volumes and works are met or undercut; the order of the methods in time is "
        "another on nodes at their peak.",
        RESULTS, MODEL, COMMAND, whole=True,
        reason="What is asked for here is a target of this project, and no number of the thesis.",
    )  # fmt: skip
