from dataclasses import replace

import numpy as np
import pytest

from gridgrad.datasets import Dataset, Part, augment
from gridgrad.datasets.views import Augmented, Subset, hold_out

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


# ----- views


def rows_of(samples=40, labels=False):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((samples, 6)), rng.standard_normal((samples, 2))
    if labels:
        return Part(x, rng.integers(0, 3, samples), x.mean(), x.std(), dtype=np.float64)
    return Part(x, y, x.mean(0), x.std(0), y.mean(0), y.std(0), dtype=np.float64)


@pytest.mark.parametrize("labels", [False, True])
def test_a_subset_is_a_part(labels):
    whole = rows_of(labels=labels)
    some = Subset(whole, [7, 3, 30])
    assert len(some) == 3
    assert np.array_equal(some.inputs(np.array([2, 0]), (slice(1, 4),)), whole.inputs(np.array([30, 7]), (slice(1, 4),)))
    assert np.array_equal(some.targets(np.array([1])), whole.targets(np.array([3])))
    for name in ("input_type", "target_type", "target_shape", "target_width", "sample_shape"):
        assert getattr(some, name) == getattr(whole, name)
    assert some.target_scale is whole.target_scale
    assert np.array_equal(Subset(some, [2]).targets(np.array([0])), whole.targets(np.array([30])))
    other = some.reshaped((2, 3)).inputs(np.array([1]), (slice(0, 2), slice(0, 3)))
    assert np.array_equal(other.ravel(), whole.inputs(np.array([3]), (slice(0, 6),)).ravel())


def images():
    x = np.random.default_rng(0).integers(0, 256, (9, 6, 5, 2)).astype(np.uint8)
    return Part(x, np.arange(9), np.array([100.0, 140.0]), np.array([60.0, 70.0]), dtype=np.float64)


def test_flat_samples_are_varied_like_their_images():
    spec, shape, indices = augment.parse("shift=2,flip", seed=3), (6, 5, 2), np.array([4, 0, 8, 4])
    shaped, flat = Augmented(images(), spec, shape), Augmented(images().reshaped((60,)), spec, shape)
    epochs = []
    for epoch in range(3):
        shaped.epoch = flat.epoch = epoch
        whole = flat.inputs(indices, (slice(0, 60),))
        assert np.array_equal(whole.reshape(4, *shape), shaped.inputs(indices, (slice(0, 6), slice(0, 5), slice(0, 2))))
        assert np.array_equal(flat.inputs(indices, (slice(7, 31),)), whole[:, 7:31])
        epochs.append(whole)
    assert not np.array_equal(epochs[0], epochs[1]) and np.array_equal(flat.targets(indices), indices)
    part = Augmented(Subset(images().reshaped((60,)), [3, 1]), spec, shape)
    assert part.inputs(np.array([1, 0]), (slice(2, 9),)).shape == (2, 7) and len(part) == 2


def test_only_images_are_varied():
    with pytest.raises(ValueError, match=r"--augment is for images, and samples have the shape \(6,\)"):
        Augmented(rows_of(), augment.parse("flip"), (6,))


def test_every_sample_is_trained_on_or_held_out():
    train, validation = hold_out(rows_of(), 0.25, seed=3)
    assert (len(train), len(validation)) == (30, 10)
    assert sorted([*train.chosen, *validation.chosen]) == list(range(40))
    assert np.array_equal(hold_out(rows_of(), 0.25, seed=3)[1].chosen, validation.chosen)
    assert not np.array_equal(hold_out(rows_of(), 0.25, seed=4)[1].chosen, validation.chosen)


def test_an_outline_is_divided_alike():
    """Ranks to which another one sends the samples hold no numbers, and count the same."""
    for a, b in zip(hold_out(rows_of(), 0.25, 0), hold_out(rows_of().outline(), 0.25, 0), strict=True):
        assert np.array_equal(a.chosen, b.chosen)


@pytest.mark.parametrize("fraction", [0.01, 0.99])
def test_nothing_may_be_empty(fraction):
    with pytest.raises(ValueError, match=f"--validation {fraction} of 40 training samples would be"):
        hold_out(rows_of(), fraction, 0)
