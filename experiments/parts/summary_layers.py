"""What `summary --measure` measures: each pass of each layer in training steps, beside the limits of this core.

The limits are the rate of large matrix products and the rates of memory and of each cache, of reading or of copying, whichever
moves more. What others do on the machine makes them too low, so the best of several measurements counts.
"""

import sys
import time
from collections import defaultdict
from functools import partial
from math import prod
from statistics import median
from typing import NamedTuple

from gridgrad.experiments.common import core_limits, report
from gridgrad.experiments.common.problems import minibatch
from gridgrad.experiments.common.tables import counted, range_of
from gridgrad.nn import SGD, Linear, SoftmaxCrossEntropy, network_summary
from gridgrad.nn.kernels.winograd import RowWinograd, Winograd
from gridgrad.nn.layers.activations import Activation
from gridgrad.nn.layers.conv import Conv2d
from gridgrad.nn.measured import in_turns, timed
from gridgrad.nn.sequence import output_shape, shapes
from gridgrad.parallel.observe.span_observer import METHODS, SpanObserver

WARM_UP = 2  # steps before those that are timed
SECONDS = 3.0  # about how long to time steps if nobody says how many
FEWEST_STEPS = 3
LEARNING_RATE = 1e-6  # so small that the network stays as it is, and all steps do the same work
OPTIMIZER_ARRAYS = 5  # SGD reads parameters, gradients and velocities, and writes parameters and velocities
PASSES = {"forward": METHODS[:1], "backward": METHODS[1:]}  # the phases that make up a pass
PRODUCTS = {"forward": 1, "gradients": 1, "input_gradient": 1, "backward": 2}  # matrix products in a phase, all of one size
RATE_SECONDS = 0.2  # of each measurement of a limit
SHARE_OF_CACHE = 0.5  # of a cache that the arrays fill in which it is measured
TIMES_NEARER = 8  # how much larger these arrays are, at most, than the nearer cache: others may use a large cache too

LEGEND = """\
ms           median over the steps, without the layers within: a pooling in a convolution, the layers in branches
GFLOP/s      of the matrix products, as a direct convolution needs them
% of GEMM    share of the rate of a large matrix product; above 100 where Winograd's algorithm computes less than is counted
MB           bytes moved at least; the optimizer moves five arrays as large as the parameters
% of memory  share of the rate of memory, reads and writes counted; above 100 where arrays stay in the cache
% of roof    share of the speed that these two limits allow at the arithmetic intensity FLOP/byte
rest         what lies between the passes, such as checks of the minibatch"""


class PassTime(NamedTuple):
    """One pass of a layer, of the loss or of the optimizer in a training step; or the rest of the step."""

    name: str
    layer: str
    pass_: str
    seconds: float  # the median over the steps, without the passes nested in this one
    flops: int = 0  # of its matrix products on a minibatch; 0 where nothing is counted
    bytes: int = 0  # that it moves at least; the same


class StepTimes(SpanObserver):
    """steps: {number of the step: {(name, phase): seconds without the passes within}} of a serial Sequential, while open."""

    def __init__(self, net):
        super().__init__(net)
        self.steps = defaultdict(lambda: defaultdict(float))

    def timer(self):
        return time.perf_counter

    def record(self, span):
        (name, _, phase), start, stop, inner, step = span
        self.steps[step][name, phase] += stop - start - inner


def measured(nets, batch_size, steps=None):
    """(the limits of this core and the points of the layers, as `plot roofline` takes them; {net: [PassTime]} of whole steps).
    nets: {name: a serial Sequential}. steps: how many to time, by default as many as take `SECONDS`."""
    busy = report.busy_cores()
    if words := report.busy_words(busy):
        print(f"warning:{words} All rates will be too low.", file=sys.stderr)
    levels, peaks, rows, points = [bandwidths()], [core_limits.gemm_peak(RATE_SECONDS)], {}, []
    for name, net in nets.items():
        phases, wholes = step_times(net, batch_size, steps)
        rows[name] = pass_times(net, batch_size, phases, wholes)
        points += layer_points(name, net, batch_size, phases)
        peaks.append(core_limits.gemm_peak(RATE_SECONDS))
    levels.append(bandwidths())
    best = [max(pair, key=lambda level: level["bytes_per_second"]) for pair in zip(*levels)]
    about = {"versions": report.versions(), "busy_cores": busy, "rounds": len(wholes)}
    return about | {"flops_per_second": max(peaks), "bandwidths": best, "points": points}, rows


def bandwidths():
    """The rates of reading and of copying in the caches and in memory: dicts, the nearest first."""
    sizes, found = core_limits.caches(), []
    for level, cache in enumerate([*sizes, None]):
        most = TIMES_NEARER * sizes[level - 1] if cache and level else cache
        size = int(min(SHARE_OF_CACHE * cache, most)) if cache else 2 * core_limits.COPIED
        reading, copying = core_limits.read_bandwidth(size, RATE_SECONDS), core_limits.copy_bandwidth(RATE_SECONDS, size)
        about = {"name": f"L{level + 1} cache" if cache else "memory", "cache_bytes": cache, "array_bytes": size}
        found.append(about | {"bytes_per_second": max(reading, copying), "reading": reading, "copying": copying})
    return found


def step_times(net, batch_size, steps=None):
    """([{(name, phase): seconds}], [seconds]): the passes and the whole of each of some training steps on made-up data."""
    x, y = minibatch(net.input_shape, prod(net.output_shape(net.input_shape)), batch_size)
    step = timed(partial(net.learn, x, y, SoftmaxCrossEntropy(), SGD(net, LEARNING_RATE, 0.9)))
    steps = steps or max(FEWEST_STEPS, round(SECONDS / in_turns([step], WARM_UP)[-1, 0]))
    with StepTimes(net) as times:
        wholes = in_turns([step], steps)[:, 0].tolist()
    return list(times.steps.values()), wholes


def pass_times(net, batch_size, steps, wholes):
    """The PassTimes of the layers, the loss, the optimizer and the rest: together a step. steps, wholes: as of `step_times`."""

    def seconds(name, phases):
        return median(sum(step[name, phase] for phase in phases) for step in steps)

    found, size = [], net.dtype.itemsize
    for layer, before, after in shapes(net.layers, net.input_shape):
        for pass_, phases in PASSES.items():
            phases = [phase for phase in phases if (layer.name, phase) in steps[0]]
            if phases:  # there is no backward pass in front of the first parameters
                products = sum(PRODUCTS[phase] for phase in phases) * network_summary.flops(layer, after) * batch_size
                nbytes = moved(layer, before, after, batch_size, phases) * size
                found.append(PassTime(layer.name, layer.description, pass_, seconds(layer.name, phases), products, nbytes))
    outputs = batch_size * prod(net.output_shape(net.input_shape))
    others = ("loss", "forward", outputs), ("loss", "backward", outputs), ("optimizer", "step", OPTIMIZER_ARRAYS * net.size)
    found += [PassTime(name, "", pass_, seconds(name, [pass_]), 0, elements * size) for name, pass_, elements in others]
    return [*found, PassTime("rest", "", "", median(whole - sum(step.values()) for step, whole in zip(steps, wholes)))]


def layer_points(name, net, batch_size, steps):
    """The points of a roofline: dicts of each pass of each Linear and Conv2d. All passes with one product move arrays of the
    same sizes: the forward pass x, w and y, the gradient of the weights x, dy and dw, that of the input dy, w and dx. Each
    counts once. A layer that computes both gradients at once has two products."""
    found = []
    for layer, before, after in shapes(net.layers, net.input_shape):
        for phase in METHODS if isinstance(layer, Linear | Conv2d) else ():
            if (layer.name, phase) in steps[0]:
                flops = PRODUCTS[phase] * network_summary.flops(layer, after) * batch_size
                arrays = moved(layer, before, after, batch_size, ["backward" if phase == "backward" else "forward"])
                size = arrays * net.dtype.itemsize
                found.append({
                    "layer": f"{name}, {layer.name} {layer.description}", "family": f"{name}, batch {batch_size}",
                    "batch_size": batch_size, "algorithm": algorithm(layer, (batch_size, *after)), "flops": flops,
                    "bytes": size, "intensity": flops / size, "pass": phase,
                    "seconds": range_of([step[layer.name, phase] for step in steps]),
                })  # fmt: skip
    return found


def algorithm(layer, shape):
    """What computes outputs of this shape: "matrix product", "patches" or "Winograd"."""
    if isinstance(layer, Linear):
        return "matrix product"
    return "Winograd" if isinstance(layer.algorithm_of(shape), Winograd | RowWinograd) else "patches"


def moved(layer, before, after, batch_size, phases):
    """The elements that a layer moves between memory and processor at least in a pass over a minibatch. Backward: the gradient
    of the output; the input of a layer with parameters, the output of an activation; the gradients of the parameters; and the
    gradient of the input where it is computed, for which parameters are read again."""
    x, y = batch_size * prod(before), batch_size * prod(after)
    parameters = sum(p.size for p in layer.parameters)
    if layer.children:
        if "forward" in phases:
            return y + batch_size * sum(prod(output_shape(branch, before)) for branch in layer.children)
        return 0 if phases == ["gradients"] else (len(layer.children) + 1) * x
    if "forward" in phases:
        return x + parameters + y
    elements = y + parameters + (x if parameters else y if isinstance(layer, Activation) else 0)
    return elements + (x + parameters if {"input_gradient", "backward"} & set(phases) else 0)


def table(rows, limits):
    """PassTimes as a text table, the last line of which is their total. limits: as `measured` finds them."""
    peak, bandwidth = limits["flops_per_second"], limits["bandwidths"][-1]["bytes_per_second"]
    seconds, flops, nbytes = (sum(getattr(row, name) for row in rows) for name in ("seconds", "flops", "bytes"))
    lines = [("layer", "", "pass", "ms", "% of step", "GFLOP/s", "% of GEMM", "MB", "% of memory", "FLOP/byte", "% of roof")]
    for row in [*rows, PassTime("total", "", "", seconds, flops, nbytes)]:
        rate, products, memory, of_roof = row.flops / row.seconds, ("", ""), ("", ""), ("", "")
        if row.flops:
            intensity, products = row.flops / row.bytes, (f"{rate / 1e9:.1f}", f"{rate / peak:.1%}")
            of_roof = f"{intensity:.3g}", f"{rate / min(peak, bandwidth * intensity):.1%}"
        if row.bytes:
            memory = f"{row.bytes / 1e6:.2f}", f"{row.bytes / row.seconds / bandwidth:.1%}"
        times = f"{row.seconds * 1e3:.3f}", f"{row.seconds / seconds:.1%}"
        lines.append((row.name, row.layer, row.pass_, *times, *products, *memory, *of_roof))
    return network_summary.aligned(lines, "<<<>>>>>>>>")


def text(limits, rows, batch_size):
    """The machine, its limits, the tables of `measured`, and what the columns mean."""
    versions, levels = limits["versions"], limits["bandwidths"]
    rates = ", ".join(f"{level['bytes_per_second'] / 1e9:.1f} GB/s of {level['name']}" for level in reversed(levels))
    lines = [f"{versions['processor']}, {versions['blas']}, {counted(versions['threads'], 'BLAS thread')}",
             f"limits: {limits['flops_per_second'] / 1e9:.1f} GFLOP/s of a large matrix product (GEMM), {rates}"]  # fmt: skip
    for name, found in rows.items():
        lines += ["", f"{name}: training steps of {batch_size} samples, SGD with momentum", "", table(found, limits)]
    return "\n".join([*lines, "", LEGEND])
