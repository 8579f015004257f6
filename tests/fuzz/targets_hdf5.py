"""Targets: files in HDF5, those that data sets are converted to, owners of a partition, pruned networks."""

import io
import tempfile
from functools import cache, partial
from pathlib import Path

import h5py
import numpy as np

from gridgrad import datasets
from gridgrad.datasets import cifar10, files, images, uci
from gridgrad.nn.zoo import network_names, pruning
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.good_partition import read_owners, write_owners
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from tests.fuzz.damage_hdf5 import damaged_hdf5
from tests.fuzz.target import Target
from tests.fuzz.targets_data_sets import IMAGES, used

SPEC, FEATURES, CLASSES = "mlp:9,7,relu", 6, 4


def made(write):
    """What `write` writes to a path, as a tuple of one input."""

    @cache
    def content():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "made.h5"
            write(path)
            return (path.read_bytes(),)

    return content


def loaded(name, depth=1):
    """A reader of a converted file, as ranks read it after another process has prepared it."""
    return lambda path: used(datasets.load(name, path.parents[depth]))


def loaded_images(path):
    """Read a converted file of a folder of images, whose name depends on where that folder would be."""
    path.rename(images.converted(path.parent, IMAGES))
    used(datasets.load(IMAGES, path.parent))


def write_images(path, size=32):
    random = np.random.default_rng(0)
    halves = {
        half: (count, [(random.integers(0, 256, (count, size, size, 3), np.uint8), np.arange(count) % 10)])
        for half, count in (("train", 11), ("test", 4))
    }
    images.write_images(path, "made up", [f"class {number}" for number in range(10)], (size, size, 3), halves)


def write_quarters(path):
    random, arrays = np.random.default_rng(0), {}
    for half, count in (("train", 12), ("test", 8)):
        arrays |= {f"{half}/{name}": random.integers(0, 256, (count, cifar10.QUARTER), np.uint8) for name in "xy"}
    files.write(path, arrays, {"source": "x"} | {name: np.array([50.0]) for name in ("x_mean", "x_std", "y_mean", "y_std")})


def network():
    return network_names.build(SPEC, FEATURES, CLASSES)


def write_partition(path):
    model = of_network(network(), "fine")
    write_owners(model.owners(naive.horizontal(model, 2), 2), path)


def read_partition(path):
    """Owners, and what each of the ranks then has."""
    owners = read_owners(path, network())
    for name, array in owners.outputs.items():
        assert array.min() >= 0 and array.max() < owners.ranks, name


def read_pruned(path):
    """A pruned network, and a minibatch through it."""
    net = network_names.build(f"pruned:{path}", FEATURES, CLASSES)
    assert np.isfinite(net.forward(np.ones((2, FEATURES), np.float32))).all()


def changed(content, change):
    """A file in which `change` has changed something."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+", libver="v110") as file:
        change(file)
    return buffer.getvalue()


def its_own_source(file, name):
    """A virtual dataset whose elements come from itself: to read it brings the HDF5 library down."""
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(".", name, shape)
    file.create_virtual_dataset(name, layout)


def a_circle(file, name):
    """A link that leads to itself."""
    del file[name]
    file[name] = h5py.SoftLink(f"/{name}")


def target(name, write, read, file, dataset):
    """A Target. dataset: the name of one in the file."""
    valid = made(write)

    def examples():
        """A wrong version and a wrong checksum of the header of the root, and datasets that are nowhere."""
        (content,) = valid()
        flipped = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in (52, 60)]
        return (*flipped, *(changed(content, partial(change, name=dataset)) for change in (its_own_source, a_circle)))

    return Target(name, valid, damaged_hdf5, read, file, examples=examples)


TARGETS = (
    target("cifar10 hdf5", write_images, loaded("cifar10"), "cifar10/cifar10.h5", "train/x"),
    target("denoise hdf5", write_quarters, loaded("denoise"), "cifar10/denoise.h5", "test/y"),
    target("ethylene hdf5", lambda path: uci.write(path, *uci.synthetic(40), "x"), loaded("ethylene"),
           "ethylene/ethylene.h5", "train/y"),
    target("images hdf5", lambda path: write_images(path, 8), loaded_images, "photos-8", "test/y"),
    target("owners", write_partition, read_partition, "owners.h5", "outputs/0"),
    target("pruned network", lambda path: pruning.write(path, pruning.prune(network(), 0.5), SPEC), read_pruned, "pruned.h5",
           "0.weight"),
)  # fmt: skip
