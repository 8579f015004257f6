"""Hegde, Usmani: Parallel and distributed deep learning (2016): section 3, times of layers on a CPU and a GPU, and section 5.

Figure 1: the forward pass of a convolution, 96 kernels of 11x11 with stride 4 on greyscale images of 224x224, by batch size;
here also on images of 3 channels. Figure 3: that of a fully connected layer of n inputs and n outputs by n, for one sample
(matrix by vector, as the text of the paper says) and for 64 (matrix by matrix, as the caption says). Figures 2 and 4: the
ratios of devices, here the CPU with several numbers of BLAS threads and, where CuPy finds one, a GPU. Each has processes of its
own (`hegde2016_job.py`), because the number of threads is fixed when NumPy is imported; they run in turns, so that a drift of
the machine's speed affects all alike. Speedups are over one CPU thread. What section 5 costs is in `hegde2016_costs.py`.
"""

import json
import os
import subprocess
import sys
from functools import partial
from itertools import product
from math import ceil, log, log2
from statistics import mean, median, quantiles

import numpy as np

from gridgrad.experiments.common import report
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.tables import cell, counted
from gridgrad.experiments.launching.start_ranks import cores
from gridgrad.experiments.papers import hegde2016_costs as costs
from gridgrad.experiments.papers.expressions import MissingError
from gridgrad.experiments.papers.hegde2016_costs import MIB, MILLION, WORKERS
from gridgrad.experiments.papers.hegde2016_job import KERNEL, KERNELS, REPEATS, SIZE, STRIDE
from gridgrad.experiments.papers.paper import groups, kept, source
from gridgrad.experiments.papers.parts import SHORT, PaperPart, run_job
from gridgrad.nn import device, network_summary
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.own_process import end_with_parent
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.protocols.parallel_sgd import DRAWS

CHANNELS = 1, 3
BATCH_SIZES = 1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256
SAMPLES = 1, 64
SIZES = 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096
LARGE = 1024  # from here on a matrix, of 4 MiB, is larger than the second cache of most processors
ROUNDS, SHORT_ROUNDS = 10 // REPEATS, 2  # processes of each device: ten timings of each layer, in the paper and here
TIMEOUT = 600  # seconds of a process
BUSY = "busy cores"  # a part
PROCESS_SECONDS, JOB_SECONDS = 12, 6  # about how long a process, and a job, take
OUTPUTS = (SIZE - KERNEL) // STRIDE + 1  # 54 rows and columns
ABOUT, BETTER = 1.1, 1.05  # the most by which a time may exceed what it is about; the least by which a better rate is better
SAME = 1.3  # the most by which a ratio may grow from the last number of workers but one to the last
NO_GPU = "no GPU was at hand"


def to_measure(size, ranks, data_dir):
    """The experiments as Parts: what else the machine does, processes that time layers, and jobs that count."""
    most, settings = len(cores()), {"convolution": [CHANNELS, BATCH_SIZES], "dense": [SAMPLES, SIZES]}
    threads = sorted({2**k for k in range(most.bit_length())} | {most})
    sides = [("cpu", count) for count in threads] + [("gpu", 1)] * bool(device.gpus())
    found = [PaperPart(BUSY, report.busy_cores, 1, {})]
    for number in range(SHORT_ROUNDS if size == SHORT else ROUNDS):
        for side in sides:
            words = f"{' '.join(map(str, side))}, round {number}"
            found.append(PaperPart(words, partial(times, *side), PROCESS_SECONDS, settings))
    jobs = [PaperPart(f"count {k}", partial(count, k), JOB_SECONDS, {"samples": costs.SAMPLES}) for k in WORKERS]
    return found + jobs


def gathered(results, out):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    measured = {"busy_cores": results.get(BUSY), "versions": {}, "convolution": [], "dense": [], "counted": []}
    for name, found in results.items():
        if name.startswith("count "):
            measured["counted"] += found
        elif name != BUSY:
            kind, threads = found["versions"]["device"], found["versions"]["threads"]
            side = f"{counted(threads, 'CPU thread')}" if kind == "cpu" else f"GPU {kind}"
            measured["versions"][side] = found["versions"]
            for layer in ("convolution", "dense"):
                measured[layer] += [{"device": side} | row for row in found[layer]]
    for layer in ("convolution", "dense"):
        measured[layer] = joined(measured[layer])
    return measured if results else {}


def times(kind, threads):
    """What a process of `hegde2016_job.py` prints. kind: "cpu" or "gpu". UserError if it fails, or has other threads."""
    options = {"channels": CHANNELS, "batch-sizes": BATCH_SIZES, "samples": SAMPLES, "sizes": SIZES}
    words = [word for name, numbers in options.items() for word in (f"--{name}", ",".join(map(str, numbers)))]
    command = [sys.executable, *as_module("papers.hegde2016_job"), "--device", kind, *words]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    try:
        finished = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, preexec_fn=end_with_parent
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"papers.hegde2016_job did not end within {TIMEOUT} seconds: is the machine busy?") from None
    if finished.returncode:
        raise UserError("papers.hegde2016_job failed, see above")
    found = json.loads(finished.stdout)
    if kind == "cpu" and found["versions"]["threads"] != threads:
        took = found["versions"]["threads"]
        raise UserError(f"BLAS has {took} threads where {threads} were asked for: unset what fixes them, OPENBLAS_NUM_THREADS")
    return found


def count(k):
    """Run all algorithms on k workers: rows as `hegde2016_count.py` prints them."""
    return run_job("hegde2016_count", k, TIMEOUT, f"papers.hegde2016_count on {k} ranks", samples=costs.SAMPLES)


def joined(rows):
    """Rows that differ in "seconds" alone as one, with all their seconds."""
    names = [name for row in rows[:1] for name in row if name != "seconds"]
    return [
        dict(zip(names, settings)) | {"seconds": [seconds for row in some for seconds in row["seconds"]]}
        for settings, some in groups(rows, *names).items()
    ]


# ----- tables


def tables(measured=None):
    """{name: rows} of all tables, and the measurement itself, where there is one."""
    measured = measured or {}
    convolution, dense, of_jobs = (measured.get(name, []) for name in ("convolution", "dense", "counted"))
    sent, computed = cost_rows(of_jobs)
    return {
        "convolution_slopes": convolution_slopes(convolution),
        "dense_fits": dense_fits(dense),
        "convolution_times": [timing(row, "batch", row["batch"]) for row in convolution],
        "dense_times": [timing(row, "n", row["n"] ** 2) for row in dense],
        "convolution_speedups": speedups(convolution),
        "dense_speedups": speedups(dense),
        "costs": sent,
        "computations": computed,
        "limits": costs.limits(),
    } | {name: measured[name] for name in ("busy_cores", "versions", "convolution", "dense", "counted") if name in measured}


def timing(row, size, work):
    """The mean, median and spread of a row in ms, and the median for an image or for an element of a matrix. size: the column
    that says how large the layer is. work: how many images or elements there are."""
    ms = [1e3 * seconds for seconds in row["seconds"]]
    unit, many = {"batch": ("ms_an_image", 1), "n": ("ns_an_element", 1e6)}[size]
    about = {name: value for name, value in row.items() if name != "seconds"} | {"timings": len(ms)}
    spread = {"mean_ms": mean(ms), "median_ms": median(ms), "min_ms": min(ms), "max_ms": max(ms)}
    return about | spread | {unit: many * median(ms) / work}


def convolution_slopes(rows):
    """Lines of least squares through the median times of the convolution over the batch size."""
    found = []
    for (name, channels), mine in groups(rows, "device", "channels").items():
        slope, intercept, r2 = line([row["batch"] for row in mine], [1e3 * median(row["seconds"]) for row in mine])
        rate = 2 * KERNEL**2 * channels * KERNELS * OUTPUTS**2 / slope / 1e6
        found.append({"device": name, "channels": channels, "ms_an_image": slope, "intercept_ms": intercept, "R2": r2,
                      "GFLOP/s": rate})  # fmt: skip
    return found


def line(x, y):
    """(slope, intercept, R^2) of least squares. Needs two different x."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    slope, intercept = np.polyfit(x, y, 1)
    residual, total = ((y - slope * x - intercept) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return float(slope), float(intercept), float(1 - residual / total) if total else 1.0


def dense_fits(rows):
    """Powers of n through the median times of the fully connected layers: of all n, and of the large ones. ns_an_element: the
    factor of the power that fits best if its exponent is 2. Each sample takes 2 n^2 operations."""
    found = []
    for (name, batch), mine in groups(rows, "device", "batch").items():
        for what, some in (("all n", mine), (f"n >= {LARGE}", [row for row in mine if row["n"] >= LARGE])):
            if len(some) < 2:
                continue
            n, ms = [row["n"] for row in some], [1e3 * median(row["seconds"]) for row in some]
            exponent, factor, r2 = line(np.log(n), np.log(ms))
            square = float(np.exp(np.mean(np.log(ms) - 2 * np.log(n))))
            found.append({
                "device": name, "batch": batch, "n": what, "exponent": exponent, "factor_ms": float(np.exp(factor)),
                "R2": r2, "ns_an_element": 1e6 * square, "GFLOP/s": 2 * batch / square / 1e6,
            })  # fmt: skip
    return found


def speedups(rows):
    """How many times as fast each device is as the first, one CPU thread: medians and range of the ratios of timings."""
    settings = lambda row: tuple(value for name, value in row.items() if name not in ("device", "seconds"))  # noqa: E731
    base = {settings(row): row["seconds"] for row in rows if row["device"] == rows[0]["device"]}
    found = []
    for row in rows:
        if row["device"] != rows[0]["device"]:
            ratios = [ours / theirs for ours, theirs in zip(base[settings(row)], row["seconds"])]
            about = {name: value for name, value in row.items() if name != "seconds"}
            found.append(about | {"speedup": median(ratios), "min": min(ratios), "max": max(ratios)})
    return found


def cost_rows(of_jobs):
    """What is sent, and what is computed beside the gradients: for both a row for each algorithm and number of workers.
    of_jobs: what `count` returned for each k."""
    known, sent, computed = {(row["algorithm"], row["k"]): row for row in of_jobs}, [], []
    for algorithm, k in product(costs.TERMS, WORKERS):
        (total, most, messages, operations), here = costs.predicted(algorithm, k), known.get((algorithm, k))
        sent.append({
            "algorithm": algorithm, "k": k, "its terms, *predicted* MiB": costs.terms(algorithm, k),
            "all workers, *predicted* MiB": total / MIB, "counted MiB": here and here["bytes"] / MIB,
            "busiest, *predicted* MiB": most / MIB, "busiest, counted MiB": here and here["most_bytes"] / MIB,
            "its messages, *predicted*": messages, "its messages, counted": here and here["most_messages"],
        })  # fmt: skip
        if algorithm in costs.WORK:
            done = here and here.get("most_operations")
            computed.append({
                "algorithm": algorithm, "k": k, "its terms, *predicted* millions": costs.work(algorithm, k),
                "operations, *predicted* millions": operations / MILLION, "counted millions": done and done / MILLION,
            })  # fmt: skip
    return sent, computed


# ----- what expressions of hegde2016.toml name


def names(tables):
    """Functions and numbers for the expressions."""
    of_layers, of_costs = Layers(tables), costs.Costs(tables)
    methods = {name: getattr(one, name) for one in (of_layers, of_costs) for name in dir(one) if name[0] != "_"}
    return methods | {
        "workers": WORKERS, "setting": costs.setting, "distribution": costs.distribution, "sample_bytes": costs.SAMPLE,
        "terms": lambda name: {k: costs.terms(name, k) for k in WORKERS},
        "work": lambda name: {k: costs.work(name, k) for k in WORKERS},
        "terms_of_bytes": {name: words for name, (words, _) in costs.TERMS.items()},
        "terms_of_work": {name: words for name, (words, _) in costs.WORK.items()},
        "steps": lambda name, k: costs.algorithms(costs.SAMPLES, k)[name].steps,
        "all_bytes": lambda name, k: costs.predicted(name, k)[0], "draws": DRAWS, "about": ABOUT, "better": BETTER,
        "log": log, "log2": log2, "ceil": ceil, "no_higher": no_higher, "over": over, "each": each,
        "criterion": f"up to {SAME} times as much on {WORKERS[-1]} workers as on {WORKERS[-2]} counts as no higher order",
        "comparisons_a_sample": lambda: {k: costs.comparisons(k, DRAWS) / (k * DRAWS) for k in WORKERS},
        "share_of_convolutions": share_of_convolutions, "on_sorted": on_sorted, "seconds_of_ways": seconds_of_ways,
        "timed": timed, "limit": limit,
        "threads": threads, "threads_on": threads_on,
    }  # fmt: skip


def over(numbers, others):
    """{k: ratio}."""
    return {k: numbers[k] / others[k] for k in numbers}


def each(numbers):
    """Numbers by k, in words."""
    return ", ".join(f"{cell(number)} (k = {k})" for k, number in numbers.items())


def no_higher(ratios):
    """Whether ratios, by k, stay about the same or fall: then what is above is of no higher order than what is below."""
    *_, before, last = ratios.values()
    return last <= SAME * before


class Layers:
    """What was measured of layers, as section 3 speaks of it."""

    def __init__(self, tables):
        self._tables = tables
        versions = tables.get("versions", {})
        self.gpu = next((name for name in versions if name.startswith("GPU")), None)
        self.processor = ", ".join(dict.fromkeys(one["processor"] for one in versions.values()))

    def _rows(self, table, why="nothing was measured: `gridgrad reproduce hegde2016` does it"):
        rows = self._tables.get(table)
        if not rows:
            raise MissingError(why)
        return rows

    def slopes(self, is_needed=False):
        """The rows of the slopes, those of a GPU's greyscale images left to a row of their own."""
        rows = self._rows("convolution_slopes") if is_needed else self._tables["convolution_slopes"]
        shown = [row | {"first": (row["device"], row["channels"]) == (rows[0]["device"], 1)} for row in rows]
        return shown if is_needed else [row for row in shown if (row["device"], row["channels"]) != (self.gpu, 1)]

    def of_one_vector(self):
        """The powers of one sample and of large n."""
        fits = self._rows("dense_fits")
        return [row for row in fits if (row["batch"], row["n"]) == (fits[0]["batch"], fits[-1]["n"])]

    def gpu_over_cpu(self, rows, column):
        """How many times less of a column the GPU needs than one CPU thread, which is the first row."""
        if not self.gpu:
            raise MissingError(NO_GPU)
        return rows[0][column] / next(row[column] for row in rows if row["device"] == self.gpu)

    def gains(self, of_gpu):
        """{device and kind of image: the images a second of the largest third of the batches over those of the smallest}."""
        times = [row for row in self._rows("convolution_times") if (row["device"] == self.gpu) == of_gpu]
        if not times:
            raise MissingError(NO_GPU)
        found = {}
        for (name, channels), rows in groups(times, "device", "channels").items():
            small, large = thirds(rows, "batch", "ms_an_image")
            found[f"{name}, channels {channels}"] = small / large
        return found

    def growth(self, table, kind, size):
        """The speedups of small and large sizes of GPUs, or without any of CPU threads, and whether they grow."""
        rows, found = self._rows(table, f"{NO_GPU}, and there were no speed-ups of several threads"), []
        mine = [row for row in rows if row["device"] == self.gpu] or rows
        for (name, value), some in groups(mine, "device", kind).items():
            small, large = thirds(some, size, "speedup")
            words = f"{small:.3g} to {large:.3g} ({kind} {value})"
            found.append({"device": name, "words": words, "grows": large >= BETTER * small})
        return found

    def ends_in_words(self, ends):
        by_device = groups(ends, "device").items()
        return "; ".join(f"{name}, small to large: {', '.join(one['words'] for one in some)}" for (name,), some in by_device)

    def threads_over_1_q(self):
        """{device and layer: the time that q threads take over 1/q of that of one, the median over its sizes}."""
        found = {}
        for table in ("convolution_speedups", "dense_speedups"):
            for row in self._rows(table):
                if row["device"] != self.gpu:
                    kind = "convolution" if "channels" in row else f"fully connected, batch {row['batch']}"
                    share = int(row["device"].split()[0]) / row["speedup"]
                    found.setdefault(f"{row['device']}, {kind}", []).append(share)
        return {kind: median(some) for kind, some in found.items()}


def thirds(rows, size, column):
    """The medians of a column of the third of the rows with the smallest and of that with the largest sizes."""
    ordered = sorted(rows, key=lambda row: row[size])
    third = -(-len(ordered) // 3)
    return [median(row[column] for row in some) for some in (ordered[:third], ordered[-third:])]


def share_of_convolutions(net):
    """The part of the operations of a network that its convolutions take."""
    rows = network_summary.rows(network_names.build(net, (224, 224, 3), 1000), (224, 224, 3))
    return sum(row.flops for row in rows if row.layer.startswith("Conv2d")) / sum(row.flops for row in rows)


# ----- kept results of other programs


def on_sorted(*protocols):
    """The last training on sorted MNIST that `study protocols` kept with all of these protocols, and their runs."""
    path = "results/protocols.json"
    for one in reversed(kept(path)):
        runs = {run["protocol"]: run for run in one["runs"] if run["straggler"] == 1}
        if one["time"] == "virtual" and one["dataset"] == "mnist" and one["sorted"] and runs.keys() >= set(protocols):
            words = f"on MNIST sorted by label, {one['workers']} workers, {one['epochs']} epochs"
            return one | {"runs": [runs[name] for name in protocols], "training": words, "source": source(path, one),
                          "rate": one["settings"]["rate"]}  # fmt: skip
    raise MissingError(f"{path} has no training on sorted samples of MNIST with all of {', '.join(protocols)}")


def seconds_of_ways():
    """{way: seconds to 65 %, "source": where from} of the training on CIFAR-10 that `study convergence` kept."""
    path = "results/convergence.json"
    first = next(one for one in kept(path) if one["dataset"] == "cifar10" and one["settings"]["target"] == 65)
    return {way["way"]: way["seconds"] for way in first["ways"]} | {"source": source(path, first)}


def timed(net):
    """The training of a network by whose seconds protocols were played."""
    found = [one for one in kept("results/protocols.json") if one.get("seconds") and not one["sorted"]]
    return {one["net"].partition(",")[0]: one for one in found}[net]


def limit():
    """What the study of servers measured of the number of workers that one server can serve."""
    return next(one for one in kept("results/servers.json") if one["part"] == "limit" and not one["link"])


# ----- two threads, looked into


def threads():
    """Rows of ratios of the kept times: for each way (a layer, NumPy's product alone), number of samples and n.

    speedup: of two threads over one, with its quartiles. halves: how many times as long as a half the whole takes on one core.
    processes: the speed-up of two processes that have a half each. window: whether a half fits a core's own cache and the
    whole does not: then the cache of a second core brings more than its arithmetic.
    """
    result, found = kept("results/hegde2016/threads.json"), []
    own = [cache["bytes"] for cache in result["caches"] if cache["cores"] == 1 and cache["type"] != "Instruction"]
    for row in result["rows"]:
        ratio = {side: [one / other for one, other in zip(row["one"], row[side])] for side in ("two", "half", "pair")}
        low, _, high = quantiles(ratio["two"], n=4)
        found.append({
            "way": row["way"], "samples": row["samples"], "n": row["n"], "speedup": median(ratio["two"]), "low": low,
            "high": high, "halves": median(ratio["half"]), "processes": median(ratio["pair"]),
            "window": any(2 * row["n"] ** 2 <= size < 4 * row["n"] ** 2 for size in own),
        })  # fmt: skip
    alone = {(row["samples"], row["n"]): row["speedup"] for row in found if row["way"] == "product"}
    return [row | {"alone": alone[row["samples"], row["n"]]} for row in found]


def threads_on():
    """The processor of those times, with its caches."""
    result = kept("results/hegde2016/threads.json")
    caches = ", ".join(
        f"L{cache['level']} {cache['bytes'] // 1024} KiB{' shared' * (cache['cores'] > 1)}"
        for cache in result["caches"] if cache["type"] != "Instruction"
    )  # fmt: skip
    return f"{result['versions']['processor']}, {result['versions']['blas']}, {caches}"
