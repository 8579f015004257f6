"""What Hegde and Usmani 2016 claim, and what is found of it here: sections 1 to 3.

Section 5 is in `hegde2016_claims_5.py`, what results of other programs decide in `hegde2016_kept.py`. Where the paper speaks of
a GPU over a CPU and none was measured, several threads of a CPU over one stand for it, and the finding says so.
"""

from statistics import median

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers import hegde2016_claims_5, hegde2016_kept
from gridgrad.experiments.papers.cited import RATIO, published
from gridgrad.experiments.papers.claims import FOLLOWS, MEASURED, found, judged, undecided
from gridgrad.experiments.papers.hegde2016_times import KERNELS, OUTPUTS
from gridgrad.nn import network_names, summary

LINEAR = 0.99  # the least R^2
NEAR = 0.25  # the most by which an exponent may differ from that of the paper
FACTOR = 2  # the most by which a ratio may differ from that of the paper
GROWTH = 1.05  # the least by which large sizes are better than small ones
ABOUT = 1.1  # the most by which a time may exceed what it is said to be about
MOST = 0.75  # the share of the cases that are almost always
VALUES = published("hegde2016").values
NO_GPU = "no GPU was at hand"
NOTHING = "nothing was measured: `gridgrad reproduce hegde2016` does it"


def claims(tables):
    """All Claims of the paper. tables: those of `hegde2016.tables`."""
    known = published("hegde2016")
    return judged(known, from_the_text() | section_3(tables) | hegde2016_claims_5.findings(tables) | hegde2016_kept.findings())


def from_the_text():
    """The claims of sections 1 to 3 that the paper's own numbers, or counting, decide."""
    hours = VALUES["vgg_cores"].value * VALUES["vgg_hours"].value
    parts, unrolled = VALUES["parts"].value, VALUES["unrolled"].value
    ratio = RATIO.value(VALUES["slope_cpu"], VALUES["slope_gpu"])
    network = summary.rows(network_names.build("vgg16", (224, 224, 3), 1000), (224, 224, 3))
    convolutions = sum(row.flops for row in network if row.layer.startswith("Conv2d"))
    share = convolutions / sum(row.flops for row in network)
    return {
        "vgg_hours": undecided(
            "VGGNet was not trained to its end here. The introduction speaks of days on one core, the conclusion of weeks for "
            "some networks", f"{VALUES['vgg_hours'].value} hours on {VALUES['vgg_cores'].value} cores are {hours / 24:.1f} "
            "days on one, if q cores take 1/q of the time",
        ),
        "convolution_matters": found(
            share > 0.5, f"{100 * share:.0f} % of the multiplications and additions of VGG16 are in its convolutions",
            "counted, not timed", FOLLOWS,
        ),
        "im2col": found(
            parts == OUTPUTS**2, f"(224 - 11)/4 + 1, rounded down, is {OUTPUTS} in each direction: {OUTPUTS**2:,} parts, and a "
            f"matrix of {OUTPUTS**2:,} x {unrolled}", f"{parts} are the parts of one row of the image", FOLLOWS,
        ),
        "matrix_of_kernels": found(
            VALUES["matrix_of_kernels"].value == f"{unrolled} x {KERNELS}",
            f"{KERNELS} kernels of {unrolled} numbers make a matrix of {unrolled} x {KERNELS}",
            "the next sentence of the paper has this", FOLLOWS,
        ),
        "products_dominate": found(
            2 * unrolled * KERNELS > unrolled,
            f"for each of the parts the product takes {2 * unrolled * KERNELS:,} multiplications and additions, and unrolling "
            f"copies {unrolled} numbers", "counted, not timed", FOLLOWS,
        ),
        "ratio_of_slopes": found(
            abs(ratio / VALUES["ratio_convolution"].value - 1) < 0.05, f"6.45/0.16 = {ratio:.1f}", "", FOLLOWS,
        ),
        "captions": found(
            False, "n numbers for each of n outputs are n^2 products for a vector, and n^3 for a matrix of n x n",
            "the text, and the caption of Figure 4, have a matrix and a vector, for which n^2 is right; Figure 4 is said to be "
            "a function of the batch size and of the matrix size at once", FOLLOWS,
        ),
    }  # fmt: skip


def section_3(tables):
    """The claims that the times of layers decide."""
    slopes = [row for row in tables["convolution_slopes"] if row["R2"] is not None]
    gpus = [row for row in slopes if is_gpu(row)]
    grey = [row for row in slopes if row["channels"] == 1]
    fits = tables.get("dense_fits", [])
    vectors = [row for row in fits if (row["batch"], row["n"]) == (fits[0]["batch"], fits[-1]["n"])]
    return {
        "linear_cpu": linear([row for row in slopes if not is_gpu(row)], NOTHING),
        "linear_gpu": linear(gpus, NO_GPU),
        "slopes": slopes_here(grey),
        "gpu_convolution": gpu_ratio(grey, "ms_an_image", VALUES["ratio_convolution"]),
        "gpu_dense": gpu_ratio(vectors, "ns_an_element", VALUES["ratio_dense"]),
        "batch_speedup": growth(tables.get("convolution_speedups", []), "channels", "batch"),
        "size_speedup": growth(tables.get("dense_speedups", []), "batch", "n"),
        "larger_batches": larger_batches(tables.get("convolution_times", [])),
        "quadratic": quadratic(fits),
        "cores": cores(tables.get("convolution_speedups", []) + tables.get("dense_speedups", [])),
    }


def is_gpu(row):
    """Whether a row of a table is of a GPU."""
    return row["device"].startswith("GPU")


def linear(slopes, missing):
    """Whether all lines fit."""
    if not slopes:
        return undecided(missing)
    r2 = [row["R2"] for row in slopes]
    words = f"R^2 of the lines through the medians: {min(r2):.4f} to {max(r2):.4f}"
    return found(min(r2) >= LINEAR, words, f"it has to be at least {LINEAR}")


def slopes_here(slopes):
    """The slopes of greyscale images."""
    reason = "the paper names no unit, and its processors are not here"
    words = "; ".join(f"{row['device']}: {row['ms_an_image']:.3g} ms an image" for row in slopes)
    return undecided(reason, words, MEASURED) if slopes else undecided(f"{reason}; {NOTHING}")


def gpu_ratio(rows, column, cited):
    """How many times less of this column the GPU needs than one CPU thread, which is the first row. cited: of the paper."""
    gpus = [row[column] for row in rows if is_gpu(row)]
    if not gpus:
        return undecided(NO_GPU)
    ratio = rows[0][column] / gpus[0]
    holds = 1 / FACTOR <= ratio / cited.value <= FACTOR
    return found(holds, f"{ratio:.3g} times, over one CPU thread", f"it has to be within a factor of {FACTOR}")


def thirds(rows, size, column):
    """The medians of a column of the third of the rows with the smallest and of that with the largest sizes."""
    ordered = sorted(rows, key=lambda row: row[size])
    third = -(-len(ordered) // 3)
    return [median(row[column] for row in some) for some in (ordered[:third], ordered[-third:])]


def of_each_device(rows, kind):
    """{(device, a value of the column `kind`): its rows}."""
    found = {}
    for row in rows:
        found.setdefault((row["device"], row[kind]), []).append(row)
    return found


def growth(speedups, kind, size):
    """Whether speed-ups grow with a size: of GPUs, if any was measured, else of CPU threads over one.

    kind, size: the columns that name the kind of layer and its size.
    """
    gpus = [row for row in speedups if is_gpu(row)]
    if not speedups:
        return undecided(f"{NO_GPU}, and there were no speed-ups of several threads")
    ends = {name: thirds(rows, size, "speedup") for name, rows in of_each_device(gpus or speedups, kind).items()}
    words = "; ".join(
        f"{device}, {kind} {value}: {small:.3g} for the smallest third, {large:.3g} for the largest"
        for (device, value), (small, large) in ends.items()
    )
    reason = "" if gpus else "this is the speed-up of threads over one: what a GPU gains was not measured, as none was at hand"
    return found(all(large >= GROWTH * small for small, large in ends.values()), words, reason)


def larger_batches(times):
    """Whether an image takes less time in large batches, on most devices and for most kinds of images."""
    if not times:
        return undecided(NOTHING)
    ends = {name: thirds(rows, "batch", "ms_an_image") for name, rows in of_each_device(times, "channels").items()}
    gains = {name: small / large for name, (small, large) in ends.items()}
    words = "; ".join(f"{device}, channels {value}: {gain:.2f}" for (device, value), gain in gains.items())
    better = sum(gain >= GROWTH for gain in gains.values())
    return found(
        better >= MOST * len(gains),
        f"images a second of the largest third of the batches over those of the smallest third: {words}",
        f"it is better by {100 * (GROWTH - 1):.0f} % in {better} of {len(gains)} cases. Steps with larger batches are also "
        "fewer, which this does not count",
    )


def quadratic(fits):
    """Whether the exponents of large matrices are about 2, for the fewest samples that were measured, which is one."""
    if not fits:
        return undecided(NOTHING)
    large, squares = fits[-1]["n"], VALUES["exponent_n"].value  # the last fit is of the large n
    found_of = {}
    for row in fits:
        found_of.setdefault((row["batch"], row["n"]), []).append(row["exponent"])
    words = "; ".join(f"exponent {span(some)} ({counted(batch, 'sample')}, {n})" for (batch, n), some in found_of.items())
    holds = all(abs(exponent - squares) <= NEAR for exponent in found_of[fits[0]["batch"], large])
    return found(
        holds, words, f"for one sample and {large} it has to be within {NEAR} of {squares}. Small matrices stay in a cache, "
        "and larger ones are read from slower and slower memory, so that the exponent is larger"
        + f"; {NO_GPU}" * (not any(map(is_gpu, fits))),
    )  # fmt: skip


def span(numbers):
    """The range of some numbers in words, or the one number that they round to."""
    return " to ".join(dict.fromkeys(f"{number:.2f}" for number in (min(numbers), max(numbers))))


def cores(speedups):
    """Whether layers take 1/q of the time with q threads."""
    threads = [row for row in speedups if not is_gpu(row)]
    if not threads:
        return undecided(f"{NOTHING}, on more than one core")
    times = {}
    for row in threads:
        kind = (
            f"{row['device']}, convolution" if "channels" in row else f"{row['device']}, fully connected, batch {row['batch']}"
        )
        times.setdefault(kind, []).append(int(row["device"].split()[0]) / row["speedup"])
    times = {kind: median(some) for kind, some in times.items()}
    words = "; ".join(f"{kind}: {time:.2f}" for kind, time in times.items())
    return found(
        max(times.values()) <= ABOUT, f"times of one core, divided by q, that the layers take, medians over their sizes: "
        f"{words}",
        "the threads of the BLAS library share only the products of matrices. Two ranks, each with half of the images, come "
        "nearer: results/bench.md",
    )  # fmt: skip
