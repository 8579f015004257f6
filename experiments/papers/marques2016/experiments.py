"""Marques: Distributed learning of convolutional neural networks on heterogeneous processing units (2016), chapters 4 and 5.

Tables: where the time of a training step goes (Figures 5.1 to 5.10), the speedups of Tables 5.1 to 5.3, the scalability of
section 5.4 (Figures 5.11 to 5.15), and how long an epoch of the autoencoder of Appendix A takes. The master/slave algorithm is
the plan "marques" (`parallel/plans/marques.py`); beside it stands the form without a master, the plan "out" on the same
ranks.

What runs is in `runs.py`. Only numbers from runs are called measured. On ranks that were not measured, a part of
the step is predicted: the part that was measured on two, in the proportion that the cost model has for it.
"""

from functools import lru_cache, partial
from statistics import median

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.common.tables import titled
from gridgrad.experiments.launching.start_ranks import slots
from gridgrad.experiments.papers.marques2016 import figures, scaling, volumes
from gridgrad.experiments.papers.marques2016.appendix import SHORT_STEPS, STEPS, epoch_row, epochs
from gridgrad.experiments.papers.marques2016.runs import (
    BATCH_SIZES,
    LARGE,
    LARGE_ROUNDS,
    MANY_ROUNDS,
    MASTERLESS,
    NETWORKS,
    PARTS,
    PLANS,
    ROUNDS,
    WITH_MASTER,
    MarquesRun,
    all_runs,
    machine_of,
    measure,
    parts,
    ratios,
)
from gridgrad.experiments.papers.parts import SHORT, PaperPart, run_all
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read

MACHINE = "marques-5MBps"  # of parallel/prediction/machines: the paper's laptops and network
RANKS = 2, 3, 4
SHORT_SIZES = (64,)  # batches in a short measurement
COMPARED = "500:1500", 64  # where the forms are compared with each other: network and batch size
TITLES = {
    "split": "Figures 5.1 to 5.5: seconds of a training step, drawn in step_BATCH.png. Convolution is the most time that a "
    "rank spends in convolutions, computation the most that a rank spends in all else that it computes, communication the rest "
    "of the step, waiting included. With a master, convolution includes the copies of kernels into messages and out of them, "
    "and computation the addition of the biases, which otherwise belongs to convolution. Measured: the median of the steps of "
    "all rounds; of the step, and of the speedup by rounds, also the least and the most. MiB (2^20 bytes, the MB of the paper) "
    "are those that all ranks send in a step, equation 5.1 its formula for both passes; memory is that of all ranks together. "
    "Figures 5.6 to 5.10 are of GPUs: none was measured",
    "forms": "What leaving out the master gains: ratios of the rounds, their median, the least and the most",
    "5.1": "Table 5.1: best speedups by network and number of CPUs, over all batch sizes of the table above, from the same "
    "rounds; none where a batch size is missing. Published: four laptops, the first and slowest of which is the reference. "
    "Measured and predicted: all ranks are cores of one machine. At 5 MiB/s: the parts of the step as measured, and the "
    "paper's network",
    "5.2": "Table 5.2: best speedups by network and number of GPUs. No GPU was measured. Predicted: equation 5.1 with the "
    "constants of the text, for the one case that it describes, 500:1500 at batch 1024",
    "5.3": "Table 5.3: speedups of GPUs over as many CPUs. No GPU was measured. Derived: the ratio of one device, times Table "
    "5.2, over Table 5.1",
    "constants": "Section 5.4: constants that the text implies, with equation 5.1 as it is printed, which counts the input of "
    "a layer once, and for each slave, as Algorithm 4.1 sends it. All predicted: `experiments/papers/marques2016/scaling.py` "
    "says how they follow",
    "scaling": "Figures 5.11 and 5.12: a step on many nodes, with the constants above. Further nodes have the mean of the "
    "slowest and the fastest speed (assumed; the paper says between them). The constants are made of the speedups of the "
    "largest network on 2 to 4 CPUs, and of its limit. All predicted, [scaling.png](scaling.png)",
    "equal nodes": "The same for equal nodes like the one that was measured: its seconds on one rank, in float32, both passes; "
    "at 5 MiB/s and at the rate at which two ranks communicate in its memory. All predicted",
    "rates": "Figures 5.13 to 5.15: speedups of 500:1500 at batch 1024 at other rates, over the master alone. Assumed, where "
    "the text has no numbers: the rates, high-end nodes 5 times as fast as the fastest one behind the same master, GPUs of the "
    "speeds 1, 1 and 1.5, mobile GPUs of a tenth behind a desktop GPU. All predicted, [rates.png](rates.png)",
    "epochs": "Tables II and III of Appendix A: seconds of an epoch of 50,000 images in minibatches of 64 on one core, scaled "
    "from some steps of each phase",
}
FIGURES = {"scaling": "scaling.png", "rates": "rates.png"}


def figure_of_steps(batch_size):
    """The name of the figure of the steps of a batch size."""
    return f"step_{batch_size}.png"


def experiments(out, ranks, data_dir, full=False):
    """Measure: what `tables` takes. full: more rounds."""
    found = measure(out / "runs.jsonl", ranks, MANY_ROUNDS if full else ROUNDS)
    return found | {"epochs": list(map(epoch_row, run_all(epochs(STEPS)).values()))}


def to_measure(size, ranks, data_dir):
    """The experiments as Parts, which take turns as in `measure`. A short one has SHORT_SIZES alone, one round of it."""
    ranks = [p for p in ranks if p <= slots()]
    rounds, sizes, seconds = (1, SHORT_SIZES, 1.0) if size == SHORT else (MANY_ROUNDS, BATCH_SIZES, 3.0)
    found = epochs(SHORT_STEPS if size == SHORT else STEPS)
    for run, number in all_runs(ranks, rounds, NETWORKS, sizes):
        settings = {"run": run.key, "seconds": seconds}
        found.append(
            PaperPart(f"{run.key}, round {number}", partial(printed, run, number, seconds), run.about(seconds), settings)
        )
    return found


def printed(run, number, seconds):
    """What a run prints in a round, with the name of the run and the number of the round."""
    return {"key": run.key, "round": number} | run.start(seconds)


def gathered(results, out):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    runs, found = {}, {}
    for result in results.values():
        if "key" in result:
            runs.setdefault(result["key"], []).append({name: value for name, value in result.items() if name != "key"})
    if runs:
        found = {"runs": runs, "machine": machine_of(runs, out)}
    return found | {"epochs": [epoch_row(result) for result in results.values() if "width" in result]}


def tables(measured=None):
    """{name: rows} of all tables; "runs", "machine" and "epochs" of the measurement, where there is one."""
    measured = measured or {}
    runs = measured.get("runs", {})
    rows = split(runs)
    found = {
        "split": rows, "forms": forms(runs), "5.1": table_5_1(rows), "5.2": table_5_2(), "5.3": table_5_3(),
        "constants": scaling.constants(),
        "scaling": [row for equation in scaling.EQUATIONS for row in scaling.rows(scaling.derived(equation))],
        "equal nodes": scaling.rows(equal_nodes(rows)), "rates": scaling.rate_rows(),
    }  # fmt: skip
    return found | {key: measured[key] for key in ("machine", "runs", "epochs") if key in measured}


def split(runs):
    """A row for each network, batch size, form and number of ranks: measured, or predicted where others were."""
    found, sizes = [], sorted({results[0]["batch_size"] for results in runs.values()})
    for network in NETWORKS:
        for batch_size in sizes:
            alone = runs.get(MarquesRun(network, batch_size).key)
            if not alone:
                continue
            found.append(measured_row(network, batch_size, 1, "one rank", alone, alone))
            two = {form: in_same_rounds(alone, runs.get(MarquesRun(network, batch_size, 2, form).key, ())) for form in PLANS}
            for ranks in RANKS:
                for form in PLANS:
                    results = in_same_rounds(alone, runs.get(MarquesRun(network, batch_size, ranks, form).key, ()))
                    if results:
                        found.append(measured_row(network, batch_size, ranks, form, results, alone))
                    elif two[form]:
                        found.append(predicted_row(network, batch_size, ranks, form, alone, two[form]))
    return found


def in_same_rounds(alone, results):
    """Those `results` whose round is one of those on one rank, `alone`: speedups are over a run of the same round."""
    rounds = {one["round"] for one in alone}
    return [result for result in results if result["round"] in rounds]


def measured_row(network, batch_size, ranks, form, results, alone):
    """A row of `split` from what the runs printed. alone: those on one rank."""
    by_rounds = ratios(results, alone)
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
    """A row of `split`.

    how: "measured" or "predicted". seconds: {part or "step": [median, least, most]}. speedup: [median, least, most]. sent: MiB.
    memory: GiB. None: not measured.
    """
    return {
        "network": network, "batch": batch_size, "ranks": ranks, "form": form, "how": how, "rounds": rounds,
        **{f"{name}, s": seconds[name][0] for name in PARTS},
        **dict(zip(("step, s", "step, least", "step, most"), seconds["step"])),
        **dict(zip(("speedup", "speedup, least", "speedup, most"), speedup)), "MiB": sent,
        "equation 5.1, MiB": equation(network, batch_size, ranks) if form == WITH_MASTER else None, "memory, GiB": memory,
    }  # fmt: skip


def equation(network, batch_size, ranks):
    """MiB that a master and its slaves send in a training step in float32, with even shares."""
    return volumes.marques_step(batch_size, scaling.convolutions(network, (1,) * ranks)) / scaling.MIB


def forms(runs):
    """How many times as fast two ranks without a master are as two with one, and as one rank, in the case COMPARED."""
    network, batch_size = COMPARED
    one, *two = (MarquesRun(*COMPARED), *(MarquesRun(*COMPARED, 2, form) for form in (WITH_MASTER, MASTERLESS)))
    found, masterless = [], runs.get(two[1].key, [])
    for words, other in ((f"{WITH_MASTER} on 2 ranks", two[0]), ("one rank", one)):
        by_rounds = ratios(masterless, runs.get(other.key, []))
        if by_rounds:
            about = {"network": network, "batch": batch_size, "ratio": f"speed of {MASTERLESS} on 2 ranks over {words}"}
            spread = {"median": median(by_rounds), "least": min(by_rounds), "most": max(by_rounds), "rounds": len(by_rounds)}
            found.append(about | spread)
    return found


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
    for line in scaling.KNOWN.tables["5.1"].lines():
        network, ranks = line["network"], line["CPUs"]
        row = {"network": network, "CPUs": ranks, "published": line["speedup"]}
        for form in PLANS:
            mine = [r for r in rows if (r["network"], r["ranks"], r["form"]) == (network, ranks, form)]
            whole = {r["batch"] for r in mine} >= set(BATCH_SIZES)
            best = max(mine, key=lambda r: r["speedup"]) if whole else None
            for how in ("measured", "predicted"):
                row[f"{form}, {how}"] = best["speedup"] if best and best["how"] == how else None
            row[f"{form}, best at"] = best and at(best)
            slow = (slow_speedup(network, size, ranks, form, rows) for size in BATCH_SIZES)
            row[f"{form} at 5 MiB/s, predicted"] = max(slow) if whole else None
        found.append(row)
    return found


def at(row):
    """At which batch size a row of `split` was measured, and in how many rounds."""
    return f"batch {row['batch']}" + (f", {figures.rounds_of([row])}" if row["how"] == "measured" else "")


def slow_speedup(network, batch_size, ranks, form, rows):
    """The speedup with the computing times that were measured on one rank, and the network of the paper."""
    alone = next(r for r in rows if (r["network"], r["batch"], r["ranks"]) == (network, batch_size, 1))
    one, several = (model(network, batch_size, p, form) for p in (1, ranks))
    computed = sum(alone[f"{name}, s"] * several[name] / one[name] for name in ("convolution", "computation"))
    return alone["step, s"] / (computed + several["communication"])


def table_5_2():
    cluster = scaling.derived(scaling.PRINTED)["GPUs, largest network"]
    return [
        {"network": line["network"], "GPUs": line["GPUs"], "published": line["speedup"], "measured": None,
         "predicted": cluster.speedup(line["GPUs"]) if line["network"] == cluster.network else None}
        for line in scaling.KNOWN.tables["5.2"].lines()
    ]  # fmt: skip


def table_5_3():
    found = []
    for line in scaling.KNOWN.tables["5.3"].lines():
        derived = scaling.gpu_over_cpu(line["network"], line["devices"])
        row = {"network": line["network"], "devices": line["devices"], "published": line["speedup"], "measured": None}
        found.append(row | {"derived from 5.1 and 5.2": derived and derived.value})
    return found


def equal_nodes(rows):
    """{name: Cluster} of nodes like the one that was measured, for the paper's smallest and largest case. rows: of `split`."""
    found = {}
    for size, (network, batch_size) in (("smallest", scaling.SMALLEST), ("largest", scaling.LARGEST)):
        mine = {(r["ranks"], r["form"]): r for r in rows if (r["network"], r["batch"]) == (network, batch_size)}
        both = mine.get((2, WITH_MASTER))
        if both is None:
            continue
        alone = {part: mine[1, "one rank"][f"{part}, s"] for part in PARTS}
        rates = {"at 5 MiB/s": scaling.RATE, "in memory": scaling.MIB * both["MiB"] / both["communication, s"]}
        for words, rate in rates.items():
            found[f"equal nodes, {size} network, {words}"] = scaling.like_measured(network, batch_size, alone, rate)
    return found


def draw(tables, out):
    """Write the figures into the folder `out`."""
    for size in dict.fromkeys(row["batch"] for row in tables["split"]):
        rows = [row for row in tables["split"] if row["batch"] == size]
        figures.draw_steps(rows, tables["machine"], out / figure_of_steps(size))
    by_equation = {equation: scaling.derived(equation) for equation in scaling.EQUATIONS}
    figures.draw_scaling(by_equation, equal_nodes(tables["split"]), out / FIGURES["scaling"])
    figures.draw_rates(scaling.of_rates(), out / FIGURES["rates"])


def as_markdown(tables):
    """All tables as Markdown."""
    where = "Nothing measured yet: run `reproduce marques2016`."
    if "machine" in tables:
        rounds = max(map(len, tables["runs"].values()))
        where = (
            f"Measured on {tables['machine']}, float32, SGD with momentum on images of random numbers, in {rounds} rounds in "
            f"which the forms take turns, of batches of {LARGE} images and more in {min(rounds, LARGE_ROUNDS)}. "
            f'"{WITH_MASTER}" is the plan `marques`, "{MASTERLESS}" the plan `out`.'
        )
    text = f"# Marques 2016\n\n{where} `-`: not there.\n"
    return text + "".join(titled(TITLES[name] + ".", tables.get(name, [])) for name in TITLES)
