"""Whatever reads a file that users name waits for no FIFO, and refuses a file that would fill the memory in one line."""

import os
from functools import partial
from pathlib import Path

import pytest

from gridgrad.experiments import partition
from gridgrad.experiments.common.options import user_input
from gridgrad.experiments.launching.start_ranks import nodes_in
from gridgrad.experiments.parts import slurm_script
from gridgrad.experiments.plots import lines, timeline
from gridgrad.experiments.scaling import records
from gridgrad.experiments.scaling import study as settings
from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import content_of_file
from gridgrad.parallel.checkpoint.manifest import Manifest
from gridgrad.parallel.checkpoint.shard_file import sha256
from gridgrad.parallel.job.run import UserError, one_line
from gridgrad.parallel.partitioning.good_partition import read_owners
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.prediction import machine

READERS = {
    "a.json": [
        content_of_file,
        lambda path: lines.read([path]),
        timeline.read,
        partial(partition.profiled, net="mlp:3"),
    ],
    "machine.json": [lambda path: machine.read(str(path))],
    "manifest.json": [lambda path: Manifest.read(path.parent)],
    "a.jsonl": [records.read],
    "a.toml": [settings.read, slurm_script.read_site],
    "nodes": [nodes_in],
    "parts": [partial(partition.read_parts, vertices=3)],
    "a.csv": [lambda path: schedule_names.parse(str(path))],
}
ALL = [(name, read) for name, readers in READERS.items() for read in readers]


def refused(read, path):
    with pytest.raises(UserError) as caught, user_input():
        read(path)
    line = one_line(caught.value)
    assert str(path) in line or path.name == "manifest.json" and str(path.parent) in line
    return line


@pytest.mark.parametrize(("name", "read"), [*ALL, ("rank-0000.h5", sha256), ("owners.h5", partial(read_owners, net=None))])
def test_a_fifo_is_not_waited_for(tmp_path, name, read):
    os.mkfifo(tmp_path / name)
    line = refused(read, Path(tmp_path / name))
    assert "no ordinary file" in line or "no such file" in line
    os.unlink(tmp_path / name)
    os.symlink("/dev/zero", tmp_path / name)
    assert "no ordinary file" in refused(read, tmp_path / name) or name == "machine.json"


@pytest.mark.parametrize(("name", "read"), ALL)
def test_a_file_that_would_fill_the_memory_is_refused(tmp_path, name, read, monkeypatch):
    path = tmp_path / name
    monkeypatch.setattr(limits, "BUDGET", 1 << 16)
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    assert "more than" in refused(read, path) or name == "a.csv"
