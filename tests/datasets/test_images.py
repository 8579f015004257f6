"""Folders of images: which are taken, how they are cut, and what is wrong with them. Odd formats: tests/hostile."""

import os

import h5py
import numpy as np
import pytest
from PIL import Image

from gridgrad import datasets
from gridgrad.datasets import images

COLOURS = {"blue": (10, 20, 250), "red": (250, 20, 10), "violet": (200, 10, 200)}


def paint(path, colour=(1, 2, 3), size=(30, 20), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).convert(mode).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    """Images in one colour for each class, of several sizes and formats, and what else lies in such folders."""
    root = tmp_path / "paint"
    for label, colour in COLOURS.items():
        for number, (width, height) in enumerate([(8, 8), (31, 17), (9, 40)]):
            paint(root / "train" / label / f"{number}.png", colour, (width, height))
        paint(root / "train" / label / "3.JPEG", colour, (100, 60), quality=95)
    paint(root / "test" / "red" / "0.bmp", COLOURS["red"])
    paint(root / "test" / "blue" / "0.webp", COLOURS["blue"], lossless=True)
    paint(root / "test" / "blue" / "1.gif", COLOURS["blue"], mode="P")
    (root / "train" / "red" / "._3.jpg").write_bytes(b"left there by a file manager")
    (root / "train" / "red" / "notes.txt").write_text("no image")
    (root / "train" / ".cache").mkdir()
    (root / "test" / "untested").mkdir()
    return tmp_path


def converted(directory, name="images:paint,size=8"):
    return images.converted(directory, name)


def load(directory, name="images:paint,size=8"):
    datasets.prepare(name, directory)
    return datasets.load(name, directory)


def test_a_folder_is_converted_and_mapped(folder):
    data = load(folder)
    assert (data.name, data.sample_shape, data.outputs, data.loss) == ("images:paint,size=8", (8, 8, 3), 3, "cross-entropy")
    assert (len(data.train), len(data.test)) == (12, 3)
    assert data.train.targets(np.arange(12)).tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test.targets(np.arange(3)).tolist() == [0, 0, 1]
    assert isinstance(data.train.x, np.memmap)
    for label, colour in enumerate(COLOURS.values()):
        assert (data.train.x[4 * label : 4 * label + 3] == colour).all()
        assert abs(data.train.x[4 * label + 3].astype(int) - colour).max() < 6  # JPEG
    x = data.train.inputs(np.arange(12), (slice(0, 8), slice(0, 8), slice(0, 3)))
    assert np.allclose(x.mean(axis=(0, 1, 2)), 0, atol=1e-5) and np.allclose(x.std(axis=(0, 1, 2)), 1, atol=1e-5)
    with h5py.File(converted(folder)) as file:
        assert list(file.attrs["classes"]) == list(COLOURS) and file["train/x"].chunks is None
    (folder / "paint" / "test").rename(folder / "paint" / "val")
    paint(folder / "paint" / "test" / "0001.png")  # a test folder without classes: those of val stand in for it
    assert len(load(folder).test) == 3


def test_new_images_are_decoded_like_those_of_the_training(folder):
    data = load(folder)
    part = datasets.read_inputs("images:paint/test", data.description(), folder)
    block = (slice(2, 7), slice(0, 8), slice(0, 2))
    assert [path.name for path in part.x.files] == ["0.webp", "1.gif", "0.bmp"] and part.y is None
    assert np.array_equal(part.inputs(np.array([2, 0]), block), data.test.inputs(np.array([2, 0]), block))
    (folder / "paint" / "test" / "red" / "bad.png").write_bytes(b"bad")
    with pytest.raises(ValueError, match="damaged or no images: .*bad.png"):
        datasets.read_inputs("images:paint/test", data, folder).inputs(np.arange(4), block)
    with pytest.raises(OSError, match="images: no folder none in .* or .*; give one"):
        datasets.prepare("images:none", folder)


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(content)).save(path)


def test_the_shorter_side_is_scaled_and_the_middle_kept(tmp_path):
    """Vertical stripes of 20 pixels, in an image three times as wide as high."""
    stripes = np.zeros((20, 60, 3), np.uint8)
    stripes[:, 20:40] = 255
    for half in ("train", "val"):
        save(tmp_path / "s" / half / "wide" / "a.png", stripes)
        save(tmp_path / "s" / half / "high" / "a.png", stripes.transpose(1, 0, 2))
    data = load(tmp_path, "images:s,size=10")
    for x in (data.train.x, data.test.x):
        assert (x[:, 1:-1, 1:-1] == 255).all() and (x > 200).all()  # at the edge of the middle a little of the rest shines in


def test_it_is_converted_once_and_anew_when_the_folder_changes(folder):
    new, times, counts = folder / "paint" / "train" / "red" / "new.png", [], []
    for change in (lambda: None, lambda: None, lambda: paint(new, COLOURS["red"]), lambda: os.utime(new, ns=(1, 1))):
        change()
        counts.append(len(load(folder).train))
        times.append(converted(folder).stat().st_mtime_ns)
    assert counts == [12, 12, 13, 13] and times[0] == times[1] and len(set(times)) == 3


def test_damaged_images_are_named_at_once(folder, monkeypatch):
    monkeypatch.setattr(images, "CHUNK", 2)
    for number in range(9):
        (folder / "paint" / "train" / "blue" / f"{number}.jpg").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"^[^\n]*0.jpg \([^\n]*of none of the formats[^\n]*4.jpg .* and 4 more"):
        load(folder)
    assert [p.name for p in folder.iterdir()] == ["paint"]


REFUSED = [  # (a change of the folder, name, words)
    (lambda root: (root / "train").rename(root / "training"), "images:paint", "no images train/CLASS/"),
    (lambda root: paint(root / "test" / "green" / "a.png"), "images:paint", "no images of the class green in train"),
    (lambda root: None, "images:,size=3", "names no folder"),
    (lambda root: None, "images:paint,size=9999", "at most 4096"),
]


@pytest.mark.parametrize(("change", "name", "words"), REFUSED)
def test_what_is_wrong_with_a_folder_or_its_name_is_said(folder, change, name, words):
    change(folder / "paint")
    with pytest.raises(ValueError, match=rf"^[^\n]*{words}[^\n]*$"):
        datasets.prepare(name, folder)
