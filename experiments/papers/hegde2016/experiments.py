"""Hegde, Usmani: Parallel and distributed deep learning (2016), section 3, times of layers on a CPU and a GPU, and section 5.

Figure 1: the forward pass of a convolution, 96 kernels of 11x11 with stride 4 on greyscale images of 224x224, by batch size;
here also on images of 3 channels. Figure 3: that of a fully connected layer of n inputs and n outputs by n, for one sample
(matrix by vector, as the text of the paper says) and for 64 (matrix by matrix, as the caption says). Figures 2 and 4: the
ratios of devices.

Here the devices are the CPU with several numbers of BLAS threads and, where CuPy finds one, a GPU. Each has processes of its
own (`job.py`), because the number of threads is fixed when NumPy is imported. They run in turns, so that a drift of
the machine's speed affects all alike. Speedups are over one CPU thread.

What the update protocols of section 5 cost is in `costs.py`.
"""

import json
import os
import subprocess
import sys
from functools import partial
from statistics import mean, median

from gridgrad.experiments.common import report
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.tables import counted, titled
from gridgrad.experiments.launching.start_ranks import cores
from gridgrad.experiments.papers import page_words as words
from gridgrad.experiments.papers.cited import PRINTED, published
from gridgrad.experiments.papers.hegde2016 import claims, costs, figures, fits
from gridgrad.experiments.papers.hegde2016.times import KERNEL, KERNELS, REPEATS, SIZE, STRIDE, flops_of_image
from gridgrad.experiments.papers.parts import SHORT, USUAL, PaperPart, run_all
from gridgrad.nn import device
from gridgrad.parallel.job.own_process import end_with_parent
from gridgrad.parallel.job.run import UserError

CHANNELS = 1, 3
BATCH_SIZES = 1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256
SAMPLES = 1, 64
SIZES = 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096
LARGE = 1024  # from here on a matrix, of 4 MiB, is larger than the second cache of most processors
TIMINGS = published("hegde2016").values["timings"].value  # of each layer, in the paper and here
ROUNDS, SHORT_ROUNDS = TIMINGS // REPEATS, 2  # processes of each device
TIMEOUT = 600  # seconds of a process
BUSY = "busy cores"  # a part
PROCESS_SECONDS, JOB_SECONDS = 12, 6  # about how long a process, and a job, take


def experiments(out, ranks, data_dir, full=False):
    """Measure each device: what `tables` takes. The arguments are there for other papers."""
    return gathered(run_all(to_measure(USUAL, ranks, data_dir), "processes"), out)


def to_measure(size, ranks, data_dir):
    """The experiments as Parts: what else the machine does, processes that time layers, and jobs that count."""
    sides = [("cpu", threads) for threads in thread_counts(len(cores()))] + [("gpu", 1)] * bool(device.gpus())
    found = [PaperPart(BUSY, report.busy_cores, 1, {})]
    for number in range(SHORT_ROUNDS if size == SHORT else ROUNDS):
        for kind, threads in sides:
            settings = {"convolution": [CHANNELS, BATCH_SIZES], "dense": [SAMPLES, SIZES]}
            found.append(
                PaperPart(f"{kind} {threads}, round {number}", partial(times, kind, threads), PROCESS_SECONDS, settings)
            )
    jobs = [PaperPart(f"count {k}", partial(costs.count, k), JOB_SECONDS, {"samples": costs.SAMPLES}) for k in costs.WORKERS]
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


def thread_counts(most):
    """1, 2, 4, .. and `most`."""
    return sorted({2**k for k in range(most.bit_length())} | {most})


def times(kind, threads):
    """What a process of `job.py` prints. kind: "cpu" or "gpu". Raises UserError if it fails, or has other threads."""
    options = {"channels": CHANNELS, "batch-sizes": BATCH_SIZES, "samples": SAMPLES, "sizes": SIZES}
    words = [word for name, numbers in options.items() for word in (f"--{name}", ",".join(map(str, numbers)))]
    command = [sys.executable, *as_module("papers.hegde2016.job"), "--device", kind, *words]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    try:
        finished = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, preexec_fn=end_with_parent
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"papers.hegde2016.job did not end within {TIMEOUT} seconds: is the machine busy?") from None
    if finished.returncode:
        raise UserError("papers.hegde2016.job failed, see above")
    found = json.loads(finished.stdout)
    if kind == "cpu" and found["versions"]["threads"] != threads:
        took = found["versions"]["threads"]
        raise UserError(f"BLAS has {took} threads where {threads} were asked for: unset what fixes them, OPENBLAS_NUM_THREADS")
    return found


def joined(rows):
    """Rows that differ in "seconds" alone as one, with all their seconds."""
    found = {}
    for row in rows:
        settings = tuple((name, value) for name, value in row.items() if name != "seconds")
        found.setdefault(settings, []).extend(row["seconds"])
    return [dict(settings) | {"seconds": seconds} for settings, seconds in found.items()]


def tables(measured=None):
    """{name: rows} of all tables, and the measurement itself, where there is one."""
    counted = (measured or {}).get("counted", [])
    protocols = {"costs": costs.rows(counted), "computations": costs.computations(counted), "limits": costs.limits()}
    if not (measured or {}).get("convolution"):
        return {"convolution_slopes": printed_slopes()} | protocols | ({"counted": counted} if counted else {})
    measured = {name: measured[name] for name in ("busy_cores", "versions", "convolution", "dense")} | {"counted": counted}
    found = {
        "convolution_slopes": convolution_slopes(measured["convolution"]) + printed_slopes(),
        "dense_fits": dense_fits(measured["dense"]),
        "convolution_times": [timing(row, "batch", row["batch"]) for row in measured["convolution"]],
        "dense_times": [timing(row, "n", row["n"] ** 2) for row in measured["dense"]],
        "convolution_speedups": speedups(measured["convolution"]),
        "dense_speedups": speedups(measured["dense"]),
    }
    return found | protocols | measured


def timing(row, size, work):
    """The mean, median and spread of a row in ms, and the median for an image or for an element of a matrix.

    size: the column that says how large the layer is. work: how many images or elements there are.
    """
    ms = [1e3 * seconds for seconds in row["seconds"]]
    unit, many = {"batch": ("ms_an_image", 1), "n": ("ns_an_element", 1e6)}[size]
    about = {name: value for name, value in row.items() if name != "seconds"} | {"timings": len(ms)}
    spread = {"mean_ms": mean(ms), "median_ms": median(ms), "min_ms": min(ms), "max_ms": max(ms)}
    return about | spread | {unit: many * median(ms) / work}


def groups(rows, *names):
    """{values of these columns: rows}."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def slope_row(name, channels, slope, intercept=None, r2=None):
    rate = flops_of_image(channels) / slope / 1e6
    return {"device": name, "channels": channels, "ms_an_image": slope, "intercept_ms": intercept, "R2": r2, "GFLOP/s": rate}


def convolution_slopes(rows):
    """Lines through the median times of the convolution over the batch size."""
    found = []
    for (name, channels), mine in groups(rows, "device", "channels").items():
        line = fits.line([row["batch"] for row in mine], [1e3 * median(row["seconds"]) for row in mine])
        found.append(slope_row(name, channels, line.slope, line.intercept, line.r2))
    return found


def printed_slopes():
    """The slopes that the paper prints, if they are ms an image, and the rates that are derived from them."""
    cited = published("hegde2016")
    slopes = {"CPU": cited.values["slope_cpu"].value, "GPU": cited.values["slope_gpu"].value}
    names = {line["device"]: line["name"] for line in cited.tables["devices"].lines()}
    return [slope_row(f"{PRINTED}: {names[device]}", 1, slope) for device, slope in slopes.items()]


def dense_fits(rows):
    """Powers of n through the median times of the fully connected layers: of all n, and of the large ones."""
    found = []
    for (name, batch), mine in groups(rows, "device", "batch").items():
        for what, some in (("all n", mine), (f"n >= {LARGE}", [row for row in mine if row["n"] >= LARGE])):
            if len(some) < 2:
                continue
            n, ms = [row["n"] for row in some], [1e3 * median(row["seconds"]) for row in some]
            power, square = fits.power(n, ms), fits.power_of(2, n, ms)
            found.append({
                "device": name, "batch": batch, "n": what, "exponent": power.exponent, "factor_ms": power.factor,
                "R2": power.r2, "ns_an_element": 1e6 * square, "GFLOP/s": 2 * batch / square / 1e6,
            })  # fmt: skip
    return found


def speedups(rows):
    """How many times as fast each device is as the first, one CPU thread: medians and range of the ratios of timings."""
    base = {settings(row): row["seconds"] for row in rows if row["device"] == rows[0]["device"]}
    found = []
    for row in rows:
        if row["device"] != rows[0]["device"]:
            ratios = [ours / theirs for ours, theirs in zip(base[settings(row)], row["seconds"])]
            about = {name: value for name, value in row.items() if name != "seconds"}
            found.append(about | {"speedup": median(ratios), "min": min(ratios), "max": max(ratios)})
    return found


def settings(row):
    """What a layer is, whatever device runs it."""
    return tuple(value for name, value in row.items() if name not in ("device", "seconds"))


TITLES = {
    "convolution_slopes": f"Figure 1: lines of least squares through the medians, time = intercept + slope x batch; {KERNELS} "
    f"kernels of {KERNEL}x{KERNEL}, stride {STRIDE}, on {SIZE}x{SIZE}. The paper prints slopes without a "
    "unit. It is likely ms an image: the GFLOP/s that are derived from it are those of such devices",
    "dense_fits": "Figure 3: powers of n through the medians, time = factor x n^exponent; ns_an_element: the factor "
    "of the power that fits best if its exponent is 2. Each sample takes 2 n^2 operations",
    "convolution_speedups": "Figure 2: how many times as fast as one CPU thread (median and range of the ratios)",
    "dense_speedups": "Figure 4: how many times as fast as one CPU thread (median and range of the ratios)",
    "convolution_times": "Figure 1: times of forward passes of the convolution",
    "dense_times": "Figure 3: times of forward passes of fully connected layers of n inputs and n outputs",
    "costs": costs.TITLE,
    "computations": costs.COMPUTATION_TITLE,
    "limits": costs.LIMIT_TITLE,
}


def draw(tables, out):
    """Write the figures into the folder `out`."""
    figures.draw(tables, out)


def as_markdown(tables):
    """All tables as Markdown."""
    notes = "\n".join(f"- {note}" for note in published("hegde2016").notes)
    text = f"# Hegde and Usmani 2016\n\n{measured_on(tables)}\n\n{notes}\n"
    text += titled("What the paper claims", claim_rows(tables))
    return text + "".join(titled(title, tables.get(name, [])) for name, title in TITLES.items())


def claim_rows(tables):
    """A row for each claim of the paper, contrary results first."""
    return [
        {"verdict": one.verdict, "the paper says": one.says, "place": one.place, "here": words.evidence(one)}
        for one in claims.claims(tables)
    ]


def measured_on(tables):
    """Where the tables were measured, in words."""
    if "versions" not in tables:
        return "Nothing measured yet: run `reproduce hegde2016`."
    versions = tables["versions"]
    first = next(iter(versions.values()))
    text = f"Measured on {first['processor']}, {first['blas']}: {', '.join(versions)}. {figures.remark(versions)}"
    return text + report.busy_words(tables["busy_cores"])
