"""Readers of published data sets, and of folders of images. `prepare` runs in one process, `load` in each."""

from functools import partial

import numpy as np

from gridgrad.datasets import airfoil, cifar10, denoise, ethylene, images, mnist
from gridgrad.datasets.files import data_directory
from gridgrad.datasets.part import Dataset, Part
from gridgrad.datasets.views import Augmented, hold_out

# name: (prepare(directory), load(directory, dtype)); those of images want the whole name as well
DATASETS = {
    "airfoil": (airfoil.prepare, airfoil.load),
    "airfoil5": (airfoil.prepare, partial(airfoil.load, name="airfoil5")),
    "mnist": (mnist.prepare, mnist.load),
    "cifar10": (cifar10.prepare, cifar10.load),
    "denoise": (denoise.prepare, denoise.load),
    "ethylene": (ethylene.prepare, ethylene.load),
    "ethylene-synthetic": (ethylene.prepare_synthetic, partial(ethylene.load, name="ethylene-synthetic")),
    images.NAME: (images.prepare, images.load),
}


def prepare(name, directory=None):
    """Download, convert and check what `load` needs. One process does it, before any loads.

    Raises ValueError for an unknown name or a damaged file, OSError for one that cannot be had. Messages have one line.
    """
    _of(name)[0](data_directory(directory))


def load(name, directory=None, dtype=np.float32):
    """The Dataset `name`; see `prepare`."""
    return _of(name)[1](data_directory(directory), np.dtype(dtype))


def _of(name):
    if name.startswith(images.PREFIX):
        return [partial(function, name=name) for function in DATASETS[images.NAME]]
    if name not in DATASETS:
        raise ValueError(f"unknown data set '{name}': use one of {', '.join(DATASETS)}")
    return DATASETS[name]


__all__ = ["DATASETS", "Augmented", "Dataset", "Part", "data_directory", "hold_out", "load", "prepare"]
