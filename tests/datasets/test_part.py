"""Parts of data sets: blocks of standardised samples, other shapes of them, some of them, and images that vary by epoch."""

from dataclasses import replace

import numpy as np
import pytest

from gridgrad.datasets import Part
from gridgrad.datasets.augment import Augment, parse
from gridgrad.datasets.views import Augmented, Subset, hold_out

HEIGHT, WIDTH, SAMPLES = 9, 7, 40
SHAPE, FEATURES = (HEIGHT, WIDTH, 3), HEIGHT * WIDTH * 3
FULL = tuple(slice(0, length) for length in SHAPE)
BLOCKS = [FULL, (slice(4, 9), slice(0, 7), slice(0, 3)), (slice(2, 6), slice(1, 4), slice(1, 2)), (slice(3, 3), *FULL[1:])]


def part(moments=(3,), dtype=np.float64):
    """Images whose inputs have moments of a shape; their targets are their numbers."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (SAMPLES, *SHAPE), dtype=np.uint8)
    return Part(x, np.arange(SAMPLES), rng.uniform(100, 150, moments), rng.uniform(40, 60, moments), dtype=dtype)


@pytest.mark.parametrize("moments", [(), (3,), SHAPE], ids=["one", "channel", "feature"])
def test_blocks_are_standardised_as_the_whole_and_flat_samples_are_the_same_ones(moments):
    samples, indices = part(moments), np.array([3, 3, 19, 0])
    before = samples.x.copy()
    whole = (samples.x[indices] - samples.x_mean) / samples.x_std
    for block in BLOCKS:
        expected = whole[(slice(None), *block)]
        assert np.allclose(samples.inputs(indices, block), expected, rtol=1e-14)
        single = replace(samples, dtype=np.float32).inputs(indices, block)
        assert single.dtype == np.float32 and np.allclose(single, expected, atol=1e-6)
        assert samples.inputs(indices[:0], block).shape == (0, *expected.shape[1:])
    flat = samples.reshaped((FEATURES,))
    assert flat.sample_shape == (FEATURES,) and flat.features == samples.features == FEATURES
    assert np.shares_memory(flat.x, samples.x)
    assert np.allclose(flat.inputs(indices, (slice(7, 50),)), whole.reshape(4, -1)[:, 7:50], rtol=1e-14)
    samples.inputs(indices, FULL)[:] = 9
    assert np.array_equal(samples.x, before)


# ----- some of the samples


def test_a_subset_is_a_part():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 6)), rng.standard_normal((40, 2))
    whole = Part(x, y, x.mean(0), x.std(0), y.mean(0), y.std(0), dtype=np.float64)
    some = Subset(whole, [7, 3, 30])
    assert len(some) == 3 and some.target_scale is whole.target_scale
    assert np.array_equal(some.inputs(np.array([2, 0]), (slice(1, 4),)), whole.inputs(np.array([30, 7]), (slice(1, 4),)))
    assert np.array_equal(some.targets(np.array([1])), whole.targets(np.array([3])))


def test_every_sample_is_trained_on_or_held_out():
    """An outline is divided alike: ranks to which another one sends the samples hold no numbers, and count the same."""
    train, validation = hold_out(part(), 0.25, seed=3)
    assert (len(train), len(validation)) == (30, 10)
    assert sorted([*train.chosen, *validation.chosen]) == list(range(SAMPLES))
    assert np.array_equal(hold_out(part().outline(), 0.25, seed=3)[1].chosen, validation.chosen)
    assert not np.array_equal(hold_out(part(), 0.25, seed=4)[1].chosen, validation.chosen)
    for fraction in 0.01, 0.99:
        with pytest.raises(ValueError, match=f"--validation {fraction} of 40 training samples would be"):
            hold_out(part(), fraction, 0)


# ----- images that vary


def moved(image, down, along, mirror):
    """An image that is mirrored and shifted into zeros, one pixel at a time."""
    image = image[:, ::-1] if mirror else image
    out = np.zeros_like(image)
    for r, c in np.ndindex(image.shape[:2]):
        if 0 <= r + down < image.shape[0] and 0 <= c + along < image.shape[1]:
            out[r, c] = image[r + down, c + along]
    return out


@pytest.mark.parametrize(("shift", "flip"), [(1, True), (20, False)])
def test_images_are_mirrored_and_shifted_into_zeros_whatever_block_or_minibatch_is_read(shift, flip):
    spec, indices = Augment(shift, flip, seed=3), np.random.default_rng(1).permutation(SAMPLES)
    found = spec.inputs(part(), indices, FULL, epoch=2)
    down, along, mirror = spec.draws(indices, SAMPLES, 2)
    assert abs(down).max() <= shift and abs(along).max() <= shift and (flip or not mirror.any())
    plain = part().inputs(indices, FULL)
    for image, *how in zip(range(SAMPLES), down, along, mirror, strict=True):
        assert np.array_equal(found[image], moved(plain[image], *how))
    for block in BLOCKS:
        assert np.array_equal(spec.inputs(part(), indices, block, epoch=2), found[(slice(None), *block)])
    pieces = [spec.inputs(part(), piece, FULL, epoch=2) for piece in np.split(indices, [1, 13, 13])]
    assert np.array_equal(np.concatenate(pieces), found)


def test_what_happens_to_a_sample_does_not_depend_on_the_number_of_samples_which_differs_where_some_are_held_out():
    draws = lambda seed, samples, epoch: np.array(Augment(seed=seed).draws(np.arange(8), samples, epoch))  # noqa: E731
    assert np.array_equal(draws(0, 8, 5), draws(0, 5000, 5))
    assert not np.array_equal(draws(0, 8, 5), draws(0, 8, 6)) and not np.array_equal(draws(0, 8, 5), draws(1, 8, 5))


def test_flat_samples_are_varied_like_their_images():
    spec, indices = parse("shift=2,flip", seed=3), np.array([4, 0, 8, 4])
    shaped, flat = Augmented(part(), spec, SHAPE), Augmented(part().reshaped((FEATURES,)), spec, SHAPE)
    epochs = []
    for epoch in range(2):
        shaped.epoch = flat.epoch = epoch
        epochs.append(flat.inputs(indices, (slice(0, FEATURES),)))
        assert np.array_equal(epochs[-1].reshape(4, *SHAPE), shaped.inputs(indices, FULL))
        assert np.array_equal(flat.inputs(indices, (slice(7, 31),)), epochs[-1][:, 7:31])
    assert not np.array_equal(*epochs) and np.array_equal(flat.targets(indices), indices)
    with pytest.raises(ValueError, match=r"--augment is for images, and samples have the shape \(189,\)"):
        Augmented(part().reshaped((FEATURES,)), spec, (FEATURES,))


def test_the_text_of_the_command_line():
    assert parse("shift=4,flip", seed=2) == Augment(4, True, 2) and parse("flip") == Augment(0, True)
    for text, words in (("rotate", "'rotate' is unknown"), ("shift=-1", "not '-1'")):
        with pytest.raises(ValueError, match=f"augment '{text}': .*{words}"):
            parse(text)
