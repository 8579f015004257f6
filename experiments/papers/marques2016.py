"""Marques: Distributed learning of convolutional neural networks on heterogeneous processing units (2016), chapters 4 and 5.

Tables: where the time of a training step goes (Figures 5.1 to 5.10), the speedups of Tables 5.1 to 5.3, the scalability of
section 5.4 (Figures 5.11 to 5.15), and how long an epoch of the autoencoder of Appendix A takes. The master/slave algorithm is
the plan "marques" (`parallel/plans/marques.py`); beside it stands the form without a master, the plan "out" on the same
ranks. What runs is in `marques2016_runs.py`. On ranks that were not measured, a part of the step is predicted: the part that
was measured on two, in the proportion that the cost model has for it. Where CuPy finds GPUs, they are measured too, a rank on
each.

The thesis is about unequal laptops at 5 MB/s. What equal cores that share a memory do decides only what is said of any ranks;
the rest takes what is kept of two unequal ranks on emulated hosts, which `gridgrad sweep laptops.toml` measures again.
"""

import re
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from statistics import median

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.launching.start_ranks import slots
from gridgrad.experiments.papers import marques2016_runs as jobs
from gridgrad.experiments.papers import marques2016_scaling as scaling
from gridgrad.experiments.papers.expressions import MissingError
from gridgrad.experiments.papers.marques2016_runs import BATCH_SIZES, NETWORKS, PARTS, PLANS, WITH_MASTER, MarquesRun, parts
from gridgrad.experiments.papers.marques2016_scaling import KNOWN, SUMMED
from gridgrad.experiments.papers.paper import above, every, groups, kept, span
from gridgrad.experiments.papers.parts import LONG, SHORT, PaperPart, run_job
from gridgrad.experiments.plots.style import measured_on
from gridgrad.nn import device
from gridgrad.nn.files.documents import UNFIT, contents_of_lines
from gridgrad.nn.layers.conv import Conv2d
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read

MACHINE = "marques-5MBps"  # of parallel/prediction/machines: the paper's laptops and network
RANKS = 2, 3, 4
SHORT_SIZES = (64,)  # batches in a short measurement
REPEATED = 3  # rounds, without which a batch size does not count among those whose speedups are compared
WIDTHS = 500, *sorted(row["width"] for row in KNOWN.lines("III"))  # of the first hidden layer of the autoencoders
STEPS, SHORT_STEPS = 50, 10  # that are timed of each phase of an epoch
EPOCHS = Path("results/marques2016/epochs.jsonl")
TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(\d+)s")
NOTHING = "no such steps were measured: `gridgrad reproduce marques2016` does it"
NO_GPU = "`gridgrad reproduce marques2016` does it where there are as many"
UNEQUAL = "results/marques2016/unequal.json"
OF_STEPS = {"speedup": ("speedups of CPUs", "speedup"), "communication, %": ("communication of CPUs", "percent")}  # printed
SETTINGS = {  # of two unequal ranks: {name: (in words, the run of the first CPU alone, the form)}
    "memory": ("in memory", "alone", WITH_MASTER),
    "slow": ("at 5 MB/s", "alone", WITH_MASTER),
    "samples": ("at 5 MB/s, data parallel", "alone", jobs.BY_SAMPLES),
    "proportion": ("in the thesis' proportion", "alone, slower", WITH_MASTER),
}


def to_measure(size, ranks, data_dir):
    """The experiments as Parts, which take turns. A short one has SHORT_SIZES alone, one round of it."""
    ranks = [p for p in ranks if p <= slots()]
    rounds, sizes, seconds = jobs.MANY_ROUNDS if size == LONG else jobs.ROUNDS, BATCH_SIZES, 3.0
    if size == SHORT:
        rounds, sizes, seconds = 1, SHORT_SIZES, 1.0
    found = epochs(SHORT_STEPS if size == SHORT else STEPS)
    for run, number in jobs.all_runs(ranks, rounds, sizes, len(device.gpus())):
        settings, start = {"run": run.key, "seconds": seconds}, partial(printed, run, number, seconds)
        found.append(PaperPart(f"{run.key}, round {number}", start, run.about(seconds), settings))
    return found


def printed(run, number, seconds):
    """What a run prints in a round, with the name of the run and the number of the round."""
    return {"key": run.key, "round": number} | run.start(seconds)


def gathered(results, out):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    of_runs = groups([result for result in results.values() if "key" in result], "key")
    runs = {key: [{name: value for name, value in one.items() if name != "key"} for one in some]
            for (key,), some in of_runs.items()}  # fmt: skip
    found = {"runs": runs, "machine": jobs.machine_of(runs)} if runs else {}
    return found | {"epochs": [epoch_row(result) for result in results.values() if "width" in result]}


def seconds_of(text):
    """The seconds of a time such as "1h51m24s"."""
    hours, minutes, seconds = (int(part or 0) for part in TIME.fullmatch(text).groups())
    return 3600 * hours + 60 * minutes + seconds


def epochs(steps):
    """Parts that time an epoch of the autoencoders of Appendix A. steps: that are timed of each phase."""
    return [
        PaperPart(f"an epoch of 784-{width}-250-10", partial(epoch, width, steps), 3 + 2 * steps * width / 25_000,
             {"width": width, "steps": steps})
        for width in WIDTHS
    ]  # fmt: skip


def epoch(width, steps):
    """What the job prints that times an epoch. width: of the first hidden layer."""
    return run_job("marques2016_epochs", 1, jobs.TIMEOUT, f"an epoch of 784-{width}-250-10", width=width, steps=steps)


def epoch_row(result):
    """A row of the table of epochs. result: of `epoch`."""
    phases = {f"{phase}, s": seconds for phase, seconds in result["seconds"].items()}
    about = {"network": f"784-{result['width']}-250-10", "width": result["width"], "steps": result["steps"]}
    return about | phases | {"epoch, s": sum(phases.values()), "machine": measured_on(result["versions"])}


# ----- tables


def tables(measured=None):
    """{name: rows} of all tables; "runs", "machine" and "epochs" of the measurement, where there is one."""
    measured = measured or {}
    rows = split(measured.get("runs", {}))
    found = {
        "split": rows, "5.1": table_5_1(rows), "on GPUs": gpu_rows(measured.get("runs", {})), "rates": scaling.rate_rows(),
        "scaling": [row for equation in scaling.EQUATIONS for row in scaling.rows(scaling.derived(equation))],
    }  # fmt: skip
    return found | {key: measured[key] for key in ("machine", "runs", "epochs") if key in measured}


def split(runs):
    """A row for each network, batch size, form and number of ranks: measured, or predicted where others were."""
    found, sizes = [], sorted({results[0]["batch_size"] for results in runs.values()})
    for network, batch_size in product(NETWORKS, sizes):
        case, alone = (network, batch_size), runs.get(MarquesRun(network, batch_size).key)
        if not alone:
            continue
        rounds = {one["round"] for one in alone}  # speedups are over a run of the same round
        measured = {
            (ranks, form): [one for one in runs.get(MarquesRun(*case, ranks, form).key, ()) if one["round"] in rounds]
            for ranks in RANKS for form in PLANS
        }  # fmt: skip
        found.append(measured_row(*case, 1, "one rank", alone, alone))
        for (ranks, form), results in measured.items():
            if results:
                found.append(measured_row(*case, ranks, form, results, alone))
            elif measured[2, form]:
                found.append(predicted_row(*case, ranks, form, alone, measured[2, form]))
    return found


def measured_row(network, batch_size, ranks, form, results, alone):
    """A row of `split` from what the runs printed. alone: those on one rank."""
    by_rounds = jobs.ratios(results, alone)
    return row_of(
        network, batch_size, ranks, form, "measured", parts(results), [median(by_rounds), min(by_rounds), max(by_rounds)],
        len(results), results[0]["bytes"] / scaling.MIB, max(result["peak_memory"] for result in results) / 2**30,
    )  # fmt: skip


def predicted_row(network, batch_size, ranks, form, alone, two):
    """A row of `split` for ranks that were not measured. two: what the runs on two ranks printed."""
    measured, of_two, of_ranks = parts(two), *(model(network, batch_size, p, form) for p in (2, ranks))
    seconds = {name: measured[name][0] * of_ranks[name] / of_two[name] for name in PARTS}
    seconds["step"] = sum(seconds.values())
    speedup = parts(alone)["step"][0] / seconds["step"]
    no_range = {name: [value, None, None] for name, value in seconds.items()}
    return row_of(network, batch_size, ranks, form, "predicted", no_range, [speedup, None, None])


def row_of(network, batch_size, ranks, form, how, seconds, speedup, rounds=None, sent=None, memory=None):
    """A row of `split`. how: "measured" or "predicted". seconds: {part or "step": [median, least, most]}. speedup: [median,
    least, most]. sent: MiB. memory: GiB. None: not measured."""
    return {
        "network": network, "batch": batch_size, "ranks": ranks, "form": form, "how": how, "rounds": rounds,
        **{f"{name}, s": seconds[name][0] for name in PARTS},
        **dict(zip(("step, s", "step, least", "step, most"), seconds["step"])),
        **dict(zip(("speedup", "speedup, least", "speedup, most"), speedup)), "MiB": sent,
        "equation 5.1, MiB": equation(network, batch_size, ranks) if form == WITH_MASTER else None, "memory, GiB": memory,
    }  # fmt: skip


def equation(network, batch_size, ranks):
    """MiB that a master and its slaves send in a training step in float32, with even shares."""
    return scaling.marques_step(batch_size, scaling.convolutions(network, (1,) * ranks)) / scaling.MIB


@lru_cache(maxsize=1024)
def model(network, batch_size, ranks, form):
    """{part: seconds} of a step by the cost model for the paper's machines, on the rank with the most work."""
    net = published(MarquesRun(network, batch_size).net)
    cost = Cost(net, GridDescription({"model": ranks}, ranks_per_node=1), PLANS[form], batch_size, read(MACHINE))
    found = dict.fromkeys(PARTS, 0.0)
    for work in cost.works:
        part = "communication" if work.group else "convolution" if work.name.startswith("conv") else "computation"
        found[part] += cost.seconds_of(work)
    return found


def table_5_1(rows):
    """Rows: published, measured and predicted best speedups over all BATCH_SIZES. rows: of `split`."""
    found = []
    for line in KNOWN.lines("5.1"):
        network, ranks = line["network"], line["CPUs"]
        row = {"network": network, "CPUs": ranks, "published": line["speedup"]}
        for form in PLANS:
            mine = [r for r in rows if (r["network"], r["ranks"], r["form"]) == (network, ranks, form)]
            whole = {r["batch"] for r in mine} >= set(BATCH_SIZES)
            best = max(mine, key=lambda r: r["speedup"]) if whole else None
            for how in ("measured", "predicted"):
                row[f"{form}, {how}"] = best["speedup"] if best and best["how"] == how else None
            row[f"{form}, best at"] = best and at(best)
        found.append(row)
    return found


def gpu_rows(runs):
    """A row for each network, batch size and number of GPUs: how fast over one GPU, and over as many CPU cores."""
    found, of = [], lambda *words: runs.get(MarquesRun(*words).key, ())
    for network, batch, ranks in product(NETWORKS, BATCH_SIZES, jobs.GPUS):
        which = network, batch, ranks, WITH_MASTER if ranks > 1 else ""
        results = of(*which, "gpu")
        row = {"network": network, "batch": batch, "GPUs": ranks, "how": "measured"}
        for name, others in {"speedup": of(network, batch, 1, "", "gpu"), "over CPUs": of(*which)}.items():
            by_rounds = jobs.ratios(results, others) or [None]
            middle = by_rounds[0] and median(by_rounds)
            row |= dict(zip((name, f"{name}, least", f"{name}, most"), (middle, min(by_rounds), max(by_rounds))))
        if row["speedup"]:
            seconds = {name: value for name, (value, *_) in parts(results).items()}
            row |= {f"{name}, s": value for name, value in seconds.items()} | {"rounds": len(results)}
            row |= {"communication, %": 100 * seconds["communication"] / seconds["step"]}
            found.append(row | {"GPU": results[0]["versions"]["device"]})
    return found


def at(row):
    """At which batch size a row of `split` was measured, and in how many rounds."""
    return f"batch {row['batch']}" + (f", {rounds_of([row])}" if row["how"] == "measured" else "")


def rounds_of(rows):
    """In how many rounds these rows were measured, in words."""
    found = [row["rounds"] for row in rows if row["how"] == "measured"]
    return f"{span(found, '')} round{'s' * (max(found) > 1)}"


# ----- what expressions of marques2016.toml name


def names(tables):
    """Functions and numbers for the expressions."""
    rows, runs = tables.get("split", ()), tables.get("runs", {})
    few = {(row["network"], row["batch"]) for row in rows if row["how"] == "measured" and row["rounds"] < REPEATED}
    by_case = {(row["network"], row["batch"], row["ranks"]): row for row in rows if row["form"] in (WITH_MASTER, "one rank")}
    gpus = tables.get("on GPUs", ())
    by_gpus = {(f"{row['network']}, batch {row['batch']}", row["GPUs"]): row for row in gpus}

    def two_equal(network=None):
        """Rows of two equal cores with a master, of the batch sizes of several rounds where a network is named."""
        found = [row for row in rows if (row["ranks"], row["form"]) == (2, WITH_MASTER)]
        if network:
            found = [row for row in found if row["network"] == network and (network, row["batch"]) not in few]
        if len(found) < (2 if network else 1):
            several = "it takes several batch sizes of 3 rounds each: `gridgrad reproduce marques2016` measures them"
            raise MissingError(several if network else NOTHING)
        return found

    def best():
        """{network: rows of the best speedups on 2, 3 and 4 equal cores, of batch sizes with several rounds}."""
        found = {}
        for row in sorted(rows, key=lambda row: row["speedup"]):
            if row["form"] == WITH_MASTER and (row["network"], row["batch"]) not in few:
                found[row["network"], row["ranks"]] = row
        whole = all((network, ranks) in found for network in NETWORKS for ranks in RANKS)
        return {network: [found[network, ranks] for ranks in RANKS] for network in NETWORKS} if whole else {}

    def part_range(part, network, batch, ranks=1):
        """The range by rounds of the share of a step that a part takes."""
        key = MarquesRun(network, batch, ranks, WITH_MASTER if ranks > 1 else "").key
        if key not in runs:
            raise MissingError(NOTHING)
        shares = [one[part][0] / one["step"][0] for one in (parts([result]) for result in runs[key])]
        return min(shares), max(shares)

    def on_gpus(case, count):
        """The row of a network and batch size, such as "50:500, batch 64"; MissingError where it was not measured."""
        if (case, count) not in by_gpus:
            raise MissingError(f"{case}, was not measured on {counted(count, 'GPU')}: {NO_GPU}")
        return by_gpus[case, count]

    def best_on_gpus(network, count):
        """The row of the best speedup of so many GPUs; None unless all batch sizes were measured."""
        found = [row for row in gpus if (row["network"], row["GPUs"]) == (network, count)]
        return max(found, key=lambda row: row["speedup"]) if len(found) == len(BATCH_SIZES) else None

    return {
        "on_gpus": on_gpus, "best_on_gpus": best_on_gpus, "no_gpu": "" if gpus else "No GPU was at hand.",
        "networks": NETWORKS, "batch_sizes": BATCH_SIZES, "two_equal": two_equal, "best": best, "part_range": part_range,
        "parts": PARTS, "case": by_case.get, "rounds_of": rounds_of, "at": at,
        "speedup_range": lambda row: (row["speedup, least"], row["speedup, most"]), "rising": rising,
        "laptops": laptops, "all_laptops": all_laptops, "laptops_on": laptops_on, "steps": lambda batch: steps(rows, batch),
        "speedup_on": lambda equation, cluster, nodes: scaling.derived(equation)[cluster].speedup(nodes),
        "sent": lambda nodes, equation: scaling.sent(*scaling.LARGEST, scaling.derived(SUMMED)["CPUs, largest network"]
                                                     .speeds_of(nodes), equation),
        "rate": lambda equation, figure, rate, nodes: scaling.of_rates(equation)[figure][0][rate].speedup(nodes),
        "equations": scaling.EQUATIONS,
        "plain": scaling.PRINTED, "summed": SUMMED, "cpus": scaling.CPUS,
        "gpus": scaling.GPUS, "seconds": seconds_of,
        "share_of_convolutions": share_of_convolutions, "epoch_of": lambda width: epoch_of(tables, width),
        "epochs_on": lambda: epochs_on(tables), "gpu_over_cpu": scaling.gpu_over_cpu, "phones": phones,
        "roofline": roofline, "by_shares": by_shares,
    }  # fmt: skip


def rising(ranges, by=1.0):
    """Whether numbers rise, by their ranges (least, most): True, False, or None where neighbours overlap."""
    return every(above(b, a, by) for a, b in zip(ranges, ranges[1:]))


def steps(rows, batch):
    """Rows of Figures 5.1 to 5.5: speedups of one batch size, and the share of communication; else what is printed."""
    found = []
    for row in rows:
        if row["batch"] != batch or row["ranks"] == 1:
            continue
        remark, with_master = rounds_of([row]) if row["how"] == "measured" else "", row["form"] == WITH_MASTER
        ours = {"speedup": row["speedup"], "communication, %": 100 * row["communication, s"] / row["step, s"]}
        for words, value in ours.items():
            if with_master or words == "speedup":
                cited = KNOWN.cited(*OF_STEPS[words], row["network"], batch, row["ranks"]) if with_master else None
                found.append({"label": f"{row['network']}, {row['ranks']} CPUs, {row['form']}: {words}", row["how"]: value,
                              "printed": cited, "remark": remark})  # fmt: skip
    return found or [
        {"label": f"{line['network']}, {line['CPUs']} CPUs, {WITH_MASTER}: {words}",
         "printed": KNOWN.cited(table, column, line["network"], batch, line["CPUs"])}
        for words, (table, column) in OF_STEPS.items() for line in KNOWN.lines(table) if line["batch"] == batch
    ]  # fmt: skip


# ----- two unequal ranks, by what is kept


def all_laptops():
    """A row for each network and setting: rounds, seconds, speedup over the first CPU alone, share of communication."""
    by_case, found = groups(kept(UNEQUAL, "runs"), "network", "setting"), []
    for (network, name), several in by_case.items():
        if name not in SETTINGS:
            continue
        words, alone, form = SETTINGS[name]
        by_rounds, seconds = jobs.ratios(several, by_case.get((network, alone), [])), parts(several)
        if by_rounds:
            shares = [100 * one["communication"][0] / one["step"][0] for one in (parts([run]) for run in several)]
            found.append({
                "network": network, "setting": words, "form": form, "rounds": len(by_rounds),
                "alone": parts(by_case[network, alone])["step"][0], "step": seconds["step"][0],
                "convolution": seconds["convolution"][0], "speedup": median(by_rounds), "least": min(by_rounds),
                "most": max(by_rounds), "communication": 100 * seconds["communication"][0] / seconds["step"][0],
                "communication_least": min(shares), "communication_most": max(shares),
            })  # fmt: skip
    return found


def laptops(setting, is_whole=True):
    """The rows of a setting in the order of the networks. MissingError without any, or where `is_whole` and one is missing."""
    found = {row["network"]: row for row in all_laptops() if row["setting"] == SETTINGS[setting][0]}
    if not found or is_whole and len(found) < len(NETWORKS):
        raise MissingError("no unequal CPUs at 5 MB/s were measured")
    return [found[network] for network in NETWORKS if network in found]


def laptops_on(is_short=False):
    """Where they were measured: the processor, or all that is known."""
    versions = {measured_on(run["versions"]): run["versions"] for run in kept(UNEQUAL, "runs")}
    if len(versions) > 1:
        raise MissingError(f"{UNEQUAL} has runs of {' and of '.join(sorted(versions))}")
    ((words, one),) = versions.items()
    return one["processor"] if is_short else words


def by_shares():
    """[(network and grid, median and range of the speed with shares by speed over even ones, processor)] of unequal ranks."""
    found = []
    for one in kept("results/unequal.json"):
        if one["net"].startswith("marques"):
            speeds = [row["even"] / row["constant"] for row in one["rounds"]]
            name = f"{one['net']} with {one['grid']}"
            found.append((name, median(speeds), (min(speeds), max(speeds)), one["versions"]["processor"]))
    if not found or len({one[-1] for one in found}) > 1:
        raise MissingError("results/unequal.json has no results of these networks on one processor")
    return found


# ----- the text and Appendix A


def share_of_convolutions(network):
    """The part of the parameters of a network that is in its convolutions."""
    net = published(MarquesRun(network, 64).net)
    sizes = {layer: sum(parameter.size for parameter in layer.parameters) for layer in net.layers}
    return sum(size for layer, size in sizes.items() if isinstance(layer, Conv2d)) / sum(sizes.values())


def kept_epochs():
    """The rows of what EPOCHS holds, for measurements of the other tables that have none."""
    try:
        rows = [epoch_row(result) for _, result in contents_of_lines(EPOCHS)] if EPOCHS.exists() else []
    except (*UNFIT, OSError) as error:
        raise MissingError(f"{EPOCHS} does not hold the seconds of epochs ({type(error).__name__})") from None
    if len({row["machine"] for row in rows}) != 1:
        raise MissingError(f"{EPOCHS} has epochs of no machine, or of several")
    return rows


def epoch_of(tables, width):
    """The row of the epoch of 784-WIDTH-250-10 on one core."""
    rows = tables["epochs"] if "epochs" in tables else kept_epochs()
    if (found := next((row for row in rows if row["width"] == width), None)) is None:
        raise MissingError("no epoch of this width was timed")
    return found


def epochs_on(tables):
    """Where the epochs were timed, if not with the rest; else empty."""
    return "" if "epochs" in tables else kept_epochs()[0]["machine"]


def phones():
    """The times of the devices of Table II in seconds: {device: s}."""
    return {row["device"]: seconds_of(row["time"]) for row in KNOWN.lines("II")}


def roofline():
    """What `summary --measure` has measured on a CPU core: operations a second of the thesis' convolutions, and bandwidths."""
    report = kept("results/roofline.json")
    points = [
        {"layer": point["layer"].removeprefix("marques-"), "algorithm": point["algorithm"],
         "rate": point["flops"] / point["seconds"]["median"]}
        for point in report["points"]
        if point["layer"].startswith("marques") and point["pass"] == "forward" and point["algorithm"] != "matrix product"
    ]  # fmt: skip
    bandwidths = {line["name"]: line["bytes_per_second"] for line in report["bandwidths"]}
    return {"peak": report["flops_per_second"], "bandwidths": bandwidths, "points": points,
            "reached": [point["rate"] / report["flops_per_second"] for point in points]}  # fmt: skip
