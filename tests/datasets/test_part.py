from dataclasses import replace

import numpy as np
import pytest

from gridgrad.datasets import Dataset, Part

FULL = (slice(0, 6), slice(0, 5), slice(0, 3))
BLOCKS = [FULL, (slice(2, 5), slice(0, 5), slice(0, 3)), (slice(0, 6), slice(1, 4), slice(1, 2)), (slice(3, 3), *FULL[1:])]


def part(moments="channel", dtype=np.float64):
    rng = np.random.default_rng(0)
    shape = {"one": (), "channel": (3,), "feature": (6, 5, 3)}[moments]
    x = rng.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    return Part(x, rng.integers(0, 4, 20), rng.uniform(100, 150, shape), rng.uniform(40, 60, shape), dtype=dtype)


@pytest.mark.parametrize("moments", ["one", "channel", "feature"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_inputs_is_standardised_as_the_whole(moments, block):
    samples, indices = part(moments), np.array([3, 3, 19, 0])
    whole = (samples.x[indices] - samples.x_mean) / samples.x_std
    assert np.allclose(samples.inputs(indices, block), whole[(slice(None), *block)], rtol=1e-14)
    single = replace(samples, dtype=np.float32).inputs(indices, block)
    assert single.dtype == np.float32 and np.allclose(single, whole[(slice(None), *block)], atol=1e-6)
    assert samples.inputs(indices[:0], block).shape == (0, *whole[(0, *block)].shape)


def test_inputs_leave_the_samples_alone():
    samples = Part(np.ones((4, 2)), np.zeros(4, int), np.zeros(2), np.full(2, 2.0), dtype=np.float64)
    samples.inputs(np.arange(4), (slice(0, 2),))[:] = 9
    assert (samples.x == 1).all()


@pytest.mark.parametrize("moments", ["one", "channel", "feature"])
def test_reshaped_samples_are_the_same_ones(moments):
    samples, indices = part(moments), np.arange(20)
    flat = samples.reshaped((90,))
    assert flat.sample_shape == (90,) and flat.features == samples.features == 90
    assert np.shares_memory(flat.x, samples.x)
    whole = samples.inputs(indices, FULL)
    assert np.array_equal(flat.inputs(indices, (slice(7, 50),)), whole.reshape(20, 90)[:, 7:50])
    back = flat.reshaped((6, 5, 3))
    assert np.array_equal(back.inputs(indices, BLOCKS[2]), samples.inputs(indices, BLOCKS[2]))


def test_a_data_set_and_its_outline_are_reshaped():
    samples = part()
    data = Dataset("made up", samples, samples, "cross-entropy", 4, "")
    assert (data.sample_shape, data.features) == ((6, 5, 3), 90)
    for changed in (data.reshaped((90,)).outline(), data.outline().reshaped((90,))):
        assert changed.sample_shape == changed.test.sample_shape == (90,) and changed.features == 90
        assert len(changed.train) == 20


def test_another_size_is_refused():
    with pytest.raises(ValueError, match=r"\(6, 5, 3\) can not take the shape \(91,\)"):
        part().reshaped((91,))
