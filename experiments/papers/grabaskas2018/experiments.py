"""Grabaskas: Automated parallelization to improve usability and efficiency of distributed neural network training (2018).

Tables 4.13 to 4.23 and Appendices C and D of the thesis (TorchAD-NN): printed, measured here, predicted for its network.
What is run is in `runs.py`, what the thesis prints in `published/grabaskas2018.toml`.

- `Train()`, Torch's StochasticGradient: sample by sample on each node's stripe, averaged every n samples
  (`parallel/protocols/averaging.py`).
- `Backward()`: one all-reduce of the gradients a batch, n samples of each node: `train_step` on the grid `batch=P`.
- Model-parallel: sample by sample on `model=P` with the plans of `PLANS`. The thesis splits a dense layer by its inputs and
  all-reduces its outputs, so that every node has all of them, and their gradients again in backward; a layer that is not
  split is computed by every node, redundantly. So it is here, but that a split layer leaves partial sums, which the next split
  layer takes over with a reduce-scatter alone.
"""

from pathlib import Path

from gridgrad.experiments.common.tables import lines as markdown_lines
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.grabaskas2018 import runs as of_runs
from gridgrad.experiments.papers.grabaskas2018.runs import PAPER, lines, to_measure
from gridgrad.experiments.papers.other_results import kept
from gridgrad.experiments.papers.parts import LONG, USUAL, run_all
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import GridDescription, parse_grid
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read

MACHINE = "ethernet-1g"  # of parallel/prediction/machines: the network of section 3.1.3
USABILITY = Path("results/usability.json")
TABLES = {
    "4.14": ["C.36", "C.40", "C.44", "C.48", "C.52", "C.53", "C.56", "C.59", "C.62", "C.65"],
    "4.15": ["C.3", "C.8", "C.11", "C.14", "C.17", "C.20", "C.23", "C.26", "C.29", "C.32"],
    "4.16": [f"C.{i}" for i in (1, 2, 3, *range(6, 18))],
    "4.17": ["C.4", "C.5", "C.7", "C.10"],
    "4.18": ["C.53", "C.56", "C.59"],
    "4.19": ["C.18", "C.21", "C.24"],
    "4.21": [f"D.{i}" for i in range(71, 80)],
    "4.22": [f"D.{i}" for i in (94, 95, 97, 98, 100, 101, 103, 104, 106, 107)],
    "4.23": [f"D.{i}" for i in range(84, 94)],
    "Appendix C": [f"C.{i}" for i in range(1, 68)],
    "Appendix D": [f"D.{i}" for i in range(68, 109)],
}
READING = ("4.18", "4.19")
GPU = "The thesis used the TX1's GPU; there is none here, so what was measured is on CPU cores."
PLANNED = "`half` splits the first and the last dense layer, `first` the first one; every node computes the others."
TITLES = {
    "4.13": "Halstead's effort of data parallelism, and the seconds that it stands for (effort / 18)",
    "4.14": "MNIST, CPU, data-parallel",
    "4.15": f"CIFAR-10, GPU, data-parallel, five passes. {GPU}",
    "4.16": f"CIFAR-10, GPU, batch size of `Train()`. {GPU}",
    "4.17": f"CIFAR-10, GPU: all data on several nodes, a part of the data on one (C.4: 16,000, C.5: 8,000 samples). {GPU}",
    "4.18": "MNIST, seconds of pre-processing",
    "4.19": "CIFAR-10, seconds of pre-processing",
    "4.20": "Lines of code of model parallelism",
    "4.21": "MLP3 on CPU by size, model-parallel",
    "4.22": f"Model-parallel by network. {PLANNED} {GPU}",
    "4.23": f"MLP3 on GPU by size, model-parallel. {GPU} D.90 and D.92 did not fit its memory, so nothing is to be compared "
    "with: `#VALUE!` is the thesis' spreadsheet.",
    "Appendix C": "all lines of data parallelism",
    "Appendix D": "all lines of model parallelism. Lines of the GPU and of the CPU share a measurement, a sample at a time",
}
READ = (
    "Measured: the median of five times that the slowest rank takes to read the training data and to standardise its part. "
    "The thesis times everything before training, and does not say what it does to CIFAR for a minute. Each rank unzips MNIST "
    "whole, as theirs load it whole; of CIFAR, converted once, it maps its part. No prediction: disks are in no model here."
)
USED = (
    "Measured: what a program that trains with this library adds to become parallel, counted in Python. Halstead's numbers of "
    "Lua code and of Python code do not compare one to one; nor is there a prediction."
)


def predicted_step_seconds(net_spec, input_shape, outputs, batch_size, grid_text, plan_text, machine, single_seconds):
    """Seconds of a step on a grid: what is sent as the machine's network takes it, and the share of `single_seconds` that a
    rank computes, in proportion to the cost model's own (`parallel/prediction/cost.py`).

    net_spec, input_shape, outputs: what `network_names.build` takes. batch_size: of the global minibatch. grid_text,
    plan_text: as on the command line of train. machine: a Machine, whose network counts. single_seconds: what one node takes
    for the same minibatch.
    """
    net = network_names.build(net_spec, input_shape, outputs)
    grids = [GridDescription(sizes, ranks_per_node=machine.node["ranks"]) for sizes in ({}, parse_grid(grid_text))]
    alone, ours = (Cost(net, grid, plan_text, batch_size, machine).parts for grid in grids)
    share = (ours["compute"] + ours["update"]) / (alone["compute"] + alone["update"])
    return share * single_seconds + ours["gradients"] + ours["activations"]


def experiments(out, ranks, data_dir, full=False):
    """Measure, all lines whole if `full`: what `tables` takes."""
    return gathered(run_all(to_measure(LONG if full else USUAL, ranks, data_dir)), out)


def gathered(results, out):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    return of_runs.gathered(results)


def tables(measured=None):
    """{name: rows} of all tables, "runs" and "machine" of the measurement, where there is one."""
    runs = (measured or {}).get("runs", {})
    of_runs.processor_of(runs)
    usability = kept(USABILITY, programs_of)[0] or {}
    found = {
        table: used(table, columns, usability)
        for table, columns in (("4.13", {"effort": "effort", "seconds": "time"}), ("4.20", {"lines": "lines"}))
    }
    for name, refs in TABLES.items():
        row = reading if name in READING else training
        found[name] = [row(lines()[ref], runs) for ref in refs]
    for line_row, pre in zip(found["Appendix C"], (reading(lines()[ref], runs) for ref in TABLES["Appendix C"])):
        line_row.update({key: pre[key] for key in ("pre-processing, published", "pre-processing, measured")})
    return {name: found[name] for name in TITLES} | {key: measured[key] for key in ("machine", "runs") if runs}


def programs_of(content):
    """{our program: its "effort", "time" and "lines"} of the content of USABILITY; TypeError if one is no number."""
    return {name: {key: one[key] + 0 for key in ("effort", "time", "lines")} for name, one in content["programs"].items()}


def used(table, columns, usability):
    """The rows of Table 4.13 or 4.20: programs of the thesis, and those of `usability`. columns: {of the table: of ours}."""
    rows = [
        {"program": row["program"]} | {f"{column}, published": row[column] for column in columns}
        for row in published(PAPER).tables[table].lines()
    ]
    rows += [
        {"program": f"gridgrad: {name}"} | {f"{column}, measured": numbers.get(key) for column, key in columns.items()}
        for name, numbers in usability.items()
    ]
    heads = ["program", *(f"{column}, {whose}" for column in columns for whose in ("published", "measured"))]
    return [dict.fromkeys(heads) | row for row in rows]


def reading(line, runs):
    """A row of pre-processing: seconds and speedups."""
    times = [_of(runs, other.reading(), "seconds") for other in (line, line.single)]
    return {
        **head(line),
        "pre-processing, published": value(line, "pre-processing"),
        "pre-processing, measured": times[0],
        "speedup, published": value(line, "speedup of pre-processing"),
        "speedup, measured": ratio(times[1], times[0]) if line.nodes > 1 else None,
        "how": how(line.reading(), runs),
    }


def training(line, runs):
    """A row of training: seconds, accuracy and efficiency in percent.

    The times are those of the whole run where there is one. An efficiency is that of two whole runs or of two short ones.
    """
    whole, foreseen = line.run(whole=True), predicted(line)
    timed = whole if _of(runs, whole, "seconds") else line.run(whole=False)
    share = None if line.nodes == 1 or foreseen is None else 100 * line.single.seconds / foreseen / line.nodes
    return {
        **head(line),
        "s, published": line.seconds,
        "s, measured": scaled(line, timed, runs),
        "s, predicted": foreseen,
        "accuracy, published": value(line, "accuracy"),
        "accuracy, measured": _of(runs, whole, "accuracy"),
        "efficiency, published": value(line, "efficiency"),
        "efficiency, measured": efficiency(line, runs),
        "efficiency, predicted": share,
        "how": how(timed, runs) + ("" if timed.test or not _of(runs, whole, "accuracy") else ", the accuracy of a whole run"),
    }


def value(line, column):
    """A number that the thesis prints of a line, or None."""
    found = line.cited(column)
    return None if found is None else found.value


def head(line):
    """The columns that identify a line of a table."""
    names = {"ref": line.ref, "device": line.device, "nodes": line.nodes}
    if line.method != "model":
        return names | {"version": f"{line.version} {line.method}", "n": line.n}
    return names | {"net": line.model, "samples": line.samples} | dict(zip(("FLS", "SLS", "TLS"), line.widths))


def scaled(line, run, runs):
    """Measured seconds of all the samples of a line, from one of its runs; None if that was not made."""
    time = _of(runs, run, "seconds")
    return None if time is None else time * line.samples * line.passes / (run.samples * run.passes)


def pair(line, runs):
    """(measured seconds of a line, those of its single node) of two runs of a kind, the whole ones first; None if none are.

    Nor are there any where ranks had to share cores.
    """
    for whole in (True, False):
        times = [scaled(one, one.run(whole), runs) for one in (line, line.single)]
        if None not in times and not _of(runs, line.run(whole), "oversubscribed"):
            return times
    return None


def efficiency(line, runs):
    """The measured efficiency in percent of a line on several nodes, or None."""
    times = pair(line, runs) if line.nodes > 1 else None
    return times and 100 * times[1] / times[0] / line.nodes


def predicted(line):
    """Predicted seconds of a line, from the printed ones of its single node; None where there are none.

    A round of `Train()`, n samples on each node and one average, sends as many bytes as a step on those samples.
    """
    if line.nodes == 1 or not isinstance(line.single.seconds, float):
        return None
    steps = line.samples * line.passes / line.batch_size
    shape = (32, 32, 3 if line.dataset == "cifar10" else 1)
    job = line.net, shape, 10, line.batch_size, line.grid, line.plan
    return steps * predicted_step_seconds(*job, read(MACHINE), single_seconds=line.single.seconds / steps)


def how(run, runs):
    """How a line was measured, in words."""
    if run is None or run.key not in runs:
        return "not measured"
    words = "whole" if run.test or run.read else f"scaled from {run.steps} steps"
    return words + (", oversubscribed" if runs[run.key]["oversubscribed"] else "")


def ratio(a, b):
    return a / b if isinstance(a, int | float) and isinstance(b, int | float) else None


def _of(runs, run, name):
    return runs.get(run.key, {}).get(name) if run else None


def as_markdown(tables):
    """All tables as Markdown."""
    parts = ["# Grabaskas 2018\n"]
    if "machine" in tables:
        parts.append(
            f"Measured on {tables['machine']}. Lines that are not whole are scaled from as many steps of a node as they name. "
            "An efficiency is that of two lines that are both whole or both scaled: it need not follow from the seconds. "
            "Ranks that share cores (oversubscribed) are not compared as speed."
        )
    else:
        parts.append("Nothing measured yet: run `reproduce grabaskas2018`.")
    parts.append(
        "Predicted: this library on the thesis' network (`parallel/prediction/machines/ethernet-1g.json`), with nodes that "
        "compute at the rate of its own single node of the same line. `-`: not there. n: samples of a node between two "
        "synchronisations.\n"
        "\n## What the thesis' numbers and code say\n"
    )
    parts += [f"- {note}" for note in published(PAPER).notes]
    for name, title in TITLES.items():
        rows = tables[name]
        label = f"Table {name}" if name[0] == "4" else name
        parts.append(f"\n## {label}\n\n{title.removesuffix('.')}.\n")
        if name in READING:
            parts.append(f"{READ}\n")
        if name in ("4.13", "4.20"):
            _, why = kept(USABILITY, programs_of)
            missing = f" Not counted: {why}, which the program `usability` writes." if why else ""
            parts.append(f"{USED}{missing}\n")
        parts.append(markdown_lines(rows, _cell))
    return "\n".join(parts) + "\n"


def _cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else value
