"""MNIST and Fashion-MNIST, plain and gzipped; what is damaged is named."""

import gzip

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.datasets import mnist
from tests.datasets.made_up_mnist import idx


@pytest.fixture
def small(tmp_path):
    """A made-up MNIST of 20 and 10 images in DIR/mnist, half of it gzipped."""
    rng = np.random.default_rng(0)
    (tmp_path / "mnist").mkdir()
    for prefix, count in (("train", 20), ("t10k", 10)):
        images = idx(rng.integers(0, 256, (count, 28, 28)))
        (tmp_path / "mnist" / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (tmp_path / "mnist" / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(rng.integers(0, 10, count)))
    return tmp_path


def test_loads_plain_and_gzipped(small):
    datasets.prepare("mnist", small)
    data = datasets.load("mnist", small)
    assert (data.sample_shape, data.outputs, len(data.train), len(data.test)) == ((28, 28, 1), 10, 20, 10)
    images = data.train.inputs(np.arange(20), (slice(0, 28), slice(0, 28), slice(0, 1)))
    assert images.dtype == np.float32 and data.train.targets(np.array([1])).dtype == np.int64
    assert images.mean() == pytest.approx(0, abs=1e-5) and images.std() == pytest.approx(1, rel=1e-5)


IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"
DAMAGE = [
    (IMAGES, lambda b: b[: len(b) // 2], "truncated or damaged gzip"),
    (IMAGES, lambda b: gzip.compress(idx(np.zeros((10, 20, 20)))), "unlike those to train on"),
    (LABELS, lambda b: b[:-1] + b"\x0a", "label 10"),
]


@pytest.mark.parametrize(("name", "damage", "words"), DAMAGE)
def test_damage_is_named(small, name, damage, words):
    path = small / "mnist" / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f"^[^\n]*{words}[^\n]*$"):
        datasets.prepare("mnist", small)


def test_fashion_mnist_has_the_same_format_and_a_folder_of_its_own(small, monkeypatch):
    for path in [*(small / "mnist").iterdir()]:
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))  # as some programs unpack it
    (small / "mnist").rename(small / "fashion-mnist")
    datasets.prepare("fashion-mnist", small)
    data = datasets.load("fashion-mnist", small)
    assert (len(data.train), data.classes[9], data.outputs) == (20, "ankle boot", 10)
    monkeypatch.setitem(mnist.LENGTHS, "train", 20)
    with pytest.raises(ValueError, match="train-images.idx3-ubyte.gz: the checksum differs"):
        datasets.prepare("fashion-mnist", small)
