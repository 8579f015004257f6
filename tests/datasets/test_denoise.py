import h5py
import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.datasets import cifar10
from tests.datasets.test_cifar10 import BINARY, made_up, put


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A made-up CIFAR-10 of 20 and 6 images, prepared for this data set in several chunks."""
    put(tmp_path, BINARY, False, monkeypatch)
    monkeypatch.setattr(cifar10, "CHUNK", 12)
    datasets.prepare("denoise", tmp_path)
    return datasets.load("denoise", tmp_path, np.float64)


def test_targets_are_the_quarters_without_noise(data):
    assert (data.sample_shape, data.outputs, len(data.train), len(data.test)) == ((256,), 256, 80, 24)
    pixels = made_up()["test_batch"][1].reshape(-1, 3, 32, 32).mean(axis=1)
    for image in range(6):
        grey = np.rint(pixels[image])
        for number, (rows, columns) in enumerate(((0, 0), (0, 16), (16, 0), (16, 16))):
            quarter = data.test.y[4 * image + number].reshape(16, 16)
            assert np.array_equal(quarter, grey[rows : rows + 16, columns : columns + 16])
    noise = data.train.x.astype(float) - data.train.y
    assert abs(noise.mean()) < 1 and noise.std() == pytest.approx(cifar10.NOISE, rel=0.03)


def test_both_are_standardised_by_the_training_part(data):
    everything = np.arange(80)
    for values in (data.train.inputs(everything, (slice(None),)), data.train.targets(everything)):
        assert values.shape == (80, 256) and np.allclose([values.mean(), values.std()], [0, 1], atol=1e-12)
    assert np.allclose(data.train.unstandardise(data.train.targets(everything)), data.train.y)


def test_it_is_made_once_and_again_for_other_images(tmp_path, data):
    path = cifar10.converted(tmp_path, "denoise")
    made = path.stat().st_mtime_ns
    datasets.prepare("denoise", tmp_path)
    assert path.stat().st_mtime_ns == made
    with h5py.File(path, "a") as file:
        file.attrs["source"] = "older"
    datasets.prepare("denoise", tmp_path)
    assert path.stat().st_mtime_ns != made
    assert np.array_equal(datasets.load("denoise", tmp_path).train.x, data.train.x)


def test_a_damaged_file_is_refused(tmp_path, data):
    with h5py.File(cifar10.converted(tmp_path, "denoise"), "a") as file:
        del file["test/y"]
    with pytest.raises(ValueError, match="no data set test/y"):
        datasets.load("denoise", tmp_path)
