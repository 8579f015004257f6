"""Data sets of numbers: airfoil, which comes with the project, ethylene, and those that are made up when they are read."""

import zipfile

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.datasets import uci


@pytest.mark.parametrize(("name", "features"), [("airfoil", 4), ("airfoil5", 5)])
def test_airfoil_is_in_the_project(tmp_path, name, features):
    datasets.prepare(name, tmp_path)
    data = datasets.load(name, tmp_path, np.float64)
    assert (data.features, data.outputs, len(data.train), len(data.test)) == (features, 1, 1202, 301)
    x, y = data.train.inputs(np.arange(1202), (slice(0, features),)), data.train.targets(np.arange(1202))
    for values in x, y:
        assert np.allclose(values.mean(axis=0), 0) and np.allclose(values.std(axis=0), 1)
    lines = (uci.Path(uci.__file__).parent / uci.AIRFOIL).read_text().splitlines(keepends=True)
    (tmp_path / uci.AIRFOIL).write_text("".join(lines[:1000]))
    with pytest.raises(ValueError, match="1000 rows, expected 1503"):
        datasets.load(name, tmp_path)


@pytest.fixture
def published(tmp_path):
    """The first 40 lines of something laid out as the published ethylene text."""
    rng = np.random.default_rng(0)
    table = np.column_stack(
        [np.arange(40) / 100, rng.uniform(0, 300, 40), rng.uniform(0, 20, 40), rng.uniform(1e3, 5e3, (40, 16))]
    )
    path = tmp_path / "ethylene" / uci.ETHYLENE
    path.parent.mkdir()
    lines = ["Time (seconds), Methane conc (ppm), Ethylene conc (ppm), sensor readings (16 channels)"]
    path.write_text("\n".join(lines + ["  ".join(f"{v:.2f}" for v in row) for row in table]) + "\n")
    return tmp_path, np.loadtxt(path, skiprows=1)


def test_ethylene_is_converted_and_mapped(published):
    directory, table = published
    datasets.prepare("ethylene", directory)
    data = datasets.load("ethylene", directory, np.float64)
    assert (data.features, data.outputs, len(data.train), len(data.test), data.synthetic) == (16, 2, 36, 4, False)
    assert isinstance(data.train.x, np.memmap)
    test = np.arange(40) % 10 == 9
    assert np.allclose(data.train.x, table[~test, 3:]) and np.allclose(data.test.y, table[test, 1:3])
    assert np.allclose(data.train.inputs(np.arange(36), (slice(0, 16),)).mean(axis=0), 0, atol=1e-6)


def test_the_archive_gives_only_the_wanted_text(published):
    """An archive that was put there by hand, with a member that would climb out of the folder."""
    directory, table = published
    text = directory / "ethylene" / uci.ETHYLENE
    archive = directory / "ethylene" / "ethylene.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../climbed", "out")
        file.write(text, uci.ETHYLENE)
    text.unlink()
    datasets.prepare("ethylene", directory)
    assert np.allclose(datasets.load("ethylene", directory).test.x, table[9::10, 3:])
    assert sorted(p.name for p in (directory / "ethylene").iterdir()) == ["ethylene.h5", "ethylene.zip", uci.ETHYLENE]
    assert not list(directory.parent.rglob("climbed"))


# ----- made-up data


@pytest.mark.parametrize("name", ["random:6x4x3,10,500", "random:8,1,500"])
def test_a_sample_is_a_function_of_its_index(name):
    datasets.prepare(name)
    data = datasets.load(name, dtype=np.float64)
    assert (len(data.train), len(data.test), data.synthetic) == (500, 100, True)
    whole, every = tuple(slice(0, size) for size in data.sample_shape), np.arange(500)
    x, y = data.train.inputs(every, whole), data.train.targets(every)
    some = np.array([7, 499, 7])
    assert np.array_equal(data.train.inputs(some, whole), x[some]) and np.array_equal(data.train.targets(some), y[some])
    block = tuple(slice(1, size - 1) for size in data.sample_shape)
    assert np.array_equal(data.train.inputs(some, block), x[some][(slice(None), *block)])
    assert abs(x.mean()) < 0.2 and abs(x.std() - 1) < 0.1 and not np.array_equal(x[0], x[1])


@pytest.mark.parametrize("name", ["random:8", "random:2000000x2000000x2000000,3"])
def test_bad_names_are_refused(name):
    with pytest.raises(ValueError, match=f"data set '{name}': use random:SHAPE,OUTPUTS"):
        datasets.prepare(name)
