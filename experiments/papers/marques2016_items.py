"""Marques 2016 on the page of all papers: its tables, figures and claims as items."""

import json
from pathlib import Path

from gridgrad.experiments.papers.items import Item, Row, rows_of
from gridgrad.experiments.papers.marques2016_runs import MASTERLESS, WITH_MASTER

TITLE = (
    "Marques: Distributed learning of convolutional neural networks on heterogeneous processing units "
    "(Master's thesis, University of Coimbra, 2016)"
)
DESCRIBED = (
    "Table 4.1, Table I of Appendix A and Figures 1.1 to 3.2 and 5.16 say which machines were used, or are drawings: they hold "
    "no results."
)
RESULTS = "results/marques2016/tables.json"
COMMAND = "reproduce marques2016"
MODEL = "the parts measured on two ranks, in the proportion that the cost model has for them"
TEXT_MODEL = "equation 5.1 with the constants that the text implies (`experiments/papers/marques2016_scaling.py`)"
AUTOENCODER, ROOFLINE = Path("results/autoencoder.json"), Path("results/roofline.json")
SPEEDUPS = {  # network, batch, CPUs: what the text of sections 5.1.1 to 5.1.3 has
    ("50:500", 64, 2): 1.20, ("50:500", 64, 3): 1.35, ("50:500", 64, 4): 1.35, ("150:800", 64, 2): 1.67,
    ("150:800", 64, 3): 1.80, ("150:800", 64, 4): 1.95, ("300:1000", 64, 2): 1.61, ("300:1000", 64, 4): 2.18,
    ("500:1500", 64, 4): 2.27, ("500:1500", 1024, 2): 1.98, ("500:1500", 1024, 3): 2.73, ("500:1500", 1024, 4): 3.28,
}  # fmt: skip
SHARES = {("50:500", 64, 4): 47.0, ("150:800", 64, 4): 30.0, ("500:1500", 64, 4): 19.0}  # % of communication in a step
GPU_SPEEDUPS = {"50:500, batch 64": (1.92, 2.50), "150:800, batch 64": (1.85, 2.22)}  # section 5.2: on 2 and 3 GPUs
BATCHES = 64, 128, 256, 512, 1024
LAPTOPS = "The thesis ran on four laptops, each faster than the one before, that send 5 MB/s; here ranks are equal cores"
PICTURE = "The curves are pictures: of them the text holds the numbers that stand here alone."
NO_GPU = "No GPU was measured: there is none here."
WIDTHS = {"mGPU1": (3150, 3_263_010), "mGPU2": (5950, 6_161_010), "mGPU3": (5000, 5_177_760), "mGPU4": (7250, 7_506_510)}
ENERGY = {"refGPU": 3.7050, "mGPU1": 0.0541, "mGPU2": 0.0436, "mGPU3": 0.0593, "mGPU4": 0.0256}  # Wh of an epoch
PAGES = {64: 32, 128: 33, 256: 33, 512: 34, 1024: 34}


def items(tables):
    """All items. tables: of `marques2016.tables`."""
    return [
        *(steps(tables, number, batch) for number, batch in enumerate(BATCHES, 1)),
        gpus(), *tables_5(tables), *scaling(tables), roofline(), claims(tables), *appendix(),
    ]  # fmt: skip


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    return tables.get("machine", "")


def steps(tables, number, batch):
    """Figure 5.1 to 5.5: the speedups of the steps of one batch size, and the share of communication."""
    rows = []
    for line in tables["split"]:
        key = line["network"], line["batch"], line["ranks"]
        if line["batch"] != batch or line["ranks"] == 1:
            continue
        label = f"{line['network']}, {line['ranks']} CPUs, {line['form']}"
        theirs = line["form"] == WITH_MASTER
        for words, value, known in (
            ("speedup", line["speedup"], SPEEDUPS),
            ("communication, %", 100 * line["communication, s"] / line["step, s"], SHARES),
        ):  # fmt: skip
            spread = f"{line['rounds']} rounds" if line["how"] == "measured" else ""
            numbers = (value, None) if line["how"] == "measured" else (None, value)
            rows.append(Row(f"{label}: {words}", known.get(key) if theirs else None, *numbers, remark=spread))
    if not rows:
        rows = [Row(f"{net}, {cpus} CPUs, {WITH_MASTER}: {words}", value)
                for words, known in (("speedup", SPEEDUPS), ("communication, %", SHARES))
                for (net, size, cpus), value in known.items() if size == batch]  # fmt: skip
    return Item(
        f"Figure 5.{number}", f"a training step of batch {batch} on CPUs: speedup and share of communication",
        f"section 5.1, page {PAGES[batch]}", tuple(rows),
        f"{LAPTOPS} of one machine, whose messages go through memory: communication is a small part, and equal nodes gain less "
        f"than faster ones. {MASTERLESS.capitalize()} is the same without a master.",
        RESULTS, MODEL, COMMAND, ("step.png",) if number == 1 and tables["split"] else (),
        reason=PICTURE,
    )  # fmt: skip


def gpus():
    """Figures 5.6 to 5.10."""
    rows = [Row(f"{case}, {count} GPUs: speedup", value) for case, values in GPU_SPEEDUPS.items()
            for count, value in zip((2, 3), values)]  # fmt: skip
    return Item(
        "Figures 5.6 to 5.10", "a training step on one to three GPUs", "section 5.2, pages 37 to 39", tuple(rows),
        reason=f"{NO_GPU} The thesis used three laptops with NVIDIA GPUs.",
    )  # fmt: skip


def tables_5(tables):
    """Tables 5.1 to 5.3."""
    rows = tuple(
        Row(f"{line['network']}, {line['CPUs']} CPUs: {form}", line[published] if published else None,
            line[f"{form}, measured"], line[f"{form}, predicted"], line[f"{form}, measured at"] or "")
        for line in tables["5.1"]
        for form, published in ((WITH_MASTER, "published"), (MASTERLESS, None))  # masterless is not the thesis'
    )  # fmt: skip
    yield Item(
        "Table 5.1", "best speedups by network and number of CPUs, over all batch sizes", "section 5.3, page 42", rows,
        f"{LAPTOPS}. The best over all batch sizes is also the luckiest: large batches have one round.",
        RESULTS, MODEL, COMMAND, whole=True, reason="Ranks beyond the cores here are predicted. "
        f"{MASTERLESS.capitalize()} is a form of this project, of which the thesis has no numbers.",
    )  # fmt: skip
    yield Item(
        "Table 5.2", "best speedups by network and number of GPUs", "section 5.3, page 42",
        rows_of(
            tables["5.2"], lambda line: f"{line['network']}, {line['GPUs']} GPUs", {"": ("published", "measured", "predicted")}
        ),
        "The text describes one case, 500:1500 at batch 1024, for which the prediction is too small: by equation 5.1 at 5 MB/s "
        "communication alone would take longer than the thesis' speedup allows.",
        model=TEXT_MODEL, command=COMMAND, reason=NO_GPU,
    )  # fmt: skip
    yield Item(
        "Table 5.3", "speedups of GPUs over as many CPUs", "section 5.5, page 45",
        rows_of(tables["5.3"], lambda line: f"{line['network']}, {line['devices']} devices",
                {"": ("published", "measured", "computed from 5.1 and 5.2")}),
        "The table is of batch 1,024, while Tables 5.1 and 5.2 have the best of all batch sizes, each over another laptop: so "
        "it does not follow from them.",
        model="the published ratio of one device, times Table 5.2, over Table 5.1", command=COMMAND, reason=NO_GPU,
    )  # fmt: skip


def scaling(tables):
    """Figures 5.11 to 5.15."""
    for name, words, pages, what in (
        ("Figure 5.11", "CPUs", "page 43", "the smallest and the largest network on 1 to 32 CPUs"),
        ("Figure 5.12", "GPUs", "page 44", "the largest network on 1 to 32 GPUs"),
    ):
        found = [line for line in tables["scaling"] if line["cluster"].startswith(words) and line["nodes"] > 1]
        yield Item(
            name, f"scalability: speedup of {what}", f"section 5.4, {pages}",
            rows_of(found, lambda line: f"{line['cluster']}, {line['nodes']} nodes, {line['equation']}",
                    {"": (None, None, "speedup")}),
            "Equation 5.1 as printed counts the input of a layer once; by Algorithm 4.1 each slave gets it, and then the "
            "speedup falls again with many nodes.",
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
            "The rates, and how fast high-end and mobile devices are, are assumed where the text has no numbers.",
            model=TEXT_MODEL, command=COMMAND, figures=("rates.png",) if number == 13 else (),
            reason="The thesis predicts too; its numbers are in a picture.",
        )  # fmt: skip


def roofline():
    """Figures 5.17 and 5.18."""
    rows, processor = [], ""
    if ROOFLINE.exists():
        kept = json.loads(ROOFLINE.read_text())
        processor = kept["versions"]["processor"]
        rows.append(Row("peak, GFLOP/s in float32", None, kept["flops_per_second"] / 1e9))
        rows += [Row(f"bandwidth of the {line['name']}, GB/s", None, line["bytes_per_second"] / 1e9)
                 for line in kept["bandwidths"]]  # fmt: skip
        for point in kept["points"]:
            if point["layer"].startswith("marques") and point["pass"] == "forward":
                rate = point["flops"] / point["seconds"]["median"] / 1e9
                rows.append(Row(f"{point['layer'][8:]}, forward: GFLOP/s", None, rate, remark=point["algorithm"]))
    return Item(
        "Figures 5.17 and 5.18", "the roofline of the devices, and where the convolutions lie",
        "section 5.5.2, pages 49 and 50", tuple(rows),
        "The thesis' kernel on GPUs is bound by memory; ours on a CPU core lies near the peak, or beyond it where "
        "Winograd's algorithm saves products.",
        str(ROOFLINE), processor=processor,
        command="study roofline --out results/roofline.png --json results/roofline.json",
        figures=("../roofline.png",) if rows else (), reason="The published numbers are in pictures, and of GPUs.",
    )  # fmt: skip


def claims(tables):
    """What the text says, one by one."""
    rows = []
    for line in tables["claims"]:
        how, ours, holds = line["how"], line["ours"], {True: "holds", False: "does not hold", None: ""}[line["holds"]]
        remark = ", ".join(filter(None, (holds, how)))
        if how == "the text":
            rows.append(Row(line["claim"], f"{line['published']}, but {ours}", remark=remark))
        elif how.startswith("measured"):
            rows.append(Row(line["claim"], line["published"], ours, remark=remark))
        else:
            rows.append(Row(f"{line['claim']}, {how}", line["published"], None, ours, holds))
    return Item(
        "Claims", "what the text says, and what is found", "sections 4 to 5.5.1", tuple(rows),
        "Most of what is predicted from the text holds if equation 5.1 is as printed; what depends on slow laptops and a slow "
        "network does not carry over to cores.",
        RESULTS, f"{MODEL}; {TEXT_MODEL}", COMMAND, whole=True,
    )  # fmt: skip


def appendix():
    """Appendix A: a stacked autoencoder."""
    kept = json.loads(AUTOENCODER.read_text()) if AUTOENCODER.exists() else None
    error, processor = (kept["test_error"], kept["versions"]["processor"]) if kept else (None, "")
    yield Item(
        "Appendix A: error", "classification error of 784-500-250-10 on MNIST, %", "Appendix A, section IV",
        (Row("test error", 1.47, error, remark="15 epochs of pre-training, 30 of fine-tuning" if error is not None else ""),),
        "The paper trains for 1,500 epochs and names no corruption of the inputs; here it is 45 epochs.",
        str(AUTOENCODER), processor=processor,
        command="study autoencoder --validation 0.16667 --corruption 0.25 --pretrain-epochs 15 --epochs 30 --energy "
        f"--report {AUTOENCODER}",
    )  # fmt: skip
    yield Item(
        "Appendix A: Table II", "energy of an epoch, Wh", "Appendix A, section IV",
        tuple(Row(name, value) for name, value in ENERGY.items()),
        reason="It needs phones and a power meter, or counters of energy (RAPL), which virtual machines do not show.",
    )  # fmt: skip
    yield Item(
        "Appendix A: Table III", "weights of the largest network that a phone holds", "Appendix A, section IV",
        tuple(Row(f"{name}, {width} neurons in the first hidden layer: weights", weights, None, weights_of(width))
              for name, (width, weights) in WIDTHS.items()),
        "The numbers of weights follow from the widths; the largest width for a given memory is in results/autoencoder.md.",
        model="784 w + 250 w + 2500 weights and w + 260 biases",
        reason="The largest width is that of a phone's memory, and there is no phone here.",
    )  # fmt: skip


def weights_of(width):
    """Weights and biases of 784-width-250-10."""
    return 784 * width + width * 250 + 250 * 10 + width + 250 + 10
