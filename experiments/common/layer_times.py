"""How long each layer takes in the passes of a training step, and how close that is to the limits of the machine."""

import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from math import prod
from statistics import median

from gridgrad.experiments.common import report
from gridgrad.experiments.common.core_limits import copy_bandwidth, gemm_peak
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.nn import SGD, SoftmaxCrossEntropy, network_summary
from gridgrad.nn.kernels.processor import processor
from gridgrad.nn.layers.activations import Activation
from gridgrad.nn.measured import timed
from gridgrad.nn.sequence import output_shape, shapes
from gridgrad.parallel.observe.span_observer import METHODS, SpanObserver

WARM_UP = 2  # steps before those that are timed
SECONDS = 3.0  # about how long to time steps if nobody says how many
FEWEST_STEPS = 3
LEARNING_RATE = 1e-6  # so small that the network stays as it is, and all steps do the same work
OPTIMIZER_ARRAYS = 5  # SGD reads parameters, gradients and velocities, and writes parameters and velocities
PASSES = {"forward": METHODS[:1], "backward": METHODS[1:]}  # the phases that make up a pass
PRODUCTS = {"forward": 1, "gradients": 1, "input_gradient": 1, "backward": 2}  # matrix products in a phase, all of one size

LEGEND = """\
ms          median over the steps, without the layers within: a pooling in a convolution, the layers in branches
% of step   share of the total
GFLOP/s     multiplications and additions of the matrix products, as a direct convolution needs them: the backward pass has
            twice those of the forward pass, or once where nobody needs the gradient of the input
% of GEMM   share of the rate of a large matrix product; above 100 where Winograd's algorithm computes less than is counted
MB          bytes moved at least. Forward: input, parameters and output. Backward: the gradient of the output; the input of a
            layer with parameters, the output of an activation; the gradients of the parameters; and where it is computed,
            the gradient of the input, for which parameters are read again. A branching layer moves what it joins or sums and
            the result; the loss, its input or the gradient of it; the optimizer, five arrays as large as the parameters.
% of copy   share of the rate of copying large arrays, reads and writes counted; above 100 where arrays stay in the cache
rest        what lies between the passes, such as checks of the minibatch"""


@dataclass
class PassTime:
    """One pass of a layer, of the loss or of the optimizer in a training step; or the rest of the step.

    name: of the layer, or what it is otherwise. layer: in a few words. pass_: "forward", "backward", "step" or "".
    seconds: the median over the steps, without the passes nested in this one. flops: the operations of its matrix products
    on a minibatch. bytes: those that it moves at least, see `moved`. Both are 0 where nothing is counted.
    """

    name: str
    layer: str
    pass_: str
    seconds: float
    flops: int = 0
    bytes: int = 0


class StepTimes(SpanObserver):
    """Adds up, while it is open, the seconds of each pass in each training step, without those of the passes within it.

    net: a serial Sequential. steps: {number of the step: {(name, phase): seconds}}.
    """

    def __init__(self, net):
        super().__init__(net)
        self.steps = defaultdict(lambda: defaultdict(float))

    def timer(self):
        return time.perf_counter

    def record(self, span):
        (name, _, phase), start, stop, inner, step = span
        self.steps[step][name, phase] += stop - start - inner


def measured_table(net, batch_size, steps=None):
    """The machine, its limits, the rows that `measure` finds as a table, and what the columns mean: a text."""
    peak, bandwidth = gemm_peak(), copy_bandwidth()
    rows, steps = measure(net, batch_size, steps)
    threads = report.blas_threads()
    return "\n".join([
        f"{processor().title}, {report.blas()}, {threads} BLAS thread{'s' if threads > 1 else ''}",
        f"limits: {peak / 1e9:.1f} GFLOP/s of a large matrix product (GEMM), {bandwidth / 1e9:.1f} GB/s of a copy in memory",
        f"medians of {steps} training steps of {batch_size} samples, SGD with momentum",
        "", table(rows, peak, bandwidth), "", LEGEND,
    ])  # fmt: skip


def measure(net, batch_size, steps=None):
    """Time training steps of a serial network on made-up data. Returns (Rows, number of steps).

    There are Rows for each pass of each layer, for the loss, for the optimizer, and for the rest of the step; together they
    are the step. steps: how many to time, by default as many as take about `SECONDS`, but at least `FEWEST_STEPS`.
    """
    x, y = minibatch(net.input_shape, prod(net.output_shape(net.input_shape)), batch_size)
    step = timed(partial(net.learn, x, y, SoftmaxCrossEntropy(), SGD(net, LEARNING_RATE, 0.9)))
    seconds = [step() for _ in range(WARM_UP)][-1]
    steps = steps or max(FEWEST_STEPS, round(SECONDS / seconds))
    with StepTimes(net) as times:
        wholes = [step() for _ in range(steps)]
    return rows(net, batch_size, list(times.steps.values()), wholes), steps


def rows(net, batch_size, steps, wholes):
    """The Rows of a network. steps: {(name, phase): seconds} for each step. wholes: the seconds of each whole step."""

    def seconds(name, phases):
        return median(sum(step[name, phase] for phase in phases) for step in steps)

    found, size = [], net.dtype.itemsize
    for layer, before, after in shapes(net.layers, net.input_shape):
        for pass_, phases in PASSES.items():
            phases = [phase for phase in phases if (layer.name, phase) in steps[0]]
            if phases:  # there is no backward pass in front of the first parameters
                products = sum(PRODUCTS[phase] for phase in phases) * network_summary.flops(layer, after) * batch_size
                elements = moved(layer, before, after, batch_size, phases)
                row = PassTime(layer.name, layer.description, pass_, seconds(layer.name, phases), products, elements * size)
                found.append(row)
    outputs = batch_size * prod(net.output_shape(net.input_shape))
    for name, pass_, elements in (
        ("loss", "forward", outputs),
        ("loss", "backward", outputs),
        ("optimizer", "step", OPTIMIZER_ARRAYS * net.size),
    ):
        found.append(PassTime(name, "", pass_, seconds(name, [pass_]), 0, elements * size))
    rest = median(whole - sum(step.values()) for step, whole in zip(steps, wholes))
    return [*found, PassTime("rest", "", "", rest)]


def moved(layer, before, after, batch_size, phases):
    """How many elements of arrays a layer has to move between memory and processor at least, in one pass over a minibatch.

    before, after: the shapes of an input and an output sample. phases: those of the pass, see `nn/observer.py`. Each of these
    arrays counts once. In the forward pass they are the input, the parameters and the output. In the backward pass they are

    - the gradient of the output,
    - the input, if the layer has parameters, whose gradients depend on it; the output, if the layer is an activation,
    - the gradients of the parameters,
    - unless nobody needs it, the gradient of the input, and the parameters, with which it is computed.

    A branching layer itself only joins the outputs of its branches in the forward pass, and adds up the gradients of their
    inputs in the backward pass: what it joins or adds, and the result. What else layers store for the backward pass, such as
    the bits of a max-pooling, is left out.
    """
    x, y = batch_size * prod(before), batch_size * prod(after)
    parameters = sum(p.size for p in layer.parameters)
    forward = "forward" in phases
    if layer.children:
        joined = batch_size * sum(prod(output_shape(branch, before)) for branch in layer.children)
        if forward:
            return joined + y
        return 0 if phases == ["gradients"] else (len(layer.children) + 1) * x
    if forward:
        return x + parameters + y
    elements = y + parameters
    if parameters:
        elements += x
    elif isinstance(layer, Activation):
        elements += y
    if "input_gradient" in phases or "backward" in phases:
        elements += x + parameters
    return elements


def table(rows, peak, bandwidth):
    """Rows as a text table, the last line of which is their total. peak: the rate of matrix products that is 100 %, in flop/s.
    bandwidth: that of moving memory, in bytes/s.
    """
    seconds, flops, moved_bytes = (sum(getattr(row, name) for row in rows) for name in ("seconds", "flops", "bytes"))
    lines = [("layer", "", "pass", "ms", "% of step", "GFLOP/s", "% of GEMM", "MB", "% of copy")]
    for row in [*rows, PassTime("total", "", "", seconds, flops, moved_bytes)]:
        rate = row.flops / row.seconds
        products = (f"{rate / 1e9:.1f}", f"{rate / peak:.1%}") if row.flops else ("", "")
        memory = (f"{row.bytes / 1e6:.2f}", f"{row.bytes / row.seconds / bandwidth:.1%}") if row.bytes else ("", "")
        time_cells = f"{row.seconds * 1e3:.3f}", f"{row.seconds / seconds:.1%}"
        lines.append((row.name, row.layer, row.pass_, *time_cells, *products, *memory))
    return network_summary.aligned(lines, "<<<>>>>>>")
