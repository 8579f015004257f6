"""Targets: text files of partitions and schedules."""

import tempfile
from functools import cache, partial
from pathlib import Path

from gridgrad.experiments.parts.partition_files import read_hypergraph, read_parts, write_hypergraph
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.schedule_names import to_csv
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.fuzz.damage import damaged_text
from tests.fuzz.target import Target

VERTICES = 40


def network():
    return network_names.build("mlp:8,8,8,relu", 6, 4)


@cache
def hypergraph(name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_hypergraph(of_network(network(), "fine").hypergraph, path)
        return (path.read_bytes(),)


def divide(path):
    """A hypergraph, and what its measures make of it."""
    graph = read_hypergraph(path)
    if graph.vertices < 10_000:
        graph.traffic(graph.check_parts([0] * graph.vertices, 2), 2)


@cache
def schedules():
    """Schedules in PyTorch's format, with and without the messages and the updates."""
    found = [schedule_names.parse(name).schedule(2, 3) for name in ("1f1b", "zb-h1", "interleaved:2", "zbv")]
    return tuple(to_csv(one).encode() for one in found)


def follow(path):
    """A schedule, and the time of a step by it."""
    asked = PlacementSpec({"stage": 2}, "out", pipelines=Pipelines(str(path)))
    pipeline_step_time(network(), asked, 12, read("cori-haswell"))


TARGETS = (
    Target(
        "hypergraph patoh",
        partial(hypergraph, "graph.patoh"),
        damaged_text,
        divide,
        "graph.patoh",
        examples=lambda: (b"0 200000000 0 0\n",),
    ),
    Target("hypergraph hmetis", partial(hypergraph, "graph.hgr"), damaged_text, divide, "graph.hgr"),
    Target("parts", lambda: (b"0\n1\n" * (VERTICES // 2),), damaged_text, lambda path: read_parts(path, VERTICES), "parts.txt"),
    Target(
        "schedule csv",
        schedules,
        damaged_text,
        follow,
        "schedule.csv",
        says=("micro-batches",),
        examples=lambda: (b"0B0,0F1\n",),
    ),
)
