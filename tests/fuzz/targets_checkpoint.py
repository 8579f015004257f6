"""Targets: checkpoints, through what `train --resume` does with a folder of them.

Bytes that are damaged anywhere are noticed, and the checkpoint before goes on. In the targets "that fits" the manifest is made
to fit what was damaged, as somebody could who means harm: then training goes on with these numbers, or a line says why not.
"""

import io
import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

import h5py
import numpy as np
from hypothesis import strategies as st
from mpi4py import MPI

from gridgrad.experiments.run_parts import Progress
from gridgrad.nn import SGD
from gridgrad.nn.optimizers import constant
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.checkpoint.manifest import NAME, digest
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.shard_file import TABLE, file_of, sha256
from gridgrad.parallel.checkpoint.state import NetworkState
from gridgrad.parallel.choose.parallelize import parallelize
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.workers import one_worker
from tests.fuzz.damage import damaged
from tests.fuzz.damage_hdf5 import damaged_hdf5
from tests.fuzz.damage_json import damaged_json
from tests.fuzz.target import Target
from tests.fuzz.targets_hdf5 import changed, its_own_source

NET, FEATURES, OUTPUTS = "mlp:40,relu", 4, 1
NEWEST, BLOCK = "step-000000002", 4096
TRAIN = f"--dataset airfoil --net {NET} --batch-size 60 --steps 2 --checkpoint-steps 1 --quiet --checkpoint"


@cache
def checkpoints():
    """{path in the folder: content} of the checkpoints after steps 1 and 2 of a training."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gridgrad", "train", *TRAIN.split(), folder]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[2], timeout=300)
        files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def around(folder):
    for name, content in checkpoints().items():
        path = folder / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def resumed(path):
    """(the step after which a training goes on, its parameters) from the folder that holds a damaged file."""
    if not MPI.Is_initialized():
        MPI.Init()
    with ProcessGrid(MPI.COMM_SELF) as grid:
        net = parallelize(network_names.build(NET, FEATURES, OUTPUTS), grid)
        own, workers = one_worker(grid)
        protocol = Protocol(net, workers, lambda updated: SGD(updated, constant(0.1), momentum=0.9))
        found = newest(MPI.COMM_SELF, path.parents[1])
        if found is None:
            raise UserError(f"{path.parents[1]} has no whole checkpoint")
        found.restore(net, {"network": NetworkState(net), "protocol": protocol, "progress": Progress()})
        return net.step, net.params.copy()


@cache
def parameters(step):
    """Those after a step, as a training reads them that finds nothing damaged."""
    with tempfile.TemporaryDirectory() as folder:
        around(Path(folder))
        if step == 1:
            shutil.rmtree(Path(folder) / "made" / NEWEST)
        found = resumed(Path(folder) / "made" / NEWEST / NAME)
    assert found[0] == step
    return found[1]


def noticed(path):
    """Only what was written is ever read."""
    step, found = resumed(path)
    assert np.array_equal(found, parameters(step)), step


def unnoticed(path):
    """The manifest fits the files again."""
    folder = path.parent
    try:
        content = json.loads((folder / NAME).read_bytes())
        for entry in content["files"]:
            entry |= {"size": (folder / entry["name"]).stat().st_size, "sha256": sha256(folder / entry["name"])}
        content["sha256"] = digest({name: value for name, value in content.items() if name != "sha256"})
        (folder / NAME).write_text(json.dumps(content))
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):
        pass  # it is damaged so much that nobody could
    resumed(path)


def content_of(name):
    return (checkpoints()[f"{NEWEST}/{name}"],)


def cut_at_blocks(content):
    """A file of which the disk has some blocks, or that is damaged in another way."""
    blocks = st.integers(0, len(content) // BLOCK).map(lambda number: content[: number * BLOCK])
    return st.one_of(blocks, damaged(content))


@st.composite
def damaged_table(draw, content):
    """A shard whose table, which is JSON, says something else."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+", libver="v110") as file:
        table = draw(damaged_json(file[TABLE][...].tobytes()))
        del file[TABLE]
        file.create_dataset(TABLE, data=np.frombuffer(table, np.uint8))
    return buffer.getvalue()


def of_file(what, name, damage, read, examples=tuple):
    return Target(f"checkpoint {what}", partial(content_of, name), damage, read, f"made/{NEWEST}/{name}", around,
                  says=("no whole checkpoint", "made/step-"), examples=examples)  # fmt: skip


def all_blocks():
    """A shard that ends after each of its blocks."""
    (content,) = content_of(file_of(0))
    return [content[:length] for length in range(0, len(content), BLOCK)]


def its_own_log():
    return (changed(*content_of(file_of(0)), partial(its_own_source, name="logs/progress/losses")),)


TARGETS = (
    of_file("manifest", NAME, damaged_json, noticed),
    of_file("shard", file_of(0), cut_at_blocks, noticed, all_blocks),
    of_file("manifest that fits", NAME, damaged_json, unnoticed),
    of_file("shard that fits", file_of(0), damaged_hdf5, unnoticed, its_own_log),
    of_file("table that fits", file_of(0), damaged_table, unnoticed),
)
