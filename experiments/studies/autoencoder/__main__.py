"""Train a stacked autoencoder on a process grid: greedy pre-training of one layer after another, then fine-tuning.

    gridgrad study autoencoder --dataset mnist --widths 500,250
    mpiexec -n 4 gridgrad study autoencoder --dataset mnist --widths 500,250 --grid batch=2,model=2

This is the network of Marques 2016, Appendix A: 784-500-250-10 for MNIST, sigmoids, and in each autoencoder one weight matrix
both to encode and, transposed, to decode. Every grid trains the same networks on the same minibatches.
"""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.datasets import hold_out
from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import (
    Parser,
    add_device,
    add_grid,
    add_reduction,
    check_writable,
    number,
    of_parallelize,
    process_grid_of,
    reduction_of,
    shares_of,
    user_input,
    whole,
    whole_list,
)
from gridgrad.experiments.common.tables import table
from gridgrad.experiments.studies.autoencoder import networks
from gridgrad.experiments.studies.autoencoder.energy import EnergyMeter
from gridgrad.experiments.studies.autoencoder.largest_width import largest_width
from gridgrad.experiments.studies.autoencoder.phases import Phases
from gridgrad.experiments.studies.autoencoder.training import check, error_of, finetune, pretrain
from gridgrad.parallel import parallelize, use_device
from gridgrad.parallel.calibration.this_machine import memory_of_machine
from gridgrad.parallel.job.run import UserError, on_root, run


def options():
    parser = Parser(
        prog="study autoencoder",
        description="How well does a stacked autoencoder train, with which energy, and how wide may it be?",
    )
    add = parser.add_argument
    add("--dataset", default="mnist", metavar="NAME", help="a data set of images, see train --help")
    add("--data-dir", metavar="DIR", help="see train --help")
    add("--widths", type=whole_list, default="500,250", metavar="W,W,..", help="units of the hidden layers")
    add_grid(parser)
    add("--plan", help="placement of the weights along the axis model: fewest-bytes, replicate, or by kind of layer, such as "
        "conv=out,linear=in,autoencoder=hidden (default: fewest-bytes)")  # fmt: skip
    add("--shares", metavar="W,W,..", help=of_parallelize("shares"))
    add_reduction(parser)
    add("--pretrain-epochs", type=whole(0), default=10, metavar="E", help="passes over the training data for each autoencoder; "
        "0: no pre-training")  # fmt: skip
    add("--epochs", type=whole(1), default=30, metavar="E", help="passes over the training data for fine-tuning")
    add("--batch-size", type=whole(1), default=64, metavar="B", help="samples in the global minibatch")
    add("--pretrain-lr", type=number(above=0), default=0.05, metavar="LR", help="learning rate of pre-training at its start, "
        "for the error |y - x|^2 / 2 of a sample x and its reconstruction y")  # fmt: skip
    add("--lr", type=number(above=0), default=0.1, help="learning rate of fine-tuning at its start; both fall to 0 as a cosine")
    add("--momentum", type=number(least=0, below=1), default=0.9, help="momentum of both")
    add("--corruption", type=number(least=0, below=1), default=0.0, metavar="P", help="probability with which an input of an "
        "autoencoder is set to 0 in pre-training, while the output should still be what it was")  # fmt: skip
    add("--validation", type=number(above=0, below=1), metavar="FRACTION", help="share of the training samples to hold out")
    add("--seed", type=whole(0), default=0, help="seed of everything random")
    add("--dtype", default="float32", choices=("float32", "float64"), help="type of all arrays")
    add_device(parser)
    add("--energy", action="store_true", help="measure the joules of each phase by the counters of the processors (RAPL), "
        "which count all that runs on them; says so where there are none")  # fmt: skip
    add("--report", metavar="FILE.json", help="write the settings, versions, errors, losses, seconds and joules to this file")
    add("--largest-width", type=number(above=0), metavar="GIB", help="train nothing, but find the largest first hidden layer "
        "that fits into this memory of a process, by training two steps of everything on made-up samples")  # fmt: skip
    return parser


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    say = print if comm.rank == 0 else lambda *_: None
    np.seterr(all="ignore")  # a loss that is not finite is found and named
    with user_input():
        use_device(comm, args.device, args.tf32)
        grid = process_grid_of(args, comm)
    on_root(comm, lambda: prepare(args))
    with user_input():
        data = pixels(datasets.load(args.dataset, args.data_dir, args.dtype))
        train, held_out = hold_out(data.train, args.validation, args.seed) if args.validation else (data.train, None)
    if args.batch_size > len(train):
        raise UserError(f"--batch-size {args.batch_size} is larger than the data: {len(train)} training samples")
    widths = [data.features, *args.widths]
    if args.largest_width:
        search(args, comm, widths, data.outputs, say)
        return
    with user_input():
        shares = shares_of(args.shares, grid.sizes) if args.shares else None
        placed = partial(parallelize, grid=grid, plan=args.plan, shares=shares, allocate=False, **reduction_of(args))
        check(placed, widths, data.outputs, args)

    held = f"{len(held_out)} held out, " if held_out else ""
    say(f"{data.name}: {len(train)} training samples, {held}{len(data.test)} to test")
    say(f"{'-'.join(map(str, [*widths, data.outputs]))} on {grid} ({grid.size} ranks)")
    phases = Phases(grid, EnergyMeter() if args.energy else None, say)

    # ----- greedy pre-training
    state, layers = {}, []
    for position, hidden in enumerate(args.widths if args.pretrain_epochs else ()):
        told = Told(f"autoencoder {widths[position]}-{hidden}", "reconstruction error", phases, say)
        with phases.phase(f"pre-training {position + 1}"):
            plan, errors = pretrain(placed, train, widths, position, state, args, told)
        layers.append({"inputs": widths[position], "hidden": hidden, "plan": plan, "reconstruction_error": errors})

    # ----- fine-tuning from what was learned, with softmax and cross-entropy
    with phases.phase("fine-tuning"):
        told = Told("fine-tuning", "loss", phases, say)
        net, losses = finetune(placed, train, widths, data.outputs, state, args, told)
    validation_error = error_of(net, held_out, args.batch_size) if held_out else None
    test_error = error_of(net, data.test, args.batch_size)
    if held_out:
        say(f"validation error {validation_error:.2f} %")
    say(f"test error {test_error:.2f} %")

    # ----- results
    memory = int(grid.max(np.array([report.peak_memory()]))[0])
    say(f"peak memory of a rank {memory / 2**20:.0f} MiB")
    digest, devices = report.digest(net), report.devices(grid)
    result = {
        "program": "autoencoder",
        "settings": vars(args),
        "dataset": data.name,
        "widths": [*widths, data.outputs],
        "P": grid.size,
        "grid": str(grid),
        "plan": net.plan,
        "reduction": str(net.reduction),
        "device": devices,
        "training_samples": len(train),
        "versions": report.versions(),
        "layers": layers,
        "loss": losses,
        "validation_error": validation_error,
        "test_error": test_error,
        "phases": phases.rows,
        "energy": phases.energy,
        "peak_memory": memory,
        "params_digest": digest,
    }
    if args.report:
        on_root(comm, lambda: report.write_json(args.report, result))
    say(table([{"phase": row["phase"], "s": row["seconds"], "J": row["joules"]} for row in phases.rows]))
    errors = {"validation error, %": validation_error, "test error, %": test_error, "MiB in a rank, at most": memory / 2**20}
    say(f"\n{table([errors])}")
    grid.free()


def prepare(args):
    """What rank 0 does first: check that the report can be written and that the data are there."""
    if args.report is not None:
        check_writable(args.report)
    datasets.prepare(args.dataset, args.data_dir)


def pixels(data):
    """The data set with its images as rows of numbers from 0 to 1, which a sigmoid can reproduce. ValueError for others."""
    if data.loss != "cross-entropy" or data.train.x.dtype != np.uint8:
        raise ValueError(f"--dataset {data.name}: its samples are no images in classes: use one such as mnist")
    data = data.reshaped((data.features,))
    parts = {name: replace(getattr(data, name), x_mean=np.zeros(()), x_std=np.full((), 255.0)) for name in ("train", "test")}
    return replace(data, **parts)


class Told:
    """Says after each epoch how far the training is, and keeps the count of the energy."""

    def __init__(self, what, measure, phases, say):
        self.what, self.measure, self.phases, self.say = what, measure, phases, say

    def __call__(self, epoch, value):
        self.phases.keep_count()
        self.say(f"{self.what}: epoch {epoch}, {self.measure} {value:.6f}")


def search(args, comm, widths, classes, say):
    """Find the largest first hidden layer that fits --largest-width, and say it."""
    if comm.size > 1:
        raise UserError("--largest-width is for one process: run it without mpiexec")
    if sys.platform != "linux":
        raise UserError("--largest-width needs Linux: other systems do not keep a process to its limit of memory")
    nbytes = int(args.largest_width * 2**30)
    if nbytes > memory_of_machine():
        raise UserError(f"--largest-width {args.largest_width:g}: the machine has {memory_of_machine() / 2**30:.1f} GiB")
    settings = {"inputs": widths[0], "widths": widths[2:], "classes": classes}
    settings |= {name: getattr(args, name) for name in ("batch_size", "momentum", "dtype", "corruption")}
    settings["pretrain_epochs"] = min(args.pretrain_epochs, 1)
    width = largest_width(nbytes, settings, say)
    weights = networks.classifier([widths[0], width, *widths[2:]], classes, args.seed, args.dtype).size
    say(f"the largest first hidden layer in {args.largest_width:g} GiB has {width} units: {weights} weights in the classifier")
    if args.report:
        found = {"first_hidden_layer": width, "weights": weights, "versions": report.versions()}
        report.write_json(args.report, {"program": "autoencoder", "settings": vars(args), **found})


if __name__ == "__main__":
    run(main)
