"""Encoded samples reach each rank of every grid as they would a single process."""

from itertools import product

import numpy as np
import pytest

from gridgrad.datasets import Part
from gridgrad.datasets.views import Reconstruction
from gridgrad.experiments.studies.autoencoder import EncodedReader
from gridgrad.nn import Linear, Sequential, Sigmoid, TiedAutoencoder
from gridgrad.nn.device import to_host
from gridgrad.parallel import READERS, ProcessGrid, parallelize
from gridgrad.parallel.training import MicroBatchReader
from tests.mpi import mpi
from tests.parallel.equality import RANKS, grids


def part_of(samples, features):
    pixels = np.random.default_rng(0).integers(0, 256, (samples, features)).astype(np.uint8)
    return Part(pixels, np.arange(samples) % 3, np.zeros(()), np.full((), 255.0), dtype=np.float64)


def encoder():
    return Sequential([Linear(7, 5), Sigmoid(), Linear(5, 3), Sigmoid()], seed=1, dtype=np.float64, input_shape=(7,))


def autoencoder():
    return Sequential([TiedAutoencoder(3, 4), Sigmoid()], dtype=np.float64)


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_each_rank_gets_its_block(comm):
    part = part_of(23, 7)
    everything = (slice(0, 7),)
    for sizes, plans in product(grids(comm.size), product(("fewest-bytes", "replicate"), repeat=2)):
        with ProcessGrid(comm, **sizes) as grid:
            front, net = (parallelize(make(), grid, plan) for make, plan in zip((encoder, autoencoder), plans, strict=True))
            reader = EncodedReader(net, front, READERS["each"](front, part))
            for indices in (np.arange(13), np.array([22, 3, 4]), np.array([5])):
                x, y = map(to_host, reader.load(indices))
                expected = encoder().predict(part.inputs(indices, everything))
                assert np.allclose(x, expected[net.input_block(len(indices))], rtol=1e-12), (sizes, plans)
                assert np.allclose(y, expected[net.output_rows(len(indices))], rtol=1e-12), (sizes, plans)
            parts = [samples for *_, samples in MicroBatchReader(reader).parts(np.arange(13), 3)]
            assert sum(parts) == 13 and len(parts) == 3
            other = parallelize(Sequential([Linear(7, 4)]), grid)
            with pytest.raises(ValueError, match="must have the shape and the layout of those of the encoder"):
                EncodedReader(net, other, READERS["each"](other, part))


def test_the_samples_may_be_their_own_targets():
    part = part_of(5, 7)
    own, indices = Reconstruction(part), np.array([3, 0])
    assert np.array_equal(own.targets(indices), part.x[indices] / 255)
    assert np.array_equal(own.inputs(indices, (slice(2, 4),)), own.targets(indices)[:, 2:4])
    assert own.target_type == np.float64 and own.target_shape == (7,) and own.target_width == 7
