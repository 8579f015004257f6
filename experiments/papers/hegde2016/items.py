"""Hegde and Usmani 2016 on the page of all papers: its figures and costs as items."""

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.cited import RATIO, published
from gridgrad.experiments.papers.hegde2016 import costs as of_costs
from gridgrad.experiments.papers.hegde2016 import kept as other_programs
from gridgrad.experiments.papers.hegde2016 import threads
from gridgrad.experiments.papers.hegde2016.claims import NO_GPU, VALUES, is_gpu
from gridgrad.experiments.papers.items import Item, ItemRow, rows_of
from gridgrad.experiments.papers.other_results import kept

TITLE = "Hegde, Usmani: Parallel and distributed deep learning (2016)"
ABOUT = (
    "The paper times a convolution and a fully connected layer on a CPU and a GPU, and gives orders of magnitude of what "
    "ParallelSGD, ADMM SGD and Downpour SGD send and compute. It claims that the GPU is about 40 times as fast and gains more "
    "on larger batches, that ADMM SGD needs no shuffle, the main bottleneck of ParallelSGD, and that asynchronous methods do "
    "not wait."
)
DESCRIBED = "Figure 5 is a drawing of data parallelism: it holds no results."
RESULTS = "results/hegde2016/tables.json"
COMMAND = "reproduce hegde2016"
GPU = f"N{NO_GPU[1:]}, so speedups are those of several CPU threads over one."
PICTURE = "The curve is a picture; the text holds the numbers that stand here."
ORDERS = "The paper has orders of magnitude, and no numbers."
FORMULA_ALONE = "The paper has the formula, but no numbers."


def items(tables):
    """All items. tables: of `hegde2016.tables`."""
    return [
        convolution(tables), ratios(tables, "Figure 2", "convolution_speedups", "channels", "batch", "figure2.png"),
        dense(tables), ratios(tables, "Figure 4", "dense_speedups", "batch", "n", "figure4.png"),
        *threads.items(tables), *section_5(tables),
    ]  # fmt: skip


def measured_on(tables):
    """Where it was measured, in words; empty if nowhere."""
    versions = tables.get("versions", {}).values()
    return next((f"{one['processor']}, {one['blas']}" for one in versions), "")


def has_gpu(tables):
    """Whether a GPU was measured."""
    return any(is_gpu({"device": name}) for name in tables.get("versions", {}))


def reason(tables):
    """What is missing in a figure of section 3."""
    return PICTURE if has_gpu(tables) else f"{GPU} {PICTURE}"


def convolution(tables):
    """Figure 1: slopes of the time over the batch."""
    ours = {(line["device"], line["channels"]): line for line in tables["convolution_slopes"] if line["R2"] is not None}
    grey = {name: line["ms_an_image"] for (name, channels), line in ours.items() if channels == 1}
    gpu = next((name for name in grey if is_gpu({"device": name})), None)
    cpu = next(iter(grey), "1 CPU thread")
    measured = grey[cpu] / grey[gpu] if gpu else None
    rows = [
        ItemRow(f"{gpu or 'GPU'}, 1 channel: ms an image", VALUES["slope_gpu"], grey.get(gpu)),
        ItemRow("a CPU over the GPU, in the text", VALUES["ratio_convolution"], measured),
        ItemRow("a CPU over the GPU, by the slopes", RATIO(VALUES["slope_cpu"], VALUES["slope_gpu"]), measured),
    ]
    for name, channels in ours or {(cpu, 1): None}:
        line = ours.get((name, channels), {})
        label = f"{name}, {counted(channels, 'channel')}"
        cited = VALUES["slope_cpu"] if (name, channels) == (cpu, 1) else None
        if (name, channels) != (gpu, 1):
            rows.append(ItemRow(f"{label}: ms an image", cited, line.get("ms_an_image")))
        if line:
            rows.append(ItemRow(f"{label}: R^2 of the line", None, line["R2"]))
    return Item(
        "Figure 1", "time of a convolution, 96 kernels of 11x11 with stride 4 on 224x224, over the batch",
        "section 3.2.1", tuple(rows),
        "A newer core does it in a fraction of the time of a Xeon E5-2670; the paper names no unit, and ms an image fits. "
        "Linear in the batch, there and here.",
        RESULTS, command=COMMAND, figures=("figure1.png",), reason=reason(tables), compares=False,
    )  # fmt: skip


def dense(tables):
    """Figure 3: exponents of n."""
    rows = [
        ItemRow(f"{line['device']}, {counted(line['batch'], 'sample')}, {line['n']}: exponent of n", VALUES["exponent_n"],
            line["exponent"], remark=f"R^2 {line['R2']:.4f}")
        for line in tables.get("dense_fits", [])
    ]  # fmt: skip
    rows = rows or [ItemRow("exponent of n", VALUES["exponent_n"])]
    return Item(
        "Figure 3", "time of a fully connected layer of n inputs and outputs: exponent of n", "section 3.2.2", tuple(rows),
        "Small matrices stay in a cache and large ones do not, so for one sample the exponent is larger than that of the text.",
        RESULTS, command=COMMAND, figures=("figure3.png",), reason=reason(tables),
    )  # fmt: skip


def ratios(tables, name, table, kind, size, figure):
    """Figure 2 or 4: speedups over one CPU thread."""
    cited = VALUES["ratio_convolution" if size == "batch" else "ratio_dense"]
    rows = [ItemRow("GPU over CPU, all sizes together", cited)]
    rows += rows_of(
        [line | {"spread": f"{line['min']:.3g} to {line['max']:.3g}"} for line in tables.get(table, [])],
        lambda line: f"{line['device']}, {kind} {line[kind]}, {size} {line[size]}",
        {"": (None, "speedup", None)}, lambda line: line["spread"],
    )  # fmt: skip
    what = "convolution by batch" if size == "batch" else "fully connected layer by n"
    return Item(
        name, f"times as fast as one CPU thread: {what}", cited.place, tuple(rows),
        "The paper's GPU of 1,536 cores is forty times as fast as its CPU. Two threads should be at most twice as fast as one, "
        "if nothing but arithmetic counted; results/hegde2016/threads.json looks into larger ratios. What compares is "
        "whether large sizes gain more than small ones, by the medians of thirds of the sizes.",
        RESULTS, command=COMMAND, figures=(figure,) if tables.get(table) else (), reason=reason(tables),
    )  # fmt: skip


def in_the_paper(column, words):
    """Rows with the orders of magnitude that the paper prints in a column of its costs, which are words. words: the column."""
    costs = published("hegde2016").tables["costs"]
    cited = {line["algorithm"]: costs.cited(column, line["algorithm"]) for line in costs.lines()}
    return tuple(ItemRow(f"{name}, {words} in the paper", one) for name, one in cited.items() if one)


def filled_in(terms, compute):
    """Rows with the paper's terms, filled in with what its letters are here. terms: the words. compute: the function."""
    return tuple(
        ItemRow(f"{name}, k = {k}: the paper's terms", None, None, compute(name, k), text)
        for name, (text, _) in terms.items() for k in of_costs.WORKERS
    )  # fmt: skip


def section_5(tables):
    """What update protocols send and compute, and the limit of a server."""
    label = lambda line: f"{line['algorithm']}, k = {line['k']}"  # noqa: E731
    model = "the paper's terms, without their constants; `experiments/papers/hegde2016/protocol_cost.py`"
    yield Item(
        "Section 5: communication", "MiB sent in an epoch of 60,000 images of MNIST by k workers, beside what the terms of the "
        "paper are for them", "sections 5.1 and 5.2",
        in_the_paper("communication", "communication cost") + in_the_paper("time", "communication time")
        + filled_in(of_costs.TERMS, of_costs.terms)
        + rows_of(tables["costs"], label, {
            "all workers": (None, "counted MiB", "all workers, *predicted* MiB"),
            "the busiest": (None, "busiest, counted MiB", "busiest, *predicted* MiB"),
            "its messages": (None, "its messages, counted", "its messages, *predicted*"),
        }),
        "The orders leave out constants such as the 2 (k - 1)/k of an all-reduce; what is predicted is counted, but for "
        "headers and the last fetch of Downpour SGD.",
        RESULTS, model, COMMAND, reason=ORDERS,
    )  # fmt: skip
    yield Item(
        "Section 5: computation", "millions of operations in the same epoch besides gradients, on the rank with the most, "
        "beside what the paper's terms are for them", "sections 5.1 and 5.2",
        in_the_paper("computation", "computation") + filled_in(of_costs.WORK, of_costs.work)
        + rows_of(tables["computations"], label, {"": (None, "counted millions", "operations, *predicted* millions")}),
        "An update with momentum is four operations for each parameter, where the terms have one.",
        RESULTS, model, COMMAND,
        reason=f"{ORDERS} What ShuffleSGD computes is a merge of sorted lists, which is not counted in jobs.",
    )  # fmt: skip
    yield Item(
        "Section 5.2.1", "workers that keep an asynchronous server busy, P = T/tau", "section 5.2.1",
        (
            ItemRow("workers in the paper", VALUES["workers_of_a_server"]),
            *rows_of(tables["limits"], lambda line: f"{line['net']}, {line['machine']}, server {line['server']}",
                     {"": (None, None, "T/tau")}),
        ),
        model="`experiments/papers/hegde2016/protocol_cost.py`, machine files `ethernet-1g` and `cori-haswell`",
        command=COMMAND, reason=FORMULA_ALONE,
    )  # fmt: skip
    limit, _ = kept(other_programs.file("servers"), measured_limit)
    if limit:
        yield limit


def measured_limit(content):
    """Updates a second of a server, as they were measured. content: of its file."""
    limit = other_programs.limit_of(content)
    rows = [
        ItemRow(counted(row["workers"], "worker"), None, row["measured"], row["predicted"],
            f"{row['least']:.3g} to {row['most']:.3g}")
        for row in limit["rows"]
    ]  # fmt: skip
    ratio = limit["compute"] / limit["tau"]
    return Item(
        "Section 5.2.1, measured", "updates a second of an asynchronous server, by its workers", "section 5.2.1", tuple(rows),
        "The workers sleep for T instead of computing, since there are two cores. Predicted is k/(T + R), up to 1/tau, where R "
        f"is the time of an update that nobody else wants at the same time. T/tau is {ratio:.1f}. A worker also waits for its "
        "own update, and does not compute meanwhile, so that by the paper's own terms 1/tau takes (T + tau)/tau workers, one "
        "more than T/tau.",
        f"{other_programs.file('servers')}", "`parallel/protocols/simulated_workers.py`", "sweep servers.toml",
        reason=FORMULA_ALONE, processor=limit["versions"]["processor"],
    )  # fmt: skip
