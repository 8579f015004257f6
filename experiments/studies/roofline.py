"""Draw the roofline of one core: how fast layers could be at their arithmetic intensity, and how fast they are.

    gridgrad study roofline --out results/roofline.png --json results/roofline.json

The roofs are measured: the rate of large matrix products, and the rates of memory and of each cache (reading or copying,
whichever moves more). A point is one pass of one layer. Its intensity is the operations of a direct algorithm over the bytes
that have to be moved at least, where each array is read or written once; all three passes of a layer move arrays of the same
sizes: the forward pass x, w and y, the gradient of the kernel x, dy and dw, that of the input dy, w and dx. Layers that see
images with at most 3 channels come first in a network, so nobody needs the gradient of their input.

Winograd's algorithm computes fewer operations than are counted, so its points (hollow) may lie above the roof. And arrays may
stay in a cache from one call to the next, so that points lie above the roof of memory, but not above that of their cache.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from gridgrad.experiments.common import core_limits, report
from gridgrad.experiments.common.layer_times import moved
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import table
from gridgrad.experiments.common.timing import times_in_turns
from gridgrad.experiments.plots.roofline import draw, roof
from gridgrad.experiments.plots.style import DPI, save
from gridgrad.nn import Context, Conv2d, Linear, Sequential
from gridgrad.nn.kernels.winograd import RowWinograd, Winograd
from gridgrad.nn.network_summary import flops
from gridgrad.parallel.job.run import UserError, run_launcher

IMAGE_CHANNELS = 3
SHARE_OF_CACHE = 0.5  # of a cache that the arrays fill in which it is measured
TIMES_NEARER = 8  # how much larger these arrays are, at most, than the nearer cache: others may use a large cache too
PEAK_SECONDS = 0.2  # of each measurement of the peak
PASSES = "forward", "gradients", "input_gradient"  # the methods of a layer


@dataclass(frozen=True)
class Kernel:
    """A layer to measure. make: a function that makes it. family: what the figure calls layers like it."""

    name: str
    family: str
    make: Callable
    shape: tuple
    batch_size: int


def marques(first, second, batch_size=16):
    """The two convolutions of a network of Marques 2016."""
    family, name = "5x5 convolutions of Marques' networks", f"marques-{first}-{second}"
    yield Kernel(f"{name}, first", family, partial(Conv2d, 3, first, 5), (32, 32, 3), batch_size)
    yield Kernel(f"{name}, second", family, partial(Conv2d, first, second, 5), (14, 14, first), batch_size)


def vgg(inputs, outputs, size, batch_size=4):
    """A convolution of VGG."""
    make = partial(Conv2d, inputs, outputs, 3, padding=1)
    return Kernel(f"3x3 {inputs}-{outputs} on {size}x{size}", "3x3 convolutions of VGG", make, (size, size, inputs), batch_size)


def strided(channels, batch_size=16):
    """The first convolution of the network of Hegde and Usmani 2016."""
    make = partial(Conv2d, channels, 96, 11, stride=4)
    name = f"11x11 {channels}-96 stride 4 on 224x224"
    return Kernel(name, "11x11 convolutions with stride 4", make, (224, 224, channels), batch_size)


def dense(size, batch_size):
    """A fully connected layer."""
    return Kernel(f"dense {size}-{size}", f"dense, batch {batch_size}", partial(Linear, size, size), (size,), batch_size)


KERNELS = [
    *(kernel for sizes in ((50, 500), (150, 800), (300, 1000), (500, 1500)) for kernel in marques(*sizes)),
    *(vgg(*sizes) for sizes in ((3, 64, 224), (64, 64, 224), (128, 128, 112), (256, 256, 56), (512, 512, 28), (512, 512, 14))),
    *(strided(channels) for channels in (1, 3)),
    *(dense(size, batch_size) for batch_size in (1, 64, 1024) for size in (1024, 4096)),
]


def points(kernel, rounds):
    """Measure the passes of a Kernel: a dict for each."""
    layer = kernel.make()
    net = Sequential([layer], input_shape=kernel.shape)
    net.allocate()
    random, context = np.random.default_rng(0), Context(batch_size=kernel.batch_size)
    after = net.output_shape(kernel.shape)
    x, dy = (random.standard_normal((kernel.batch_size, *shape), np.float32) for shape in (kernel.shape, after))
    actions = {"forward": lambda: layer.forward(x, context), "gradients": lambda: layer.gradients(dy, context)}
    if len(kernel.shape) == 1 or kernel.shape[2] > IMAGE_CHANNELS:
        actions["input_gradient"] = lambda: layer.input_gradient(dy, context)
    work = flops(layer, after) * kernel.batch_size
    size = moved(layer, kernel.shape, after, kernel.batch_size, ["forward"]) * net.dtype.itemsize
    about = {"layer": kernel.name, "family": kernel.family, "batch_size": kernel.batch_size, "flops": work, "bytes": size}
    about |= {"intensity": work / size, "algorithm": algorithm(layer, dy.shape)}
    return [
        about | {"pass": name, "seconds": {"median": median(seconds), "min": min(seconds), "max": max(seconds)}}
        for name, seconds in times_in_turns(actions, rounds).items()
    ]  # fmt: skip


def algorithm(layer, shape):
    """What computes outputs of this shape: "matrix product", "patches" or "Winograd"."""
    if isinstance(layer, Linear):
        return "matrix product"
    return "Winograd" if isinstance(layer.algorithm_of(shape), Winograd | RowWinograd) else "patches"


def bandwidths():
    """The rates of the caches and of memory: dicts, the nearest first."""
    sizes, found = core_limits.caches(), []
    for level, cache in enumerate(sizes, 1):
        most = TIMES_NEARER * sizes[level - 2] if level > 1 else cache
        found.append(bandwidth(f"L{level} cache", int(min(SHARE_OF_CACHE * cache, most)), cache))
    return [*found, bandwidth("memory", 2 * core_limits.COPIED, None)]


def bandwidth(name, size, cache):
    """The rates of reading and of copying arrays that are together so large. cache: the bytes of the cache, None for memory."""
    reading, copying = core_limits.read_bandwidth(size), core_limits.copy_bandwidth(size=size)
    rate = {"bytes_per_second": max(reading, copying), "reading": reading, "copying": copying}
    return {"name": name, "cache_bytes": cache, "array_bytes": size} | rate


def measure(kernels, rounds):
    """Roofs and points: what `draw` takes.

    What others do on the machine makes roofs too low, so each is the best of several measurements: the peak of one before each
    layer and one at the end, the bandwidths of one before all layers and one at the end.
    """
    busy = report.busy_cores()
    if words := report.busy_words(busy):
        print(f"warning:{words} Roofs and points will be too low.", file=sys.stderr)
    levels, peaks, found = [bandwidths()], [], []
    for kernel in progress(kernels, "layers"):
        peaks.append(core_limits.gemm_peak(PEAK_SECONDS))
        found += points(kernel, rounds)
    peaks.append(core_limits.gemm_peak(PEAK_SECONDS))
    levels.append(bandwidths())
    best = [max(pair, key=lambda level: level["bytes_per_second"]) for pair in zip(*levels)]
    roofs = {"flops_per_second": max(peaks), "bandwidths": best}
    return {"versions": report.versions(), "busy_cores": busy, "rounds": rounds} | roofs | {"points": found}


def cells(result):
    """The points as dicts of what is in the cells of the table that is printed."""
    peak, rate = result["flops_per_second"], result["bandwidths"][-1]["bytes_per_second"]
    for p in result["points"]:
        speed = p["flops"] / p["seconds"]["median"]
        most = roof(p["intensity"], peak, rate)
        yield {
            "layer": p["layer"], "batch": p["batch_size"], "pass": p["pass"], "algorithm": p["algorithm"],
            "FLOP/byte": f"{p['intensity']:.3g}", "ms": f"{p['seconds']['median'] * 1e3:.3f}", "GFLOP/s": f"{speed / 1e9:.1f}",
            "% of peak": f"{100 * speed / peak:.0f}", "% of the roof of memory": f"{100 * speed / most:.0f}",
        }  # fmt: skip


def options():
    parser = Parser(prog="study roofline", description="How close do the layers of networks come to what one core can do?")
    parser.add_argument("--rounds", type=whole(1), default=7, help="how often each pass of a layer is timed; medians count")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only layers that have TEXT in their name ('%(default)s': all)"
    )
    parser.add_argument("--out", default="results/roofline.png", metavar="FILE", help="the figure (.png, .pdf or .svg)")
    parser.add_argument("--json", metavar="FILE", help="the numbers (default: beside the figure, as .json)")
    return parser


def main():
    args = options().parse_args()
    numbers = args.json or str(Path(args.out).with_suffix(".json"))
    kernels = [kernel for kernel in KERNELS if args.only in kernel.name]
    if not kernels:
        raise UserError(f"--only: no layer has '{args.only}' in its name; they are called such as '{KERNELS[0].name}'")
    if report.blas_threads() > 1:
        raise UserError(f"BLAS has {report.blas_threads()} threads, and this is about one core: set OMP_NUM_THREADS=1")
    with user_input():
        if Path(numbers) == Path(args.out):
            raise ValueError(f"--out {args.out}: the figure and the numbers need names of their own: give --json another")
        check_writable(args.out)
        check_writable(numbers)
    result = measure(kernels, args.rounds)
    print(table(list(cells(result))))
    with user_input():
        save(draw(result), args.out, DPI)
    report.write_json(numbers, result)
    print(f"figure written to {args.out}, numbers to {numbers}")


if __name__ == "__main__":
    run_launcher(main)
