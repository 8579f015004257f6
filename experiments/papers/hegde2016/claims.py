"""What Hegde and Usmani 2016 claim, and what is found of it here: sections 1 to 3.

Section 5 is in `claims_5.py`, what results of other programs decide in `kept.py`. Claims on a GPU are not
decided where none was measured; what several threads of a CPU gain over one then stands beside them, and the reason says so.
"""

from statistics import median

from gridgrad.experiments.papers.cited import RATIO, published
from gridgrad.experiments.papers.claims import FOLLOWS, MEASURED, contradictory, found, judged, undecided
from gridgrad.experiments.papers.hegde2016 import claims_5
from gridgrad.experiments.papers.hegde2016 import kept as other_programs
from gridgrad.experiments.papers.hegde2016.kept import ABOUT
from gridgrad.experiments.papers.hegde2016.times import KERNELS, OUTPUTS
from gridgrad.experiments.papers.items import KEPT
from gridgrad.experiments.papers.other_results import kept
from gridgrad.nn import network_summary
from gridgrad.nn.zoo import network_names

NEAR = 0.25  # the most by which an exponent may differ from that of the paper, or a time from one that it is to equal
FACTOR = 2  # the most by which a ratio may differ from that of the paper
GROWTH = 1.05  # the least by which large sizes are better than small ones
PERCENT = f"{100 * (GROWTH - 1):.0f} %"
MOST = 0.75  # the share of the cases that are almost always
VALUES = published("hegde2016").values
NO_GPU = "no GPU was at hand"
NOTHING = "nothing was measured: `gridgrad reproduce hegde2016` does it"


def claims(tables):
    """All Claims of the paper. tables: those of `hegde2016.tables`."""
    known = published("hegde2016")
    return judged(known, from_the_text() | section_3(tables) | claims_5.findings(tables) | other_programs.findings())


def from_the_text():
    """The claims of sections 1 to 3 that the paper's own numbers, or counting, decide."""
    hours = VALUES["vgg_cores"].value * VALUES["vgg_hours"].value
    parts, unrolled = VALUES["parts"].value, VALUES["unrolled"].value
    ratio = RATIO.value(VALUES["slope_cpu"], VALUES["slope_gpu"])
    network = network_summary.rows(network_names.build("vgg16", (224, 224, 3), 1000), (224, 224, 3))
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
            "more than half would do. They are counted, not timed", FOLLOWS,
        ),
        "im2col": found(
            parts == OUTPUTS**2, f"(224 - 11)/4 + 1, rounded down, is {OUTPUTS} in each direction: {OUTPUTS**2:,} parts, and a "
            f"matrix of {OUTPUTS**2:,} x {unrolled}", f"{parts} are the parts of one row of the image", FOLLOWS,
        ),
        "matrix_of_kernels": contradictory(
            f"{VALUES['matrix_of_kernels'].value} and {VALUES['product_of_kernels'].value}",
            f"{KERNELS} kernels of {unrolled} numbers make a matrix of {unrolled} x {KERNELS}",
        ),
        "products_dominate": found(
            2 * unrolled * KERNELS > unrolled,
            f"for each of the parts the product takes {2 * unrolled * KERNELS:,} multiplications and additions, and unrolling "
            f"copies {unrolled} numbers", "counted, not timed", FOLLOWS,
        ),
        "ratio_of_slopes": found(
            abs(ratio / VALUES["ratio_convolution"].value - 1) < 0.05, f"6.45/0.16 = {ratio:.1f}",
            "up to 5 % off counts as equal", FOLLOWS,
        ),
        "captions": contradictory(
            "a \"matrix-vector multiplication\" in section 3.2.2 and below Figure 4, a \"matrix-matrix multiplication\" below "
            "Figure 3",
            "the order of n^2 that the text has is that of a vector; two matrices of n x n take n^3 multiplications",
        ),
    }  # fmt: skip


def section_3(tables):
    """The claims that the times of layers decide."""
    times = tables.get("convolution_times", [])
    grey = [row for row in tables["convolution_slopes"] if row["R2"] is not None and row["channels"] == 1]
    fits = tables.get("dense_fits", [])
    vectors = [row for row in fits if (row["batch"], row["n"]) == (fits[0]["batch"], fits[-1]["n"])]
    speedups = {layer: tables.get(f"{layer}_speedups", []) for layer in ("convolution", "dense")}
    processors = dict.fromkeys(one["processor"] for one in tables.get("versions", {}).values())
    return {
        "linear_cpu": linear([row for row in times if not is_gpu(row)], NOTHING),
        "linear_gpu": linear([row for row in times if is_gpu(row)], NO_GPU),
        "slopes": slopes_here(grey),
        "gpu_convolution": gpu_ratio(grey, "ms_an_image", VALUES["ratio_convolution"]),
        "gpu_dense": gpu_ratio(vectors, "ns_an_element", VALUES["ratio_dense"]),
        "batch_speedup": growth(speedups["convolution"], "channels", "batch"),
        "size_speedup": growth(speedups["dense"], "batch", "n"),
        "larger_batches": larger_batches(times),
        "quadratic": quadratic(vectors),
        "cores": cores(speedups["convolution"] + speedups["dense"], ", ".join(processors)),
    }


def is_gpu(row):
    """Whether a row of a table is of a GPU."""
    return row["device"].startswith("GPU")


def linear(times, missing):
    """Whether an image takes as long in large batches as in small ones, on all devices and for all kinds of images."""
    if not times:
        return undecided(missing)
    ratios = [1 / gain for gain in gains(times).values()]
    words = claims_5.span(ratios, "{:.2f}".format)
    return found(
        all(1 / (1 + NEAR) <= ratio <= 1 + NEAR for ratio in ratios),
        f"an image of the largest third of the batches takes {words} times as long as one of the smallest third",
        f"up to a factor of {1 + NEAR:g} counts as linear",
    )


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
    """{device: {a value of the column `kind`: its rows}}."""
    found = {}
    for row in rows:
        found.setdefault(row["device"], {}).setdefault(row[kind], []).append(row)
    return found


def growth(speedups, kind, size):
    """Whether speed-ups of GPUs over a CPU thread grow with a size; those of CPU threads stand beside it if none was measured.

    kind, size: the columns that name the kind of layer and its size.
    """
    gpus = [row for row in speedups if is_gpu(row)]
    if not speedups:
        return undecided(f"{NO_GPU}, and there were no speed-ups of several threads")
    words, grown = [], []
    for device, kinds in of_each_device(gpus or speedups, kind).items():
        ends = {value: thirds(rows, size, "speedup") for value, rows in kinds.items()}
        grown += [large >= GROWTH * small for small, large in ends.values()]
        listed = ", ".join(f"{small:.3g} to {large:.3g} ({kind} {value})" for value, (small, large) in ends.items())
        words.append(f"{device}, small to large: {listed}")
    if gpus:
        return found(all(grown), "; ".join(words), f"medians of thirds of the sizes; by {PERCENT} they have to grow")
    how = f"grows by {PERCENT}" if all(grown) else f"does not grow by {PERCENT}"
    return undecided(f"{NO_GPU}; what threads gain over one {how} with the size", "; ".join(words), MEASURED)


def gains(times):
    """{device and kind of image: the images a second of the largest third of the batches over those of the smallest third}."""
    found = {}
    for device, kinds in of_each_device(times, "channels").items():
        for channels, rows in kinds.items():
            small, large = thirds(rows, "batch", "ms_an_image")
            found[f"{device}, channels {channels}"] = small / large
    return found


def larger_batches(times):
    """Whether a GPU takes less time for an image in large batches, for most kinds of images; on a CPU that decides nothing."""
    if not times:
        return undecided(NOTHING)
    gpus = [row for row in times if is_gpu(row)]
    gained = gains(gpus or times)
    words = "images a second of the largest third of the batches over those of the smallest third: " + "; ".join(
        f"{name}: {gain:.2f}" for name, gain in gained.items()
    )
    better = sum(gain >= GROWTH for gain in gained.values())
    cases = f"by {PERCENT} it is better in {better} of {len(gained)} cases"
    if not gpus:
        return undecided(
            f"the advice follows from ratios of a GPU over a CPU, and {NO_GPU}. On CPU threads {cases}", words, MEASURED
        )
    return found(
        better >= MOST * len(gained), words,
        f"{cases}; it has to be in {100 * MOST:.0f} %. Steps with larger batches are also fewer, which this does not count",
    )  # fmt: skip


def quadratic(fits):
    """Whether exponents are about 2 on CPU and GPU. fits: those of one sample and of large n. A larger one decides nothing."""
    if not fits:
        return undecided(NOTHING)
    squares, exponents = VALUES["exponent_n"].value, [row["exponent"] for row in fits]
    words = f"exponent {claims_5.span(exponents, '{:.2f}'.format)} (one sample, {fits[0]['n']}), where {squares - NEAR} to "
    words += f"{squares + NEAR} counts as {squares}"
    if max(exponents) > squares + NEAR:
        return undecided(
            "matrices of 4 to 64 MiB leave one cache after the other, which raises the exponent over these sizes and not the "
            "order; larger n would decide", words, MEASURED,
        )  # fmt: skip
    holds = min(exponents) >= squares - NEAR
    if holds and not any(map(is_gpu, fits)):
        return undecided(f"{NO_GPU}; on CPU threads it holds", words, MEASURED)
    return found(holds, words)


def cores(speedups, processor):
    """Whether q cores take 1/q of the time: two ranks that share the images in training, and threads that share a layer.

    processor: that of the threads.
    """
    threads = {}
    for row in speedups:
        if not is_gpu(row):
            kind = "convolution" if "channels" in row else f"fully connected, batch {row['batch']}"
            threads.setdefault(f"{row['device']}, {kind}", []).append(int(row["device"].split()[0]) / row["speedup"])
    threads = {kind: median(some) for kind, some in threads.items()}
    listed = ", ".join(f"{time:.2f} ({kind})" for kind, time in threads.items())
    layers = f"in a layer whose products threads share, medians over its sizes, {listed}; {processor}" if threads else ""
    ranks, why = kept(other_programs.file("bench"), other_programs.over_a_half)
    start = "time over 1/q of that of one core: "
    if not ranks:
        return undecided(f"{why}, and threads that share a layer are not all of training", layers and start + layers, MEASURED)
    ends, words = ranks
    times = [*ends, *threads.values()]
    numbers = f"{start}in training steps of two ranks that share the images {words}" + f". The same {layers}" * bool(layers)
    reason = f"in training only q = 2 was measured; up to {ABOUT} counts as about 1/q"
    if min(times) <= ABOUT < max(times):
        return undecided(f"{reason}, which some of these times reach and others do not", numbers, KEPT)
    return found(max(times) <= ABOUT, numbers, reason, KEPT)
