"""What section 3 of Hegde and Usmani 2016 says, beside what `hegde2016.py` measures."""

from statistics import median

PUBLISHED_SLOPES = {"published: a CPU (Xeon E5-2670)": 6.45, "published: a GPU (GRID K520)": 0.16}
PUBLISHED_RATIO = 40
LINEAR = 0.99  # the least R^2
NEAR = 0.25  # the most by which an exponent may differ from 2
FACTOR = 2  # the most by which a ratio may differ from the published one
GROWTH = 1.05  # the least by which speedups of large sizes exceed those of small ones
BOTH, RATIO = "CPU and GPU", "of a GPU over a CPU"
TITLE = (
    f"What the paper says. It holds where R^2 is at least {LINEAR}; where the exponent of large n is 2 +- {NEAR}; where the "
    f"ratio is within a factor of {FACTOR}; where the median speedup of the largest third of the sizes is at least {GROWTH} "
    "times that of the smallest third"
)


def rows(tables):
    """A row for each claim. tables: those of `hegde2016.tables`. Whether a claim holds is None where it was not measured."""
    slopes = [row for row in tables["convolution_slopes"] if row["R2"] is not None]
    return [
        linear(slopes),
        *slopes_and_ratio([row for row in slopes if row["channels"] == 1]),
        *growths("convolution: speedup grows with the batch", tables["convolution_speedups"], "channels", "batch"),
        *quadratic(tables["dense_fits"]),
        *growths("fully connected: speedup grows with n", tables["dense_speedups"], "batch", "n"),
    ]


def claim(what, published, measured, holds=None):
    return {"claim": what, "published": published, "measured": measured, "holds": holds}


def linear(slopes):
    r2 = [row["R2"] for row in slopes]
    return claim("convolution: linear in the batch", BOTH, f"R^2 {min(r2):.4f} to {max(r2):.4f}", min(r2) >= LINEAR)


def slopes_and_ratio(slopes):
    """The slopes of greyscale images, and the ratio of CPU and GPU."""
    words = "; ".join(f"{row['device']}: {row['ms_an_image']:.3g} ms an image" for row in slopes)
    published = " and ".join(map(str, PUBLISHED_SLOPES.values()))
    yield claim("convolution: slopes of CPU and GPU", f"{published}, without a unit", words)
    yield gpu_ratio("convolution: how many times as fast the GPU is", slopes, "ms_an_image")


def gpu_ratio(what, rows, column):
    """How many times less of this column the GPU needs than one CPU thread, which is the first row."""
    gpus = [row[column] for row in rows if row["device"].startswith("GPU")]
    if not gpus:
        return claim(what, f"about {PUBLISHED_RATIO}", "no GPU here")
    ratio = rows[0][column] / gpus[0]
    holds = 1 / FACTOR <= ratio / PUBLISHED_RATIO <= FACTOR
    return claim(what, f"about {PUBLISHED_RATIO}", f"{ratio:.3g}, over one CPU thread", holds)


def quadratic(fits):
    """Exponents for each number of samples, and the ratio of the constants of one sample."""
    for batch in dict.fromkeys(row["batch"] for row in fits):
        parts = {}
        for row in fits:
            if row["batch"] == batch:
                parts.setdefault(row["n"], []).append(row["exponent"])
        words = "; ".join(f"exponent {min(found):.2f} to {max(found):.2f} ({what})" for what, found in parts.items())
        *_, large = parts.values()  # the last fit is of the large n
        holds = all(abs(exponent - 2) <= NEAR for exponent in large)
        yield claim(f"fully connected, batch {batch}: O(n^2)", BOTH, words, holds)
    vectors = [row for row in fits if (row["batch"], row["n"]) == (fits[0]["batch"], fits[-1]["n"])]
    yield gpu_ratio("fully connected: how many times as large the constant of n^2 is on the CPU", vectors, "ns_an_element")


def growths(what, speedups, layer, size):
    """One claim for each device and kind of layer. layer, size: the columns that name the kind of layer and its size."""
    for device, kind in dict.fromkeys((row["device"], row[layer]) for row in speedups):
        mine = sorted((row for row in speedups if (row["device"], row[layer]) == (device, kind)), key=lambda row: row[size])
        third = -(-len(mine) // 3)
        small, large = (median(row["speedup"] for row in some) for some in (mine[:third], mine[-third:]))
        words = f"{small:.3g} for the smallest third, {large:.3g} for the largest"
        yield claim(f"{what} ({layer}: {kind}; {device} over one)", RATIO, words, large >= GROWTH * small)
