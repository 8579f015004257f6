"""Train a stacked autoencoder on a process grid: greedy pre-training of one layer after another, then fine-tuning.

    mpiexec -n 4 gridgrad study autoencoder --dataset mnist --widths 500,250 --grid batch=2,model=2

This is the network of Marques 2016, Appendix A: 784-500-250-10 for MNIST, sigmoids, and in each autoencoder one weight matrix
both to encode and, transposed, to decode. Every grid trains the same networks on the same minibatches.
"""

import gc
import platform
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.datasets import Part, hold_out
from gridgrad.datasets.views import Reconstruction
from gridgrad.experiments.common import options as common
from gridgrad.experiments.common import report, train_setup
from gridgrad.experiments.common.options import Parser, add_data, check_writable, number, user_input, whole, whole_list
from gridgrad.nn import MSE, SGD, Dropout, Linear, Sequential, Sigmoid, SoftmaxCrossEntropy, TiedAutoencoder, cosine, device
from gridgrad.nn.device import to_device
from gridgrad.nn.sequence import Chunk
from gridgrad.parallel import READERS, N, evaluate, parallelize, train_step, use_device
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.placement.placer import Placer
from gridgrad.parallel.training import minibatch_indices, steps_per_epoch
from gridgrad.parallel.training.steps import check_finite

COUNTERS = Path("/sys/class/powercap")  # of energy: RAPL, which virtual machines have not, and many systems show to root alone
RATE = 1e-6  # a learning rate with which no network diverges, however wide it is, where steps are only timed


@dataclass
class Stack:
    """A stacked autoencoder. Its methods are collective, and call after_epoch(number of the epoch, its loss). widths: up to the
    last hidden layer. placed: puts a serial network on the grid, without memory. state: what the encoders learned, on rank
    0."""

    widths: list
    classes: int
    settings: object
    placed: object = None
    state: dict = field(default_factory=dict)

    def autoencoder(self, position, corruption=0.0):
        """The serial autoencoder of the hidden layer at a position, from 0. corruption: see the option."""
        inputs, hidden = self.widths[position : position + 2]
        layers = [Dropout(corruption), TiedAutoencoder(inputs, hidden), Sigmoid()]
        return Sequential(layers, (self.settings.seed + position) % 2**64, self.settings.dtype, (inputs,))

    def encoders(self, widths, *behind):
        """The network of the encoders of these widths and further layers, on the grid."""
        layers = [layer for inputs, hidden in pairwise(widths) for layer in (Linear(inputs, hidden), Sigmoid())]
        return self.placed(Sequential([*layers, *behind], self.settings.seed, self.settings.dtype, (widths[0],)))

    def classifier(self):
        """The network that is fine-tuned, on the grid: all encoders, and a layer with an output for each class."""
        return self.encoders(self.widths, Linear(self.widths[-1], self.classes))

    def check(self):
        """ValueError unless every network fits the grid, the plan and the shares. Takes no memory."""
        for position in range(len(self.widths) - 1) if self.settings.pretrain_epochs else ():
            net = self.placed(self.autoencoder(position))
            if position:
                EncodedReader(net, self.encoders(self.widths[: position + 1]), None)
        self.classifier()

    def pretrain(self, part, position, after_epoch):
        """Train the autoencoder at a position; returns (its plan, the mean of (y - x)^2 in each epoch)."""
        gc.collect()  # networks are in cycles of references, so that the last one may still be in memory
        net = self.placed(self.autoencoder(position, self.settings.corruption))
        if position:
            encoder = self.encoders(self.widths[: position + 1])  # those in front of it
            encoder.load_state_dict(self.state or None)
            reader = EncodedReader(net, encoder, READERS["each"](encoder, part))
        else:
            reader = READERS["each"](net, Reconstruction(part))
        # The loss is a mean over the inputs, while the learning rate is that of half of their sum.
        lr = self.settings.pretrain_lr * self.widths[position] / 2
        errors = self.train(net, reader, MSE(), lr, len(part), self.settings.pretrain_epochs, after_epoch)
        if learned := net.state_dict():
            self.state |= {f"{2 * position}.{name}": learned[f"1.{name}"] for name in ("weight", "bias")}  # of the encoder
        return net.plan, errors

    def finetune(self, part, after_epoch):
        """Train the classifier from what was learned, and free that; returns (the network, the losses of the epochs)."""
        gc.collect()
        net = self.classifier()
        if self.settings.pretrain_epochs:
            net.load_state_dict(self.state or None, strict=False)  # the last layer has learned nothing yet
            self.state.clear()
        reader, loss = READERS["each"](net, part), SoftmaxCrossEntropy()
        return net, self.train(net, reader, loss, self.settings.lr, len(part), self.settings.epochs, after_epoch)

    def train(self, net, reader, loss, lr, samples, epochs, after_epoch):
        """The mean loss of each epoch of a training in which the learning rate falls from lr to 0."""
        net.allocate()
        settings, per_epoch, means = self.settings, steps_per_epoch(samples, self.settings.batch_size), []
        optimizer = SGD(net, cosine(lr, epochs * per_epoch), settings.momentum)
        for epoch in range(epochs):
            losses = []
            for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
                indices, _ = minibatch_indices(samples, settings.batch_size, settings.seed, step)
                losses.append(train_step(net, loss, optimizer, *reader.load(indices), len(indices)))
            means.append(float(np.mean(losses)))
            after_epoch(epoch + 1, means[-1])
        check_finite(net)
        return means


def error_of(net, part, batch_size):
    """The percentage of samples in a wrong class. batch_size: as in training, a forward pass needs no further memory."""
    tested = evaluate(net, part, "cross-entropy", READERS["each"](net, part), batch_size)
    return round(100 - tested["accuracy"], 6)  # without the rounding of the difference


class EncodedReader:
    """The minibatches of a network that reproduces the outputs of an encoder on the same grid. The samples are encoded anew for
    each minibatch, so that no rank stores them all."""

    def __init__(self, net, encoder, reader):
        if net.output != encoder.output:
            raise ValueError("the outputs of the network must have the shape and the layout of those of the encoder")
        self.net, self.encoder, self.reader = net, encoder, reader
        at, plans = encoder.output.placements, {axis: {} for axis in net.grid.sizes}
        start = at, tuple(axis for axis, placement in at.items() if placement.dim == N)
        placer = Placer(net.grid, plans, encoder.output.sample_shape, net.splits, start=start)
        for axis, placement in net.input.placements.items():
            placer.move(axis, placement, "encodings")
        self.moves = Chunk(placer.layers)

    def load(self, indices):
        """(x, y) of this rank for the samples of a global minibatch; the next call overwrites both. Collective."""
        samples, _ = self.reader.load(indices)
        y = self.encoder.forward(to_device(samples), batch_size=len(indices))
        return self.moves.forward(y, self.encoder.context), y


# ----- seconds and joules


class EnergyMeter:
    """The joules of this machine's processors and memory, whoever uses them. reason: None, or why there are no counters. A
    counter starts again from 0 after some 10^5 joules, 20 minutes under load: `read` must be called more often than that."""

    def __init__(self, folder=COUNTERS):
        self.joules, self.zones, self.reason = 0.0, {}, f"this machine shows no counters (RAPL) in {folder}"
        try:
            for zone in sorted(Path(folder).glob("intel-rapl:*")):
                name = (zone / "name").read_text().strip()
                if name.startswith("package") or name == "dram":  # others are parts of these, or their sums
                    self.zones[zone] = int((zone / "max_energy_range_uj").read_text())
            self.last = {zone: int((zone / "energy_uj").read_text()) for zone in self.zones}
            self.reason = None if self.zones else self.reason
        except PermissionError:
            self.reason = f"the counters in {folder} are for root alone"
        except (OSError, ValueError) as error:
            self.reason = f"{folder} can not be read: {error}"

    def read(self):
        """The joules since the meter was made; None where they can not be measured."""
        for zone, largest in self.zones.items() if self.reason is None else ():
            now = int((zone / "energy_uj").read_text())
            rise, self.last[zone] = now - self.last[zone], now
            self.joules += (rise if rise >= 0 else rise + largest + 1) / 1e6
        return self.joules if self.reason is None else None


class Phases:
    """The seconds of the slowest rank in each phase and, with meters, the joules of all machines: `rows`. say: prints."""

    def __init__(self, grid, meter, say):
        self.grid, self.meter, self.say, self.rows, self.reason = grid, meter, say, [], "--energy was not given"
        if meter:
            self.reason = next(filter(None, grid.comm.allgather(meter.reason)), None)
            say(f"energy is not measured: {self.reason}" if self.reason else "energy: that of all work on the processors")

    @contextmanager
    def phase(self, name):
        """A `with` block around a phase. Collective at its end."""
        started, before = time.perf_counter(), self.joules()
        yield
        seconds = float(self.grid.max(np.array([time.perf_counter() - started]))[0])
        joules = None if self.reason else self.joules() - before
        self.rows.append({"phase": name, "seconds": seconds, "joules": joules})
        self.say(f"{name}: {seconds:.1f} s" + ("" if self.reason else f", {joules:.0f} J, {joules / seconds:.1f} W"))

    def joules(self):
        """Those of all machines so far, on every rank; None where they are not measured. Collective."""
        if not self.reason:
            return sum(dict(self.grid.comm.allgather((platform.node(), self.meter.read()))).values())  # a machine counts once


def made_up(inputs, classes, settings, steps):
    """As many images and labels as these steps need."""
    samples = steps * settings.batch_size
    images = np.random.default_rng(0).integers(0, 256, (samples, inputs), np.uint8)
    return Part(images, np.arange(samples) % classes, np.zeros(()), np.full((), 255.0), dtype=settings.dtype)


def options():
    parser = Parser(prog="study autoencoder", description="How well does a stacked autoencoder train, and with which energy?")
    add = parser.add_argument
    add_data(parser, "mnist", None, batch_size=64)
    add("--widths", type=whole_list, default="500,250", metavar="W,W,..", help="units of the hidden layers")
    common.add_grid(parser)
    add("--plan", help="placement of the weights along the axis model: fewest-bytes, replicate, or by kind of layer, such as "
        "conv=out,linear=in,autoencoder=hidden (default: fewest-bytes)")  # fmt: skip
    add("--shares", metavar="W,W,..", help=common.of_parallelize("shares"))
    common.add_reduction(parser)
    add("--pretrain-epochs", type=whole(0), default=10, metavar="E", help="passes over the training data for each autoencoder; "
        "0: no pre-training")  # fmt: skip
    add("--epochs", type=whole(1), default=30, metavar="E", help="passes over the training data for fine-tuning")
    add("--pretrain-lr", type=number(above=0), default=0.05, metavar="LR", help="learning rate of pre-training at its start, "
        "for the error |y - x|^2 / 2 of a sample x and its reconstruction y")  # fmt: skip
    add("--lr", type=number(above=0), default=0.1, help="learning rate of fine-tuning at its start; both fall to 0 as a cosine")
    add("--momentum", type=number(least=0, below=1), default=0.9, help="momentum of both")
    add("--corruption", type=number(least=0, below=1), default=0.0, metavar="P", help="probability with which an input of an "
        "autoencoder is set to 0 in pre-training, while the output should still be what it was")  # fmt: skip
    add("--validation", type=number(above=0, below=1), metavar="FRACTION", help="share of the training samples to hold out")
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    common.add_device(parser)
    add("--energy", action="store_true", help="measure the joules of each phase by the counters of the processors (RAPL), "
        "which count all that runs on them; says so where there are none")  # fmt: skip
    add("--report", metavar="FILE.json", help="write the settings, versions, errors, losses, seconds and joules to this file")
    return parser


def read(args):
    """(data set, Part to train on, Part held out or None). Images are rows of numbers from 0 to 1, as a sigmoid gives them."""
    data = datasets.load(args.dataset, args.data_dir, args.dtype)
    if data.loss != "cross-entropy" or data.train.x.dtype != np.uint8:
        raise ValueError(f"--dataset {data.name}: its samples are no images in classes: use one such as mnist")
    data = data.reshaped((data.features,))
    parts = {name: replace(getattr(data, name), x_mean=np.zeros(()), x_std=np.full((), 255.0)) for name in ("train", "test")}
    data = replace(data, **parts)
    train, held_out = hold_out(data.train, args.validation, args.seed) if args.validation else (data.train, None)
    train_setup.check_batch(args, len(train))
    return data, train, held_out


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    say = print if comm.rank == 0 else lambda *_: None
    np.seterr(all="ignore")  # a loss that is not finite is found and named
    with user_input():
        use_device(comm, args.device, args.tf32)
        grid = common.process_grid_of(args, comm)
    on_root(comm, lambda: args.report is not None and check_writable(args.report))
    on_root(comm, lambda: datasets.prepare(args.dataset, args.data_dir))
    with user_input():
        data, train, held_out = read(args)
        widths = [data.features, *args.widths]
        shares = common.shares_of(args.shares, grid.sizes) if args.shares else None
        placed = partial(parallelize, grid=grid, plan=args.plan, shares=shares, allocate=False, **common.reduction_of(args))
        stack = Stack(widths, data.outputs, args, placed)
        stack.check()

    held = f"{len(held_out)} held out, " if held_out else ""
    say(f"{data.name}: {len(train)} training samples, {held}{len(data.test)} to test")
    say(f"{'-'.join(map(str, [*widths, data.outputs]))} on {grid} ({grid.size} ranks)")
    phases, layers = Phases(grid, EnergyMeter() if args.energy else None, say), []

    def told(what, measure, epoch, value):
        if phases.meter:
            phases.meter.read()  # before a counter starts again
        say(f"{what}: epoch {epoch}, {measure} {value:.6f}")

    for position, hidden in enumerate(args.widths if args.pretrain_epochs else ()):
        after_epoch = partial(told, f"autoencoder {widths[position]}-{hidden}", "reconstruction error")
        with phases.phase(f"pre-training {position + 1}"):
            plan, errors = stack.pretrain(train, position, after_epoch)
        layers.append({"inputs": widths[position], "hidden": hidden, "plan": plan, "reconstruction_error": errors})
    with phases.phase("fine-tuning"):
        net, losses = stack.finetune(train, partial(told, "fine-tuning", "loss"))

    errors = {"validation_error": error_of(net, held_out, args.batch_size) if held_out else None,
              "test_error": error_of(net, data.test, args.batch_size)}  # fmt: skip
    for name, error in errors.items():
        if error is not None:
            say(f"{name.replace('_', ' ')} {error:.2f} %")
    memory = int(grid.max(np.array([report.peak_memory()]))[0])
    say(f"peak memory of a rank {memory / 2**20:.0f} MiB")
    joules = None if phases.reason else sum(row["joules"] for row in phases.rows)
    result = {
        "program": "autoencoder", "settings": vars(args), "dataset": data.name, "widths": [*widths, data.outputs],
        "P": grid.size, "grid": str(grid), "plan": net.plan, "reduction": str(net.reduction),
        "device": grid.gather(device.describe()), "training_samples": len(train), "versions": report.versions(),
        "layers": layers, "loss": losses, **errors,
        "phases": phases.rows, "energy": {"joules": joules, "not_measured_because": phases.reason}, "peak_memory": memory,
        "params_digest": report.digest(net),
    }  # fmt: skip
    if args.report:
        on_root(comm, lambda: report.write_json(args.report, result))
    grid.free()


if __name__ == "__main__":
    run(main)
