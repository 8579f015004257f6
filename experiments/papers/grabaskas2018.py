"""Grabaskas: Automated parallelization to improve usability and efficiency of distributed neural network training (2018).

Tables 4.13 to 4.23 and Appendices C and D of the thesis (TorchAD-NN): published, measured here, predicted for its network.
What is run is in `grabaskas2018_runs.py`, what was published in `published/grabaskas2018.toml`.

- `Train()`, Torch's StochasticGradient: sample by sample on each node's stripe, averaged every n samples
  (`parallel/protocols/local_sgd.py`).
- `Backward()`: one all-reduce of the gradients a batch, n samples of each node: `train_step` on the grid `batch=P`.
- Model-parallel: sample by sample on `model=P` with the plans of `PLANS`. The thesis splits a dense layer by its inputs and
  all-reduces its outputs, so that every node has all of them, and their gradients again in backward; a layer that is not
  split is computed by every node, redundantly. Here a split layer leaves partial sums, which the next split layer takes over
  with a reduce-scatter alone. A layer with `replicate` is split by samples: with batches of one sample one rank computes it
  while the others wait, and the gradient of its weights is summed over the ranks, which the thesis does not need.
"""

import json
from pathlib import Path

from gridgrad.experiments.common import markdown
from gridgrad.experiments.papers import grabaskas2018_runs
from gridgrad.experiments.papers.grabaskas2018_runs import lines, published, single, to_measure
from gridgrad.experiments.papers.parts import LONG, USUAL, run_all
from gridgrad.nn import network_names
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.performance.cost import Cost
from gridgrad.parallel.performance.machine import read

MACHINE = "ethernet-1g"  # of parallel/performance/machines: the network of section 3.1.3
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
PLANNED = (
    "`half` splits the first and the last dense layer, `first` the first one; every node computes the others. Here one rank "
    "has the sample and computes them, and the gradients of their weights go to all: sample by sample the wrong choice."
)
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
    rank computes, in proportion to the cost model's own (`parallel/performance/cost.py`).

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
    return gathered(run_all(to_measure(LONG if full else USUAL, ranks, data_dir)), out, full)


def gathered(results, out, full=False):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    return grabaskas2018_runs.gathered(results, full)


def tables(measured=None):
    """{name: rows} of all tables, "runs" and "machine" of the measurement, where there is one."""
    runs, full = (measured or {}).get("runs", {}), (measured or {}).get("full", False)
    usability = json.loads(USABILITY.read_text())["programs"] if USABILITY.exists() else {}
    found = {
        "4.13": [
            {"program": name, "effort, published": effort, "seconds, published": time}
            for name, effort, time in published()["table_4_13"]
        ],
        "4.20": [{"program": name, "lines, published": count} for name, count in published()["table_4_20"]],
    }
    for table, kinds in (("4.13", {"effort": "effort", "seconds": "time"}), ("4.20", {"lines": "lines"})):
        for name, numbers in usability.items():
            counted = {f"{kind}, measured": numbers.get(key) for kind, key in kinds.items()}
            found[table].append({"program": f"gridgrad: {name}"} | counted)
        heads = ["program", *(f"{kind}, {whose}" for kind in kinds for whose in ("published", "measured"))]
        found[table] = [dict.fromkeys(heads) | row for row in found[table]]
    for name, refs in TABLES.items():
        row = reading if name in READING else training
        found[name] = [row(lines()[ref], runs, full) for ref in refs]
    for line_row, pre in zip(found["Appendix C"], (reading(lines()[ref], runs, full) for ref in TABLES["Appendix C"])):
        line_row.update({key: pre[key] for key in ("pre-processing, published", "pre-processing, measured")})
    return {name: found[name] for name in TITLES} | {key: measured[key] for key in ("machine", "full", "runs") if runs}


def reading(line, runs, full):
    """A row of pre-processing: seconds and speedups."""
    one = single(line)
    times = [_of(runs, other.reading(), "seconds") for other in (line, one)]
    return {
        **head(line),
        "pre-processing, published": line.preprocessing,
        "pre-processing, measured": times[0],
        "speedup, published": ratio(one.preprocessing, line.preprocessing) if line.nodes > 1 else None,
        "speedup, measured": ratio(times[1], times[0]) if line.nodes > 1 else None,
        "how": how(line.reading(), runs),
    }


def training(line, runs, full):
    """A row of training: seconds, accuracy and efficiency in percent."""
    one = single(line)
    ours, alone = (seconds(other, runs, full) for other in (line, one))
    foreseen = predicted(line, one)
    crowded = _of(runs, line.run(full), "oversubscribed")
    share = lambda time, of: None if line.nodes == 1 or not ratio(of, time) else 100 * ratio(of, time) / line.nodes  # noqa: E731
    return {
        **head(line),
        "s, published": line.seconds,
        "s, measured": ours,
        "s, predicted": foreseen,
        "accuracy, published": line.accuracy,
        "accuracy, measured": _of(runs, line.run(full), "accuracy"),
        "efficiency, published": line.efficiency,
        "efficiency, measured": None if crowded else share(ours, alone),
        "efficiency, predicted": share(foreseen, one.seconds),
        "how": how(line.run(full), runs),
    }


def head(line):
    """The columns that identify a line of a table."""
    names = {"ref": line.ref, "device": line.device, "nodes": line.nodes}
    if line.method != "model":
        return names | {"version": f"{line.version} {line.method}", "n": line.n}
    return names | {"net": line.model, "samples": line.samples} | dict(zip(("FLS", "SLS", "TLS"), line.widths))


def seconds(line, runs, full):
    """Measured seconds of all the samples of a line, or None."""
    run = line.run(full)
    time = _of(runs, run, "seconds")
    return None if time is None else time * line.samples * line.passes / (run.samples * run.passes)


def predicted(line, one):
    """Predicted seconds of a line, from the published ones of its single node `one`; None where there are none.

    A round of `Train()`, n samples on each node and one average, sends as many bytes as a step on those samples.
    """
    if line.nodes == 1 or not isinstance(one.seconds, float):
        return None
    steps = line.samples * line.passes / line.batch_size
    shape = (32, 32, 3 if line.dataset == "cifar10" else 1)
    job = line.net, shape, 10, line.batch_size, line.grid, line.plan
    return steps * predicted_step_seconds(*job, read(MACHINE), single_seconds=one.seconds / steps)


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
        scaled = "" if tables["full"] else "; lines that are not whole are scaled from as many steps of a node as they name"
        crowded = "Ranks that share cores (oversubscribed) are not compared as speed."
        parts.append(f"Measured on {tables['machine']}{scaled}. {crowded}")
    else:
        parts.append("Nothing measured yet: run `reproduce grabaskas2018`.")
    parts.append(
        "Predicted: this library on the thesis' network (`parallel/performance/machines/ethernet-1g.json`), with nodes that "
        "compute at the rate of its own single node of the same line. `-`: not there. n: samples of a node between two "
        "synchronisations. Learning rate 0.01, no momentum (the thesis does not say).\n"
        "\n## What the thesis' numbers and code say\n"
    )
    parts += [f"- {note}" for note in published()["notes"]]
    for name, title in TITLES.items():
        rows = tables[name]
        label = f"Table {name}" if name[0] == "4" else name
        parts.append(f"\n## {label}\n\n{title.removesuffix('.')}.\n")
        if name in READING:
            parts.append(f"{READ}\n")
        if name in ("4.13", "4.20"):
            missing = "" if USABILITY.exists() else f" Not counted yet: the program `usability` writes `{USABILITY}`."
            parts.append(f"{USED}{missing}\n")
        parts.append(markdown.lines(rows, _cell))
    return "\n".join(parts) + "\n"


def _cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else value
