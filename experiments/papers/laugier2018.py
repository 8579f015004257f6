"""Laugier, Nisbet, Li, Thompson 2018: the sweeps of Figures 5 to 7, the scatters of section 7, and a step on Cori, predicted.

What the paper prints, and what is claimed, is in `laugier2018.toml`. The paper does not say how deep its networks are, nor how
many processes share a node, and both can reverse the order of its speedups. So there are three `CHOICES` of what it leaves out,
and speedups decide a claim only where all agree that say anything of it, with three hidden layers and with one: see `agreed`.
"""

import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from gridgrad import datasets
from gridgrad.experiments.common import byte_formulas
from gridgrad.experiments.common.parallel_schemes import grid_of, scheme_of
from gridgrad.experiments.common.problems import published as network_of
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.launching.start_ranks import check_ended, mpiexec
from gridgrad.experiments.papers.paper import MissingError, every, groups, kept, paper_of, span
from gridgrad.experiments.papers.parts import SHORT, PaperPart
from gridgrad.experiments.plots import curves, scaling
from gridgrad.experiments.plots.style import DPI, measured_on, save
from gridgrad.experiments.scaling import records, runs, summary
from gridgrad.experiments.scaling import study as studies
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.process_grid import AXES, GridDescription, parse_grid
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.plans.plans import fewest_bytes
from gridgrad.parallel.prediction import machine as machines
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec

HOSTS = "results/laugier2018/hosts.json"
MACHINE, RANKS, BATCH_SIZE, SIZES = "cori-haswell", 32, 100, (32, 64, 128, 512, 1024)
LARGE, INPUTS, OUTPUTS, FLOAT64 = 1024, 16, 2, 8  # a model size; of ethylene; bytes of a number, NumPy's default
COUNTS, SCHEMES = (1, 2, 4, 8, 16, 32), ("batch", "model", "2d")  # numbers of ranks; how they are used

# ----- what is run

DATA_SIZES, ON = "sizes of the data sets", "scatter on "  # names of parts
SHORT_REPEATS = {"airfoil": 2}  # of its runs in a short measurement; those of other data sets have one
RUN_SECONDS, SCATTER_SECONDS = {1: 1.2, 2: 1.6}, 4  # of a run by its ranks, more if they have to share cores; of a scatter


def to_measure(form, ranks, data_dir):
    """Parts: how large the data sets are, each run of the sweeps, and the scatters on each grid."""
    data = ["airfoil", ethylene(data_dir)]
    found = [PaperPart(DATA_SIZES, partial(sizes_of_data, data, data_dir), 1, {"data": data})]
    for name in data:
        settings = studies.read(studies.FILES / "laugier2018.toml") | ({"data_dir": str(data_dir)} if data_dir else {})
        settings |= {"dataset": name, "ranks": list(ranks), "reduction": "plain"}  # as theirs
        if form == SHORT:
            settings["repeats"] = SHORT_REPEATS.get(name, 1)
        study = studies.Study(settings)
        for repeat in range(study.repeats):
            for point in study.points:
                words = f"{name}, {point.settings['net']}, {point.settings['grid']}, repeat {repeat}"
                seconds = RUN_SECONDS.get(point.ranks, 3.5)
                found.append(PaperPart(words, partial(measured_run, study, point, repeat), seconds, settings))
    grids = dict.fromkeys(filter(None, (grid_of(s, p) for p in ranks if p > 1 for s in SCHEMES)))
    return found + [PaperPart(f"{ON}{grid}", partial(scatter, grid), SCATTER_SECONDS, {"grid": grid}) for grid in grids]


def ethylene(data_dir):
    """The name of the ethylene data set: the real one if it is there or can be downloaded, else the synthetic one."""
    try:
        datasets.prepare("ethylene", data_dir)
        return "ethylene"
    except OSError:
        datasets.prepare("ethylene-synthetic", data_dir)
        return "ethylene-synthetic"


def sizes_of_data(names, data_dir):
    """Rows: samples, inputs and outputs of data sets, those to train and those to test together."""
    found = []
    for name in names:
        datasets.prepare(name, data_dir)
        data = datasets.load(name, data_dir)
        samples = len(data.train) + len(data.test)
        found.append({"data": name, "samples": samples, "inputs": data.sample_shape[0], "outputs": data.outputs})
    return found


def measured_run(study, point, repeat):
    """The record of one run of a point of a sweep; UserError if it fails, so that it is not kept."""
    [record] = runs.records_of((point,), repeat, timeout=600)
    if record.get("failed"):
        raise UserError(f"{point}: {record['failed']}")
    return record | records.tags(study, point)


def scatter(grid):
    """Rows: the two scatters timed on a grid."""
    ranks = parse_grid(grid)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "scatter.json"
        arguments = [*as_module("papers.laugier2018_scatter"), "--grid", grid, "--report", str(report)]
        job = mpiexec(ranks["batch"] * ranks["model"], arguments, timeout=300)
        check_ended(job, f"scatter on {grid}")
        rows = json.loads(report.read_text())["rows"]
    in_us = lambda row: {k.replace("seconds", "us"): v * 1e6 if "seconds" in k else v for k, v in row.items()}  # noqa: E731
    return [{"grid": grid, **in_us(row)} for row in rows]


def gathered(results, out):
    """What `tables` takes, of what the parts found; reports and figures go to `out`. ValueError for several machines."""
    reports = [report for report in results.values() if isinstance(report, dict)]
    alone = {(r["dataset"], r["net"]) for r in reports if r["P"] == 1}  # speedups are over these
    reports = [report for report in reports if (report["dataset"], report["net"]) in alone]
    if len(where := {measured_on(report["versions"]) for report in reports}) > 1:
        raise ValueError(f"the data sets were measured on {' and on '.join(sorted(where))}: measure both again")
    found = {"machine": "".join(where), "data": results.get(DATA_SIZES, []), "speedups": [], "counted": []}
    for name in dict.fromkeys(report["dataset"] for report in reports):
        mine = [report for report in reports if report["dataset"] == name]
        write_text(out / f"{name}.jsonl", records.lines(mine))
        save(scaling.draw(curves.read([out / f"{name}.jsonl"]), "speedup")[0], out / f"{name}.png", DPI)
        found["speedups"] += speedups(name, mine)
        found["counted"] += map(counted, (r for r in mine if r["P"] > 1 and not r["repeat"]))
    return found | {"scatter": [row for name, rows in results.items() if name.startswith(ON) for row in rows]}


def speedups(data, reports):
    """Rows: the speedup of each network and grid over one rank, with its range, and what the slowest rank does in a step."""
    points = {(row.net, row.grid): row for row in summary.rows(reports) if row.seconds}.values()
    alone = {row.net: row.seconds.value for row in points if row.ranks == 1}
    return [
        {"data": data, "net": row.net, "grid": row.grid, "oversubscribed": row.oversubscribed,
         "speedup": alone[row.net] / row.seconds.value, "min": alone[row.net] / row.seconds.high,
         "max": alone[row.net] / row.seconds.low, "compute ms": 1e3 * row.parts.get("compute", 0.0),
         "messages ms": 1e3 * row.parts.get("communicate", 0.0)} for row in points
    ]  # fmt: skip


def counted(report):
    """The bytes of a step that all ranks send, as they were counted in a run."""
    sent = {layer: sum(sizes) for layer, sizes in grouped(report["communication"], "layer", "bytes").items() if layer != "loss"}
    gradients, row = sent.pop("gradients", 0), {"data": report["dataset"], "net": report["net"], "grid": report["grid"]}
    return row | {"gradients_counted": gradients, "model_counted": sum(sent.values())}


def tables(measured=None):
    """The predicted curves, and rows that were measured, with what their networks and grids are made of."""
    known, names = measured or {}, ("data", "speedups", "counted", "scatter")
    rows = {name: [with_shape(row) for row in known.get(name, [])] for name in names}
    return {"machine": known.get("machine", ""), "curves": predicted_points()} | rows


def with_shape(row):
    """A row with the sizes that its grid and its network have, such as "mlp:32,32,32,relu"."""
    if "net" not in row:
        return row
    net = row["net"].removeprefix("mlp:").split(",")
    found = {"set": row["data"].removesuffix("-synthetic"), "size": int(net[0]), "hidden": len(net) - 1}
    found |= {"MB": (row["gradients_counted"] + row["model_counted"]) / 1e6} if "model_counted" in row else {}
    return row | found | {"scheme": scheme_of(parse_grid(row["grid"]))} | dict(zip(("batch", "model"), axes_of(row["grid"])))


def axes_of(grid):
    """(ranks along the batch, ranks along the model) of a grid as text."""
    return tuple(parse_grid(grid).get(axis, 1) for axis in ("batch", "model"))


def grids():
    """Rows: the grids of the paper's numbers of ranks."""
    found = [(ranks, scheme, grid) for ranks in COUNTS[1:] for scheme in SCHEMES if (grid := grid_of(scheme, ranks))]
    return [dict(zip(("ranks", "scheme", "grid", "batch", "model"), (*row, *axes_of(row[-1])))) for row in found]


def sent(size, hidden, batch, model, activations=byte_formulas.laugier_activations):
    """Bytes of float32 that a rank sends in a step, on average. activations: those of Algorithms 1 to 3, or `fewest`."""
    widths = widths_of(size, hidden)
    return (byte_formulas.gradients(widths, batch, model) + activations(BATCH_SIZE, widths, batch, model)) / (batch * model)


def fewest(batch_size, widths, batch, model):
    """Bytes of the activations that all ranks send with our plan that sends the fewest."""
    return byte_formulas.activations(batch_size, widths, fewest_bytes(list(pairwise(widths)), model), batch, model)


def widths_of(size, hidden):
    """The numbers of features d_0 to d_L."""
    return [INPUTS, *[size] * hidden, OUTPUTS]


# ----- a step on Cori, predicted


@dataclass(frozen=True)
class Assumed:
    """What the paper leaves out, with what the cost model takes.

    hidden: layers. node: ranks on a node. number: seconds for which a number in a message is packed, or unpacked. layer:
    seconds that the interpreter takes for a layer, forward or backward. as_code: rank 0 hands the minibatches out, messages are
    packed also where an axis has one rank, and Algorithms 2 and 3 sum what nobody needs, and sum layer by layer, as printed.
    """

    hidden: int = 3
    node: int = RANKS
    number: float = 0.0
    layer: float = 0.0
    as_code: bool = False


CHOICES = {
    "all ranks on one node": Assumed(),
    "one rank a node": Assumed(node=1),
    # What its code, which sends Python lists, and its logs show: both times are fitted to the logs on 1 and 4 processes.
    "with the settings of the paper's code": Assumed(1, 1, number=55e-9, layer=2.5e-4, as_code=True),
}
KINDS = BATCH, MODEL, BOTH, OVER_BATCH = "batch", "model", "2-D", "2-D over batch"  # of curves


@cache
def machine_of(node):
    """Cori with so many ranks on a node."""
    found = machines.read(MACHINE)
    return replace(found, node=found.node | {"ranks": node})


@cache
def cost_of(size, hidden, node, batch, model):
    """The Cost of a step of the rank with the most work, in float64."""
    net = network_of(f"mlp:{','.join([str(size)] * hidden)},relu", [INPUTS], OUTPUTS, "float64")
    return cost_of_slowest_rank(net, PlacementSpec({"batch": batch, "model": model}, "laugier"), BATCH_SIZE, machine_of(node))


@cache
def step(size, batch, model, choice):
    """(seconds of computing, of messages with what packs them and hands the minibatch out). choice: a name of CHOICES."""
    assumed = CHOICES[choice]
    parts = cost_of(size, assumed.hidden, assumed.node, batch, model).parts
    computing = parts["compute"] + parts["update"] + 2 * (assumed.hidden + 1) * assumed.layer
    sizes, machine = {"batch": batch, "model": model}, machine_of(assumed.node)
    packed = sum(given + got for _, axis, given, got in messages(size, assumed.hidden, batch, model, assumed.as_code)
                 if sizes[axis] > 1 or assumed.as_code)  # fmt: skip
    seconds = sending(size, batch, model, assumed, machine) + packed * assumed.number
    if assumed.as_code:  # from rank 0, to each rank its own copy of its block
        grid, block = GridDescription(sizes, ranks_per_node=assumed.node), -(-BATCH_SIZE // batch) * (INPUTS + OUTPUTS)
        seconds += machine.collective_seconds("scatter", grid.group(*AXES), grid.size, block * (grid.size - 1) * FLOAT64)
        seconds += block * (grid.size + 1) * assumed.number
    return computing, seconds


def messages(size, hidden, batch, model, as_printed):
    """[(collective, axis, numbers that a rank gives, numbers that it gets)] of a step of Algorithms 1 to 3; `as_printed` with
    the sum of the gradient of the inputs, which nobody needs, and Algorithm 3 layer by layer."""
    widths, samples = widths_of(size, hidden), -(-BATCH_SIZE // batch)
    own = [-(-width // model) for width in widths]
    found = [("all-gather", "model", samples * part, samples * width) for part, width in list(zip(own, widths))[1:]]
    found += [("all-reduce", "model", samples * width, samples * width) for width in widths[0 if as_printed else 1 : -1]]
    gradients = [(before + 1) * part for before, part in zip(widths, own[1:])]
    if not (as_printed and model > 1):
        gradients = [sum(gradients)]
    return found + [("all-reduce", "batch", count, count) for count in gradients]


def sending(size, batch, model, assumed, machine):
    """Seconds of the collectives, without what packs them."""
    grid, total = GridDescription({"batch": batch, "model": model}, ranks_per_node=assumed.node), 0.0
    for kind, axis, given, _ in messages(size, assumed.hidden, batch, model, assumed.as_code):
        group = grid.group(axis)
        count = given * (group.size - 1) if kind == "all-gather" else all_reduce_elements(given, group.size, 0)
        total += machine.collective_seconds(kind, group, grid.size, count * FLOAT64)
    return total


def gain(size, batch, model, choice, over=(1, 1)):
    """The speedup of a grid over one rank, or over another grid."""
    return sum(step(size, *over, choice)) / sum(step(size, batch, model, choice))


@cache
def curve(kind, size, choice):
    """{number of ranks: speedup over one rank, or over batch}, up to 32. Of 2-D the fastest grid on so many ranks counts."""
    found = {}
    for ranks in COUNTS:
        both = [(ranks // model, model) for model in COUNTS if 1 < model < ranks]
        gains = [gain(size, *grid, choice, (ranks, 1) if kind == OVER_BATCH else (1, 1))
                 for grid in {BATCH: [(ranks, 1)], MODEL: [(1, ranks)]}.get(kind, both)]  # fmt: skip
        found |= {ranks: max(gains)} if gains else {}
    return found


def predicted_points():
    """Rows: each point of each curve."""
    return [
        {"curve": f"{kind}, {choice}", "network": f"size {size}", "ranks": ranks, "times": times}
        for kind in KINDS for choice in CHOICES for size in SIZES for ranks, times in curve(kind, size, choice).items()
    ]  # fmt: skip


def longer(batch, model, choice, times):
    """(times as long as the messages of size 1,024 take with `times` the latency, with 1/times of the bandwidth)."""
    assumed, machine = CHOICES[choice], machine_of(CHOICES[choice].node)
    link, seconds = machine.links["network"], lambda machine: sending(LARGE, batch, model, assumed, machine)
    changed = (machine.links | {"network": link | {name: link[name] * times}} for name in ("alpha", "beta"))
    return tuple(seconds(replace(machine, links=links)) / seconds(machine) for links in changed)


def part_of_products(hidden):
    """The time of the products of 1/32 of a minibatch on a rank of 32 nodes, as a part of that of a whole one on one rank."""
    costs = [cost_of(LARGE, hidden, 1, ranks, 1) for ranks in (1, RANKS)]
    one, many = (sum(cost.seconds_of(work) for work in cost.works if work.name.startswith("linear.")) for cost in costs)
    return many / one


# ----- speedups over one rank, which decide claims


def cases_of(tables):
    """Rows: speedups (median, least, most) of runs on one machine with a core for each rank, of hosts, of the logs of its code.
    source, place: where it is from. own: whether each rank had a core of its own: if not, only grids on as many ranks
    compare."""
    found = []

    def add(size, batch, model, speedup, *more):
        case = dict(zip(("hidden", "source", "place", "kind", "own"), more))
        scheme = scheme_of({"batch": batch, "model": model})
        found.append(case | {"size": size, "scheme": scheme, "ranks": batch * model, "speedup": tuple(speedup)})

    for row in tables.get("speedups", []):
        if not row["oversubscribed"]:
            speedup, source = (row["speedup"], row["min"], row["max"]), f"{row['data']}, {row['hidden']} hidden"
            add(row["size"], row["batch"], row["model"], speedup, row["hidden"], source, "on one machine", "measured", True)
    with suppress(MissingError):
        place, own = f"on hosts ({HOSTS}, {kept(HOSTS, 'versions', 'processor')})", kept(HOSTS, "cores") >= kept(HOSTS, "ranks")
        for row in kept(HOSTS, "rows"):
            hidden, speedup = row["hidden layers"], (row["speedup"][one] for one in ("median", "min", "max"))
            source = f"hosts ({HOSTS}), {hidden} hidden"
            add(row["model size"], *axes_of(row["grid"]), speedup, hidden, source, place, "kept", own)
    for data, table in (("ethylene", "seconds"), ("airfoil", "epochs")):
        rows, place = paper_of("laugier2018").known.tables[table].rows, "in the logs of its code"
        seconds = {row[:3]: (median(row[3:]), min(row[3:]), max(row[3:])) for row in rows}
        for (size, *axes), mine in seconds.items():
            add(size, *axes, ratio(seconds[size, 1, 1], mine), 1, f"{data} {place}, 1 hidden", place, "derived", True)
    return found


def ratio(one, other):
    """One (median, least, most) over another, with the widest range that both allow."""
    return one[0] / other[0], one[1] / other[2], one[2] / other[1]


def labelled(case, speedup, label):
    """A case with what expressions and `agreed` take: its range, and its speedup in words."""
    words = f"{speedup[0]:.3g}" + (f" ({speedup[1]:.3g} to {speedup[2]:.3g})" if speedup[1] < speedup[2] else "")
    return case | {"speedup": speedup, "median": speedup[0], "range": speedup[1:], "words": f"{words} {label}"}


def gains(known, scheme, size, own=True):
    """Cases of a size, by ranks: of the fastest grid of a scheme. own: only those whose ranks had a core of their own."""
    mine = [case for case in known if (case["scheme"], case["size"]) == (scheme, size) and (case["own"] or not own)]
    best = {(case["source"], case["ranks"]): case for case in sorted(mine, key=lambda case: case["speedup"])}
    found = (labelled(case, case["speedup"], f"on {case['ranks']} ranks") for case in mine if case in best.values())
    return sorted(found, key=lambda case: case["ranks"])


def peaks(cases):
    """The case with the greatest speedup of each source."""
    best = {case["source"]: case for case in sorted(cases, key=lambda case: case["speedup"])}
    return [case for case in cases if case is best[case["source"]]]


def grouped(cases, key, column):
    """{value of the column `key`: values of another column}."""
    return {value: [case[column] for case in some] for (value,), some in groups(cases, key).items()}


def over(cases, others):
    """Cases over those of the same source on as many ranks."""
    return [
        labelled(one, ratio(one["speedup"], other["speedup"]), f"on {one['ranks']} ranks")
        for one in cases for other in others if (one["source"], one["ranks"]) == (other["source"], other["ranks"])
    ]  # fmt: skip


def rises(cases, label, from_one=False):
    """Each case over the one before it of the same source. label: a format of both. from_one: the first over one rank."""
    found, last = [], {}
    for case in cases:
        if before := last.get(case["source"], {"ranks": 1, "speedup": (1.0, 1.0, 1.0)} if from_one else None):
            found.append(labelled(case, ratio(case["speedup"], before["speedup"]), label.format(case, before)))
        last[case["source"]] = case
    return found


def agreed(cases, answers):
    """What cases say together, a dict: holds; why, where nothing is decided; numbers; short, those that decide; kind. answers:
    what each says. A source says what all its cases do. They decide nothing where they disagree, nor where none with three
    hidden layers, or none with one, is clear, nor where all are of logs."""
    ours = {case["source"]: case["kind"] for case in cases if case["kind"] != "derived"}
    if not ours:
        why = "nothing was measured: `gridgrad reproduce laugier2018` does it; "
        return {"holds": None, "why": why, "short": "", "numbers": "", "kind": "predicted"}
    answered = [case | {"says": answer} for case, answer in zip(cases, answers)]
    said = {source: every(of) for source, of in grouped(answered, "source", "says").items()}
    clear = [source for source in said if said[source] is not None]
    lacking = {1, 3} - {case["hidden"] for case in cases if case["source"] in clear}
    why = f"no case is clear with {min(lacking)} hidden, and the paper leaves out the depth; " if lacking else ""
    if len({said[source] for source in clear}) != 1:
        why = "the cases disagree, and the paper leaves out the depth; " if clear else "no case is clear; "
    shown = [case for case in cases if case["source"] in (clear if ours.keys() & clear else ours)]
    return {
        "holds": None if why else said[clear[0]], "why": why,
        "numbers": "; ".join(f"{source}: {', '.join(words)}" for source, words in grouped(cases, "source", "words").items()),
        "short": ", ".join(f"{span(values)} {place}" for place, values in grouped(shown, "place", "median").items()),
        "kind": "measured" if "measured" in ours.values() else "kept",
    }  # fmt: skip


def fastest():
    """For each depth and size the grid on hosts that is the fastest by the medians, and the one that is predicted to be."""
    divided = [row for row in kept(HOSTS, "rows") if row["grid"] != "batch=1,model=1"]
    by = {"median": lambda row: row["speedup"]["median"], "predicted": lambda row: row["predicted speedup"]}
    return [{"hidden": hidden, "size": size, **{name: max(rows, key=value)["grid"] for name, value in by.items()}}
            for (hidden, size), rows in groups(divided, "hidden layers", "model size").items()]  # fmt: skip


def names(tables):
    """What expressions of the TOML file may use, beside what all papers' have."""
    return {
        "choices": list(CHOICES), "kinds": KINDS, "sizes": SIZES, "near_is": 1.25, "grids": grids(), "messages": messages,
        "hosts": HOSTS, "search": "results/laugier2018/search.json", "memory": machine_of(RANKS).node["bandwidth"],
        "vgg16": lambda: sum(p.size for layer in network_of("vgg16").leaves() for p in layer.parameters),
        "gains": partial(gains, cases_of(tables)), "peaks": peaks, "over": over, "rises": rises, "agreed": agreed,
        "grouped": lambda *of: list(grouped(*of).items()), "fastest": fastest, "gain": gain, "curve": curve,
        "best": lambda *of: max(value for ranks, value in curve(*of).items() if ranks > 1),
        "step": step, "longer": longer, "part_of_products": part_of_products, "sent": sent, "fewest": fewest,
        "widths": widths_of, "weights": lambda *of: sum(a * b for a, b in pairwise(widths_of(*of))),
    }  # fmt: skip
