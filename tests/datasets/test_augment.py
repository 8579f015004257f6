import numpy as np
import pytest

from gridgrad.datasets import Part, augment
from gridgrad.datasets.augment import Augment, parse

SAMPLES, HEIGHT, WIDTH = 40, 9, 7
FULL = (slice(0, HEIGHT), slice(0, WIDTH), slice(0, 3))
BLOCKS = [
    (slice(0, 4), slice(0, WIDTH), slice(0, 3)),
    (slice(4, 9), slice(0, WIDTH), slice(0, 3)),
    (slice(8, 9), slice(0, WIDTH), slice(1, 2)),
    (slice(2, 6), slice(1, 4), slice(0, 2)),
    (slice(3, 3), slice(0, WIDTH), slice(0, 3)),
]


def part(dtype=np.float64):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (SAMPLES, HEIGHT, WIDTH, 3), dtype=np.uint8)
    return Part(x, np.zeros(SAMPLES, int), np.full(3, 120.3), np.array([50.1, 60, 70]), dtype=dtype)


def expected(image, down, along, mirror):
    """The same, written for one pixel at a time."""
    image = image[:, ::-1] if mirror else image
    out = np.zeros_like(image)
    for r, c in np.ndindex(image.shape[:2]):
        if 0 <= r + down < image.shape[0] and 0 <= c + along < image.shape[1]:
            out[r, c] = image[r + down, c + along]
    return out


@pytest.mark.parametrize(("shift", "flip"), [(0, False), (0, True), (1, True), (4, True), (4, False), (20, True)])
def test_images_are_mirrored_and_shifted_into_zeros(shift, flip):
    augment, indices = Augment(shift, flip, seed=3), np.arange(SAMPLES)
    found = augment.inputs(part(), indices, FULL, epoch=2)
    plain = part().inputs(indices, FULL)
    down, along, mirror = augment.draws(indices, SAMPLES, 2)
    for i in indices:
        assert np.array_equal(found[i], expected(plain[i], down[i], along[i], mirror[i]))
    assert abs(down).max() <= shift and abs(along).max() <= shift and (flip or not mirror.any())


@pytest.mark.parametrize("shift", [0, 3, 20])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_that_of_the_whole_image(shift, block):
    augment, indices = Augment(shift), np.array([5, 5, 39, 0, 17])
    whole = augment.inputs(part(), indices, FULL, epoch=1)
    assert np.array_equal(augment.inputs(part(), indices, block, epoch=1), whole[(slice(None), *block)])


def test_batches_and_their_order_do_not_matter():
    augment, indices = Augment(seed=8), np.random.default_rng(1).permutation(SAMPLES)
    whole = augment.inputs(part(), np.arange(SAMPLES), FULL, epoch=0)
    assert np.array_equal(augment.inputs(part(), indices, FULL, epoch=0), whole[indices])
    pieces = [augment.inputs(part(), piece, FULL, epoch=0) for piece in np.split(indices, [1, 13, 13])]
    assert np.array_equal(np.concatenate(pieces), whole[indices])


def test_what_happens_to_a_sample_is_drawn_from_its_index_alone():
    """Not from the number of samples, which differs where some are held out."""
    draws = [np.array(Augment().draws(np.array([7, 3]), samples, 5)) for samples in (8, 5000)]
    assert np.array_equal(*draws)


def test_epochs_and_seeds_differ():
    indices = np.arange(SAMPLES)
    found = [Augment(seed=seed).inputs(part(), indices, FULL, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0))]
    assert not np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])
    assert np.array_equal(found[0], found[3])


def test_draws_are_uniform_and_independent():
    down, along, mirror = Augment(2).draws(np.arange(100_000), 100_000, 0)
    counts = np.zeros((5, 5, 2))
    np.add.at(counts, (down + 2, along + 2, mirror.astype(int)), 1)
    assert abs(counts / 2000 - 1).max() < 0.12  # 50 cells of 2,000 +- 45
    assert mirror.mean() == pytest.approx(0.5, abs=0.006)


def test_the_type_is_that_of_the_part_and_its_samples_stay():
    samples = part(np.float32)
    before = samples.x.copy()
    assert Augment().inputs(samples, np.arange(3), FULL, 0).dtype == np.float32
    assert np.array_equal(samples.x, before)
    assert Augment().inputs(samples, np.arange(0), FULL, 0).shape == (0, HEIGHT, WIDTH, 3)


def test_the_variations_of_an_epoch_are_drawn_at_once(monkeypatch):
    """As long as 128 single draws would take a minibatch."""
    drawn, random_block = [], augment.random_block
    monkeypatch.setattr(augment, "random_block", lambda *arguments: drawn.append(arguments[-1]) or random_block(*arguments))
    augment._epoch.cache_clear()
    for epoch in (0, 1):
        for step in range(5):
            Augment().inputs(part(), np.arange(step, SAMPLES, 5), FULL, epoch)
    assert drawn == [0, 1]


def test_the_text_of_the_command_line():
    assert parse("shift=4,flip", seed=2) == Augment(4, True, 2)
    assert parse("flip") == Augment(0, True) and parse("shift=12") == Augment(12, False)


BAD = [
    ("", "'' is unknown"), ("rotate", "'rotate' is unknown or said twice: use shift=PIXELS"), ("flip,flip", "said twice"),
    ("shift=1,shift=2", "said twice"), ("flip=1", "'flip=1' is unknown"), ("shift", "whole number of pixels, not ''"),
    ("shift=-1", "whole number of pixels, not '-1'"), ("shift=2.5", "not '2.5'"), ("shift=²", "not '²'"),
    ("shift=1234567", "not '1234567'"), ("flip,", "'' is unknown"),
]  # fmt: skip


def test_bad_texts_are_refused():
    for text, message in BAD:
        with pytest.raises(ValueError, match=f"augment '{text}': .*{message}"):
            parse(text)
