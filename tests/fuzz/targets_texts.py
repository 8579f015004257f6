"""Targets: text files of partitions and schedules."""

from functools import cache

from gridgrad.experiments.partition import read_parts
from gridgrad.nn.zoo import network_names
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
def schedules():
    """Schedules in PyTorch's format, with and without the messages and the updates."""
    found = [schedule_names.parse(name).schedule(2, 3) for name in ("1f1b", "zb-h1", "interleaved:2", "zbv")]
    return tuple(to_csv(one).encode() for one in found)


def follow(path):
    """A schedule, and the time of a step by it."""
    asked = PlacementSpec({"stage": 2}, "out", pipelines=Pipelines(str(path)))
    pipeline_step_time(network(), asked, 12, read("cori-haswell"))


TARGETS = (
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
