"""CIFAR-10: both published forms, packed or not, what is hostile or damaged in them, and the noisy quarters of its images."""

import dataclasses
import hashlib
import io
import struct
import tarfile
from functools import partial

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.datasets import cifar10

BINARY, PYTHON = cifar10.FORMS
COUNTS = {"data_batch_1": 7, "data_batch_2": 3, "data_batch_3": 4, "data_batch_4": 1, "data_batch_5": 5, "test_batch": 6}
EVERYTHING = tuple(slice(0, size) for size in (32, 32, 3))


def text(value, long=False):
    """An instruction of Python 2 for a string."""
    return (b"T" + struct.pack("<i", len(value)) if long else b"U" + bytes([len(value)])) + value


def published(pixels, labels, kind=b"u1", raw=None):
    """A file of the published form: what Python 2 and NumPy 1 wrote, protocol 2, instruction by instruction."""
    rows, columns = pixels.shape
    return (
        b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(b"training batch 1 of 5") + b"q\x03"
        + text(b"labels") + b"q\x04]q\x05(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
        + text(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85" + text(b"b")
        + b"\x87Rq\t(K\x01M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86cnumpy\ndtype\nq\n"
        + text(kind) + b"K\x00K\x01\x87Rq\x0b(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + text(pixels.tobytes() if raw is None else raw, long=True) + b"tb"
        + text(b"filenames") + b"q\x0c]q\r(" + text(b"leptodactylus_pentadactylus_s_000004.png") + b"q\x0eeu."
    )  # fmt: skip


def made_up():
    """{name: (labels, pixels by channel)}, as the published files have them."""
    rng = np.random.default_rng(0)
    return {n: (rng.integers(0, 10, k, np.uint8), rng.integers(0, 256, (k, 3072), np.uint8)) for n, k in COUNTS.items()}


def files(form, batches):
    """{name: content} of the published files."""
    if form is BINARY:
        return {f"{n}.bin": np.column_stack([labels, pixels]).tobytes() for n, (labels, pixels) in batches.items()}
    return {n: published(pixels, labels.tolist()) for n, (labels, pixels) in batches.items()}


def pack(path, members):
    """An archive of (name, content or TarInfo)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def accept(monkeypatch, path):
    """Take the checksums of the published archives to be that of `path`."""
    checksum = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(cifar10, "FORMS", [dataclasses.replace(form, checksum=checksum) for form in cifar10.FORMS])


def put(directory, form, packed, monkeypatch, sub="cifar10"):
    contents, path = files(form, made_up()), directory / sub / (form.archive if packed else form.folder)
    if packed:
        pack(path, [(f"{form.folder}/{name}", content) for name, content in contents.items()])
        accept(monkeypatch, path)
    for name, content in () if packed else contents.items():
        path.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A made-up CIFAR-10 of 20 and 6 images, as a folder of the binary form."""
    return put(tmp_path, BINARY, False, monkeypatch)


@pytest.mark.parametrize(
    ("form", "packed", "sub"),
    [(BINARY, False, "cifar10"), (BINARY, True, "."), (PYTHON, False, "."), (PYTHON, True, "cifar10")],
)
def test_both_forms_are_converted_packed_or_not(tmp_path, monkeypatch, form, packed, sub):
    put(tmp_path, form, packed, monkeypatch, sub)
    datasets.prepare("cifar10", tmp_path)
    data = datasets.load("cifar10", tmp_path)
    assert (data.sample_shape, data.outputs, len(data.train), len(data.test)) == ((32, 32, 3), 10, 20, 6)
    assert data.classes[:2] == ["airplane", "automobile"]
    batches = made_up()
    test = batches.pop("test_batch")
    labels, pixels = (np.concatenate(values) for values in zip(*batches.values(), strict=True))
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    assert isinstance(data.train.x, np.memmap) and np.array_equal(data.train.x, images)
    for part, right in ((data.train, labels), (data.test, test[0])):
        assert np.array_equal(part.targets(np.arange(len(part))), right)
    x = data.train.inputs(np.arange(20), EVERYTHING)
    assert np.allclose(x.mean(axis=(0, 1, 2)), 0, atol=1e-5) and np.allclose(x.std(axis=(0, 1, 2)), 1, atol=1e-5)
    assert np.allclose(data.test.x_mean, images.mean(axis=(0, 1, 2)), rtol=1e-15)


DAMAGE = [
    (BINARY, "data_batch_2.bin", lambda b: b[:-1], "9218 bytes are no whole records of 3073"),
    (BINARY, "test_batch.bin", lambda b: b"\x0a" + b[1:], "label 10 is not one of 0 to 9"),
    (PYTHON, "data_batch_5", lambda b: b[:1000], "not a pickle as it was published"),
]


@pytest.mark.parametrize(("form", "name", "damage", "words"), DAMAGE)
def test_damage_is_named(tmp_path, monkeypatch, form, name, damage, words):
    path = put(tmp_path, form, False, monkeypatch) / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f"^[^\n]*{form.folder}/{name}: [^\n]*{words}[^\n]*$"):
        datasets.prepare("cifar10", tmp_path)
    assert not cifar10.converted(tmp_path).exists()


def link(name, target):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return name, member


def test_only_the_wanted_names_leave_an_archive_and_a_damaged_one_is_named(tmp_path, monkeypatch):
    archive, refused = tmp_path / "data" / "cifar10" / BINARY.archive, partial(pytest.raises, ValueError)
    wanted = [(f"{BINARY.folder}/{name}", content) for name, content in files(BINARY, made_up()).items()]
    pack(archive, [link(wanted[0][0], "/etc/passwd"), *wanted[1:]])
    with refused(match="cifar-10-binary.tar.gz: the checksum differs"):
        datasets.prepare("cifar10", tmp_path / "data")
    accept(monkeypatch, archive)
    with refused(match="without a regular file"):
        datasets.prepare("cifar10", tmp_path / "data")
    pack(archive, [("../../climbed", b"out"), ("/climbed", b"out"), link("out", "/etc"), ("out/climbed", b"out"), *wanted])
    accept(monkeypatch, archive)
    datasets.prepare("cifar10", tmp_path / "data")
    assert len(datasets.load("cifar10", tmp_path / "data").train) == 20
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {BINARY.archive, "cifar10.h5"}
    archive.write_bytes(archive.read_bytes()[:2000])
    accept(monkeypatch, archive)
    cifar10.converted(tmp_path / "data").unlink()
    with refused(match="^[^\n]*cifar-10-binary.tar.gz: truncated or damaged archive[^\n]*$"):
        datasets.prepare("cifar10", tmp_path / "data")


def test_denoise_has_the_quarters_of_the_images_with_and_without_noise(tmp_path, small, monkeypatch):
    monkeypatch.setattr(cifar10, "CHUNK", 12)
    datasets.prepare("denoise", tmp_path)
    data = datasets.load("denoise", tmp_path, np.float64)
    assert (data.sample_shape, data.outputs, len(data.train), len(data.test)) == ((256,), 256, 80, 24)
    pixels = made_up()["test_batch"][1].reshape(-1, 3, 32, 32).mean(axis=1)
    for number, (top, left) in enumerate(((0, 0), (0, 16), (16, 0), (16, 16))):
        quarters = np.rint(pixels[:, top : top + 16, left : left + 16])
        assert np.array_equal(data.test.y[number::4], quarters.reshape(6, 256))
    assert (data.train.x.astype(float) - data.train.y).std() == pytest.approx(cifar10.NOISE, rel=0.03)
    for values in (data.train.inputs(np.arange(80), (slice(None),)), data.train.targets(np.arange(80))):
        assert np.allclose([values.mean(), values.std()], [0, 1], atol=1e-12)
    assert np.allclose(data.train.unstandardise(data.train.targets(np.arange(80))), data.train.y)
