"""Targets: texts of options, as programs take them, and then as far as a training needs them."""

import argparse
import contextlib
import math

import numpy as np
from mpi4py import MPI

from gridgrad.datasets import augment
from gridgrad.datasets.part import Part
from gridgrad.experiments.common.options import number_list, position_list, shares_of, whole_list
from gridgrad.experiments.common.problems import published
from gridgrad.experiments.common.train_setup import slowdowns
from gridgrad.nn import SGD, Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.nn.divergence import Diverged
from gridgrad.nn.losses import SoftmaxCrossEntropy
from gridgrad.nn.optimizers import constant, parse_schedule
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import MODEL, check_places, parse_grid
from gridgrad.parallel.partitioning.good_partition import SUFFIX, is_partition, owners_of_plan
from gridgrad.parallel.prediction.cost import Cost, slowest_rank
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.protocols import protocol_names as protocols
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from tests.fuzz.damage import damaged_argument
from tests.fuzz.target import Target, of_text

SIZES = {"batch": 2, "model": 3}


def price(net, sizes, plan="fewest-bytes", shares=None, owners=None):
    """What a training step costs, which places the network as a training does, without its memory."""
    cost = Cost(net, slowest_rank(net, PlacementSpec(sizes, plan, shares)), plan, 60, read("cori-haswell"), shares, owners)
    assert cost.seconds > 0 and cost.prediction.memory > 0


def small():
    return network_names.build("mlp:8,8,relu", 6, 4)


def grid(text):
    sizes = parse_grid(text)
    check_places(text, sizes, 6)
    if "stage" not in sizes:
        price(published("mnist-cnn"), sizes)


def net(text):
    price(network_names.build(text, (32, 32, 3), 10), SIZES)


def plan(text):
    layers = [Conv2d(3, 4, 3, padding=1), ReLU(), Flatten(), Linear(256, 8), ReLU(), Linear(8, 5)]
    net = Sequential(layers, input_shape=(8, 8, 3))
    if not is_partition(text):
        price(net, {"model": 3}, text)
    elif text.endswith(SUFFIX):
        owners_of_plan(text, net, SIZES[MODEL])  # to search for a partition takes seconds, and reads nothing


def protocol(text):
    """A protocol, and a few steps of two workers in virtual time."""
    make, net = protocols.parse(text), small()
    if make is not protocols.Protocol:
        x, y = np.ones((20, 6), np.float32), np.arange(20) % 4
        optimizer = lambda updated: SGD(updated, constant(0.1), momentum=0.9)  # noqa: E731
        if not MPI.Is_initialized():
            MPI.Init()
        with np.errstate(all="ignore"), contextlib.suppress(Diverged):  # as with any numbers that are too large
            task = Task(net, optimizer, SoftmaxCrossEntropy(), x, y, 8, 4)
            train(Simulation(2), task, make, lambda samples: samples)


def shares(text):
    found = shares_of(text, SIZES)
    price(small(), SIZES, shares=found)


def schedule(text):
    """A schedule, and the learning rates of some steps; the optimizer gets numbers of at least 0."""
    rate = parse_schedule(text, 0.02, 100)
    for step in (0, 1, 2, 50, 99, 100, 10_000):
        assert rate(step) >= 0, step


def variation(text):
    part = Part(np.zeros((4, 6, 5, 3), np.uint8), np.zeros(4, int), np.float64(0), np.float64(1))
    found = augment.parse(text)
    assert found.inputs(part, np.arange(4), (slice(0, 3), slice(2, 5), slice(0, 3)), 1).shape == (4, 3, 3, 3)


def pipeline(text):
    pipeline_step_time(small(), PlacementSpec({"stage": 2}, "out", pipelines=Pipelines(text)), 12, read("cori-haswell"))


def lists(text):
    """Lists of numbers, whose errors argparse puts into a line that names the option."""
    for kind in (whole_list, position_list, number_list):
        try:
            assert all(math.isfinite(value) for value in kind(text))
        except argparse.ArgumentTypeError as error:
            raise ValueError(str(error)) from None


def option(name, read, says, valid, examples=()):
    """A Target. says: what each error must say one of. valid: texts, with spaces between them."""
    texts = tuple(text.encode() for text in valid.split())
    once = tuple(text.encode() for text in examples)
    return Target(f"option {name}", lambda: texts, damaged_argument, of_text(read), says=says, examples=lambda: once)


PROTOCOLS = (
    "local:2 server:ssp:3:single slowmo:2:0.5:rate=0.9 parallel-sgd:epoch:shuffle easgd:2:0.3 admm:2:rho=0.1 post-local:1:2 "
    "diloco:2:lr=0.7:momentum=0.9:fragments=2 downpour:2:1 sgp"
)
PLANS = "fewest-bytes conv=height,linear=out in laugier out,in,out hypergraph:fine"
TARGETS = (
    option("grid", grid, ("grid",), "batch=3,model=2 height=2,model=3 model=6", ["batch=" + "9" * 5000]),
    option(
        "net",
        net,
        ("net",),
        "mlp:64,32,tanh mlp:relu vgg16,dropout=0.2 mlp:9,sigmoid,dropout=0.5 cifar-cnn lenet5",
        ["mlp:9,relu,dropout=2"],
    ),
    option("plan", plan, ("plan", SUFFIX), PLANS),
    option(
        "protocol",
        protocol,
        ("protocol", *protocols.FORMS),
        PROTOCOLS,
        ["diloco:2:fragments=99999999999", "local:" + "9" * 5000],
    ),
    option("shares", shares, ("shares",), "model=3:2:1,batch=2:1 batch=1:0", ["model=1e308:1e308:1"]),
    option("handicap", lambda text: slowdowns(text, 4), ("--handicap",), "0=1.5,2=3@100"),
    option(
        "schedule",
        schedule,
        ("schedule", "warm-up"),
        "cosine constant,warmup:5 step:30:0.1 step:30:0.1,warmup:10",
        ["step:1:1e300"],
    ),
    option("augment", variation, ("augment",), "shift=4,flip flip shift=2"),
    option("pipeline", pipeline, ("pipeline", "schedule"), "1f1b interleaved:2 async:4:bound=2 async:2:nostash zbv zb-h1"),
    option("lists", lists, ("must be",), "1 1,2,3"),
)
