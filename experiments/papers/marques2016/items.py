"""Marques 2016 on the page of all papers: its tables and figures as items. The claims are in `claims.py`."""

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.items import Item, ItemRow, rows_of
from gridgrad.experiments.papers.marques2016 import unequal as laptops
from gridgrad.experiments.papers.marques2016.appendix import COMMAND, RESULTS, appendix
from gridgrad.experiments.papers.marques2016.claims_text import ROOFLINE, near_the_peak
from gridgrad.experiments.papers.marques2016.claims_text import roofline as kept_roofline
from gridgrad.experiments.papers.marques2016.experiments import at
from gridgrad.experiments.papers.marques2016.figures import rounds_of
from gridgrad.experiments.papers.marques2016.runs import BATCH_SIZES, MASTERLESS, WITH_MASTER
from gridgrad.experiments.papers.marques2016.scaling import KNOWN, LARGEST, gpu_over_cpu, said, seconds_on_one

TITLE = (
    "Marques: Distributed learning of convolutional neural networks on heterogeneous processing units "
    "(Master's thesis, University of Coimbra, 2016)"
)
ABOUT = (
    "A master hands out the inputs and the kernels of each convolution to slaves, in proportion to their speeds. On four "
    "laptops that send 5 MB/s this is said to be up to 3.28 times as fast as on one, and to lose nothing on many more."
)
DESCRIBED = (
    "Table 4.1, Table I of Appendix A and Figures 1.1 to 3.2 and 5.16 say which machines were used, or are drawings: they hold "
    "no results."
)
MODEL = "the parts measured on two ranks, in the proportion that the cost model has for them"
TEXT_MODEL = "equation 5.1 with the constants that the text implies (`experiments/papers/marques2016/scaling.py`)"
LAPTOPS = "The thesis ran on four laptops, each faster than the one before, that send 5 MB/s; here ranks are equal cores"
FITTED = "the constants are made of it"  # so that a prediction would say nothing
PICTURE = "The curves are pictures: of them the text holds the numbers that stand here."
NO_GPU = "No GPU was at hand."
QUANTITIES = {"speedup": ("speedups of CPUs", "speedup"), "communication, %": ("communication of CPUs", "percent")}
PAGES = {64: 32, 128: 33, 256: 33, 512: 34, 1024: 34}


def items(tables):
    """All items. tables: of `marques2016.tables`."""
    return [
        *(steps(tables, number, batch) for number, batch in enumerate(BATCH_SIZES, 1)),
        text_of_cpus(tables), unequal(), gpus(), *tables_5(tables), *scaling(tables), roofline(), *appendix(tables),
    ]  # fmt: skip


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    return tables.get("machine") or next((row["machine"] for row in tables.get("epochs", ())), "")


def both(value, how):
    """(value, None) of a measured value, (None, value) of a predicted one."""
    return (value, None) if how == "measured" else (None, value)


def steps(tables, number, batch):
    """Figure 5.1 to 5.5: the speedups of the steps of one batch size, and the share of communication."""
    rows, why = [], "As in Figure 5.1: equal cores of one machine, whose messages go through memory."
    if number == 1:
        why = (
            f"{LAPTOPS} of one machine, whose messages go through memory: communication is a small part, and equal nodes gain "
            f"less than faster ones. {MASTERLESS.capitalize()} is the same without a master, which the thesis does not have. "
            "Unequal ranks on a slow network stand in an item of their own."
        )
    for line in tables["split"]:
        if line["batch"] != batch or line["ranks"] == 1:
            continue
        key, theirs = (line["network"], batch, line["ranks"]), line["form"] == WITH_MASTER
        remark = rounds_of([line]) if line["how"] == "measured" else ""
        label = f"{line['network']}, {line['ranks']} CPUs, {line['form']}"
        ours = {"speedup": line["speedup"], "communication, %": 100 * line["communication, s"] / line["step, s"]}
        for words, place in QUANTITIES.items():
            cited = said(*place, *key) if theirs else None
            if theirs or words == "speedup":
                rows.append(ItemRow(f"{label}: {words}", cited, *both(ours[words], line["how"]), remark=remark))
    if not rows:
        rows = [
            ItemRow(f"{line['network']}, {line['CPUs']} CPUs, {WITH_MASTER}: {words}",
                said(*place, line["network"], batch, line["CPUs"]))
            for words, place in QUANTITIES.items() for line in KNOWN.tables[place[0]].lines() if line["batch"] == batch
        ]  # fmt: skip
    return Item(
        f"Figure 5.{number}", f"a training step of batch {batch} on CPUs: speedup and share of communication",
        f"section 5.1, page {PAGES[batch]}", tuple(rows),
        why, RESULTS, MODEL, COMMAND, (f"step_{batch}.png",) if tables["split"] else (), reason=PICTURE,
    )  # fmt: skip


def text_of_cpus(tables):
    """What sections 5.1.1 to 5.1.3 say beside the speedups."""
    lines = [line for line in tables["split"] if line["form"] in (WITH_MASTER, "one rank")]
    by_case = {(line["network"], line["batch"], line["ranks"]): line for line in lines}
    rows = []
    for line in KNOWN.tables["speedups at any batch size"].lines():
        network, cpus = line["network"], line["CPUs"]
        mine = [by_case.get((network, batch, cpus)) for batch in BATCH_SIZES]
        for word, ours in (("least", min), ("most", max)):
            cited = said("speedups at any batch size", word, network, cpus)
            one = ours(mine, key=lambda row: row["speedup"]) if all(mine) else None
            numbers = both(one["speedup"], one["how"]) if one else ()
            remark = at(one) if one else ""
            rows.append(
                ItemRow(f"{network}, {cpus} CPUs, the {word} of all batch sizes: speedup", cited, *numbers, remark=remark)
            )
    for line in KNOWN.tables["computation of CPUs"].lines():
        key = line["batch"], line["CPUs"]
        one = by_case.get(("500:1500", *key))
        numbers = both(100 * one["computation, s"] / one["step, s"], one["how"]) if one else ()
        label = f"500:1500, batch {key[0]}, {counted(key[1], 'CPU')}: computation, %"
        rows.append(ItemRow(label, said("computation of CPUs", "percent", *key), *numbers))
    for line in KNOWN.tables["greatest speedup of CPUs"].lines():
        one = by_case.get(("500:1500", line["batch"], 1))
        value = one["step, s"] / one["computation, s"] if one else None
        cited = said("greatest speedup of CPUs", "speedup", line["batch"])
        rows.append(ItemRow(f"500:1500, batch {line['batch']}, any number of CPUs: greatest speedup", cited, value))
    one = by_case.get(("50:500", 64, 4))
    numbers = both(one["communication, s"] / one["convolution, s"], one["how"]) if one else ()
    label = "50:500, batch 64, 4 CPUs: communication over convolution"
    rows.append(ItemRow(label, KNOWN.values["communication over convolution"], *numbers))
    return Item(
        "Sections 5.1.1 to 5.1.3", "what the text says of all batch sizes, and of the parts of a step",
        "sections 5.1.1 to 5.1.3, pages 35 to 37", tuple(rows),
        f"{LAPTOPS}. The other layers take a smaller part of a step here, so that more would be possible. Large batches have "
        "one round.",
        RESULTS, MODEL, COMMAND, reason=PICTURE,
    )  # fmt: skip


def unequal():
    """Two unequal ranks on a slow network."""
    found, why = laptops.kept()
    lines, rows = laptops.rows(found), []
    ratios = [seconds.value / line["alone, s"] for line in lines if (seconds := seconds_on_one(line["network"]))
              and line["setting"] == "in memory"]  # fmt: skip
    faster = f"it computes {min(ratios):.0f} to {max(ratios):.0f} times as fast as the first laptop, while " if ratios else ""
    for line in lines:
        theirs = line["form"] == WITH_MASTER
        cited = said("speedups of CPUs", "speedup", line["network"], found["batch_size"], 2) if theirs else None
        spread = f"{line['rounds']} rounds, {line['least']:.3g} to {line['most']:.3g}"
        rows.append(ItemRow(f"{line['network']}: speedup {line['setting']}", cited, line["speedup"], remark=spread))
        if theirs:
            rows.append(ItemRow(f"{line['network']}: communication {line['setting']}, %", None, line["communication, %"]))
    if not rows:
        rows = [ItemRow(f"{line['network']}: speedup at 5 MB/s", said("speedups of CPUs", "speedup", line["network"], 64, 2))
                for line in KNOWN.tables["speedups of CPUs"].lines() if (line["batch"], line["CPUs"]) == (64, 2)]  # fmt: skip
    return Item(
        "Figure 5.1, as written", "two unequal CPUs at 5 MB/s, batch 64, over the slower one alone, which is the master",
        "section 5.1, pages 32 to 36", tuple(rows),
        "The first rank is slowed down as much as the thesis' speedups imply, and the kernels are shared by measured speed. At "
        "5 MB/s a step of a core of today waits for the network: "
        f"{faster}the bytes are the same. In the thesis' proportion both ranks and network are scaled so that computing and "
        "sending have the thesis' ratio, which the text implies of two networks by what it prints of 4 CPUs; "
        "what it prints of 2 is not used.",
        str(laptops.FILE), command=laptops.COMMAND,
        processor=laptops.machine_of(found),
        reason="Batch 64 alone: at 5 MB/s a step of 500:1500 at batch 1024 would send for ten minutes. Two CPUs alone: 3 or 4 "
        "hosts would share 2 cores. Of 500:1500 no speedup on 2 CPUs at batch 64 is printed, and of 300:1000 too little to "
        "know how long the first laptop took." + (f" Nothing is kept: {why}." if why else ""),
    )  # fmt: skip


def gpus():
    """Figures 5.6 to 5.10."""
    rows = [
        ItemRow(f"{line['case']}, {line['GPUs']} GPUs: {words}", said(table, column, line["case"], line["GPUs"]))
        for words, table, column in (
            ("speedup", "speedups of GPUs", "speedup"), ("communication, %", "communication of GPUs", "percent"),
        )
        for line in KNOWN.tables[table].lines()
    ]  # fmt: skip
    return Item(
        "Figures 5.6 to 5.10", "a training step on one to three GPUs", "section 5.2, pages 37 to 41", tuple(rows),
        reason=f"{NO_GPU} The thesis used three laptops with NVIDIA GPUs.",
    )  # fmt: skip


def tables_5(tables):
    """Tables 5.1 to 5.3."""
    rows = []
    for line in tables["5.1"]:
        for form in (WITH_MASTER, MASTERLESS):
            cited = said("5.1", "speedup", line["network"], line["CPUs"]) if form == WITH_MASTER else None
            numbers = line[f"{form}, measured"], line[f"{form}, predicted"]
            remark = f"best at {line[f'{form}, best at']}" if any(number is not None for number in numbers) else ""
            rows.append(ItemRow(f"{line['network']}, {line['CPUs']} CPUs: {form}", cited, *numbers, remark=remark))
    yield Item(
        "Table 5.1", "best speedups by network and number of CPUs, over all batch sizes", "section 5.3, page 42", tuple(rows),
        f"{LAPTOPS}. The best of the speedups of Figures 5.1 to 5.5, from the same rounds. The best of five "
        "timings is too high, more so as those of large batches are of one round.",
        RESULTS, MODEL, COMMAND, reason="Ranks beyond the cores here are predicted. With one batch size there is no best. "
        f"{MASTERLESS.capitalize()} is a form of this project, of which the thesis has no numbers.",
    )  # fmt: skip
    yield Item(
        "Table 5.2", "best speedups by network and number of GPUs", "section 5.3, page 42",
        rows_of(
            tables["5.2"], lambda line: f"{line['network']}, {line['GPUs']} GPUs",
            {"": (lambda line: said("5.2", "speedup", line["network"], line["GPUs"]), None, "predicted")},
        ),
        "The text describes one case, 500:1500 at batch 1024, for which the prediction is too small: by equation 5.1 at 5 MB/s "
        "communication alone would take longer than the thesis' speedup allows.",
        model=TEXT_MODEL, command=COMMAND, reason=NO_GPU,
    )  # fmt: skip
    rows = []
    for line in KNOWN.tables["5.3"].lines():
        case = line["network"], line["devices"]
        label = f"{case[0]}, {counted(case[1], 'device')}"
        rows.append(ItemRow(label, said("5.3", "speedup", *case)))
        if (derived := gpu_over_cpu(*case)) is not None:
            rows.append(ItemRow(f"{label}, from the other tables", derived))
    yield Item(
        "Table 5.3", "speedups of GPUs over as many CPUs", "section 5.5, page 45", tuple(rows),
        reason=f"{NO_GPU} Nor do the tables of the thesis say the same: this one is of batch 1,024, while Tables 5.1 and 5.2 "
        "have the best of all batch sizes.",
    )  # fmt: skip


def scaling(tables):
    """Figures 5.11 to 5.15."""
    for name, words, pages, what in (
        ("Figure 5.11", "CPUs", "pages 43 and 44", "the smallest and the largest network on 1 to 32 CPUs"),
        ("Figure 5.12", "GPUs", "page 44", "the largest network on 1 to 32 GPUs"),
    ):
        found = [line for line in tables["scaling"] if line["cluster"].startswith(words) and line["nodes"] > 1]
        limit = f"greatest speedup of {words}" + (" in section 5.4" if words == "CPUs" else "")
        limited = "the constants are made of the 7.76 of section 5.1.3" if words == "CPUs" else FITTED
        rows = rows_of(
            [line for line in found if not is_fitted(line)],
            lambda line: f"{line['cluster']}, {line['nodes']} nodes, {line['equation']}",
            {"": (cited_of_nodes, None, "speedup")},
        )  # fmt: skip
        fitted = dict.fromkeys(line["nodes"] for line in found if is_fitted(line))  # by each equation
        rows += tuple(
            ItemRow(f"500:1500, batch 1024, {nodes} {words}", said("5.1", "speedup", "500:1500", nodes), remark=FITTED)
            for nodes in fitted
        )
        yield Item(
            name, f"scalability: speedup of {what}", f"section 5.4, {pages}",
            (*rows, ItemRow(f"500:1500, batch 1024, any number of {words}", KNOWN.values[limit], remark=limited)),
            "Equation 5.1 as printed counts the input of a layer once; by Algorithm 4.1 each slave gets it, and then the "
            "speedup falls again with many nodes. What the constants are made of is not predicted beside it.",
            model=TEXT_MODEL, command=COMMAND, figures=("scaling.png",) if name == "Figure 5.11" else (),
            reason="The thesis predicts too; its numbers are in a picture.",
        )  # fmt: skip
    for number, pages in ((13, "page 46"), (14, "page 46"), (15, "page 47")):
        found = [line for line in tables["rates"] if line["figure"].startswith(f"5.{number}")]
        rates = [name for name in tables["rates"][0] if name.endswith("MiB/s")]
        yield Item(
            f"Figure 5.{number}", "speedup at other transmission rates, largest network, batch 1024", f"section 5.5, {pages}",
            rows_of(found, lambda line: f"{line['figure'][5:].strip()}, {line['nodes']} nodes",
                    {rate: (None, None, rate) for rate in rates}),
            "The rates, and how fast high-end devices are, are assumed where the text has no numbers."
            + (" Of the 3.28 of 4 CPUs at 5 MiB/s the constants are made." if number == 13 else ""),
            model=TEXT_MODEL, command=COMMAND, figures=("rates.png",) if number == 13 else (),
            reason="The thesis predicts too; its numbers are in a picture.",
        )  # fmt: skip


def is_fitted(line):
    """Whether the constants are made of the speedup of this line of the table "scaling": those of Table 5.1 are."""
    case = line["network"], line["batch"], line["nodes"]
    return line["cluster"].startswith("CPUs") and case in [(*LARGEST, nodes) for nodes in (2, 3, 4)]


def cited_of_nodes(line):
    """The Cited speedup of a line of the table "scaling", where the text prints one."""
    if line["cluster"].startswith("GPUs"):
        return None  # Table 5.2 has the best of all batch sizes
    return said("speedups of CPUs", "speedup", line["network"], line["batch"], line["nodes"])


def roofline():
    """Figures 5.17 and 5.18."""
    found, why = kept_roofline()
    rows, reached = [], near_the_peak()
    if found:
        rows.append(ItemRow("peak, GFLOP/s in float32", None, found["peak"] / 1e9))
        rows += [ItemRow(f"bandwidth of the {name}, GB/s", None, rate / 1e9) for name, rate in found["bandwidths"].items()]
        rows += [ItemRow(f"{layer}, forward: GFLOP/s", None, rate / 1e9, remark=algorithm)
                 for layer, algorithm, rate in found["points"]]  # fmt: skip
    return Item(
        "Figures 5.17 and 5.18", "the roofline of the devices, and where the convolutions lie",
        "section 5.5.2, pages 49 and 50", tuple(rows),
        "The thesis' kernel on GPUs is bound by memory. " + (f"Here {reached[0]}: more than 1 where Winograd's algorithm saves "
        "products." if reached else ""),
        str(ROOFLINE), processor=found["processor"] if found else "",
        command="summary --net marques-50-500 --net marques-150-800 --net marques-300-1000 --net marques-500-1500 "
        "--batch-size 16 --measure --out results/roofline.json",
        figures=("../roofline.png",) if rows else (),
        reason="The published numbers are in pictures, and of GPUs." + (f" Nothing is kept: {why}." if why else ""),
    )  # fmt: skip
