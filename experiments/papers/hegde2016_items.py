"""Hegde and Usmani 2016 on the page of all papers: its figures and costs as items."""

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.hegde2016_claims import PUBLISHED_RATIO, PUBLISHED_SLOPES
from gridgrad.experiments.papers.items import Item, Row, rows_of

TITLE = "Hegde, Usmani: Parallel and distributed deep learning (2016)"
DESCRIBED = "Figure 5 is a drawing of data parallelism: it holds no results."
RESULTS = "results/hegde2016/tables.json"
COMMAND = "reproduce hegde2016"
GPU = "There is no GPU here, so speedups are those of several CPU threads over one."
PICTURE = "The curve is a picture; the text holds the numbers that stand here."


def items(tables):
    """All items. tables: of `hegde2016.tables`."""
    return [
        convolution(tables), ratios(tables, "Figure 2", "convolution_speedups", "channels", "batch", "figure2.png"),
        dense(tables), ratios(tables, "Figure 4", "dense_speedups", "batch", "n", "figure4.png"),
        *section_5(tables),
    ]  # fmt: skip


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    versions = tables.get("versions", {}).values()
    return next((f"{one['processor']}, {one['blas']}" for one in versions), "")


def convolution(tables):
    """Figure 1: slopes of the time over the batch."""
    cpu, gpu = PUBLISHED_SLOPES.values()
    ours = [line for line in tables["convolution_slopes"] if line["R2"] is not None]
    rows = [Row("GPU, greyscale: ms an image", gpu), Row("a CPU over the GPU", PUBLISHED_RATIO)]
    first = True
    for line in ours:
        label = f"{line['device']}, {counted(line['channels'], 'channel')}"
        rows.append(Row(f"{label}: ms an image", cpu if first else None, line["ms_an_image"]))
        rows.append(Row(f"{label}: R^2 of the line", None, line["R2"]))
        first = False
    if not ours:
        rows.append(Row("1 CPU thread, 1 channel: ms an image", cpu))
    return Item(
        "Figure 1", "time of a convolution, 96 kernels of 11x11 with stride 4 on 224x224, over the batch",
        "section 3.2.1", tuple(rows),
        "A newer core does it in a fraction of the time of a Xeon E5-2670; the paper names no unit, and ms an image fits. "
        "Linear in the batch, there and here.",
        RESULTS, command=COMMAND, figures=("figure1.png",), reason=f"{GPU} {PICTURE}",
    )  # fmt: skip


def dense(tables):
    """Figure 3: exponents of n."""
    rows = [
        Row(f"{line['device']}, {counted(line['batch'], 'sample')}, {line['n']}: exponent of n", 2,
            line["exponent"], remark=f"R^2 {line['R2']:.4f}")
        for line in tables.get("dense_fits", [])
    ]  # fmt: skip
    rows = rows or [Row("exponent of n", 2)]
    return Item(
        "Figure 3", "time of a fully connected layer of n inputs and outputs: exponent of n", "section 3.2.2", tuple(rows),
        "Small matrices stay in a cache and large ones do not, so for one sample the exponent is larger than that of the text.",
        RESULTS, command=COMMAND, figures=("figure3.png",), reason=f"{GPU} {PICTURE}",
    )  # fmt: skip


def ratios(tables, name, table, kind, size, figure):
    """Figure 2 or 4: speedups over one CPU thread."""
    rows = [Row("GPU over CPU", PUBLISHED_RATIO)]
    rows += rows_of(
        [line | {"spread": f"{line['min']:.3g} to {line['max']:.3g}"} for line in tables.get(table, [])],
        lambda line: f"{line['device']}, {kind} {line[kind]}, {size} {line[size]}",
        {"": (None, "speedup", None)}, lambda line: line["spread"],
    )  # fmt: skip
    what = "convolution by batch" if size == "batch" else "fully connected layer by n"
    return Item(
        name, f"times as fast as one CPU thread: {what}", "section 3.2", tuple(rows),
        "The paper's GPU of 1,536 cores is forty times as fast as its CPU. Two threads should be at most twice as fast as one: "
        "the cause of larger ratios was not looked for, and the ranges beside them are wide. What compares is whether large "
        "sizes gain more than small ones.",
        RESULTS, command=COMMAND, figures=(figure,) if tables.get(table) else (), reason=f"{GPU} {PICTURE}",
    )  # fmt: skip


def section_5(tables):
    """What update protocols send and compute, and the limit of a server."""
    label = lambda line: f"{line['algorithm']}, k = {line['k']}"  # noqa: E731
    yield Item(
        "Section 5: communication", "MiB sent in an epoch of 60,000 images of MNIST by k workers; published: the terms of "
        "the paper's order, without constants", "sections 5.1 and 5.2",
        rows_of(tables["costs"], label, {
            "all workers": ("its terms, MiB", "counted MiB", "all workers, *predicted* MiB"),
            "the busiest": (None, "busiest, counted MiB", "busiest, *predicted* MiB"),
            "its messages": (None, "its messages, counted", "its messages, *predicted*"),
        }),
        "The orders leave out constants such as the 2 (k - 1)/k of an all-reduce; what is predicted is counted, but for "
        "headers and the last fetch of Downpour SGD.",
        RESULTS, "`parallel/performance/protocol_cost.py`", COMMAND,
        reason="Of the busiest worker and of messages the paper says nothing.",
    )  # fmt: skip
    yield Item(
        "Section 5: computation", "millions of operations in the same epoch besides gradients, on the rank with the most",
        "sections 5.1 and 5.2",
        rows_of(tables["computations"], label, {
            "": ("computation, paper", "counted millions", "operations, *predicted* millions"),
        }),
        "The paper has orders of magnitude alone; predicted is what the protocols here do, and counted in jobs.",
        RESULTS, "`parallel/performance/protocol_cost.py`", COMMAND,
        reason="What ShuffleSGD computes is a merge of sorted lists, which is not counted.",
    )  # fmt: skip
    yield Item(
        "Section 5.2.1", "workers that keep an asynchronous server busy, P = T/tau", "section 5.2.1",
        rows_of(tables["limits"], lambda line: f"{line['net']}, {line['machine']}, server {line['server']}",
                {"": (None, None, "T/tau")}),
        "The paper states the formula without numbers; on the ranks of a job it is measured by `gridgrad study servers` "
        "(results/servers.md).",
        model="`parallel/performance/protocol_cost.py`, machine files `ethernet-1g` and `cori-haswell`",
        command=COMMAND, reason="The paper has the formula, but no numbers.",
    )  # fmt: skip
