"""CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 colour images of 32 x 32 pixels, in ten classes.

Either of the two published forms, as an archive or as the folder in it, in DIR/cifar10 or DIR: the binary one, whose
records are a byte with the label and 3 x 1,024 bytes of red, green and blue; or pickles of Python 2.
"""

import hashlib
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gridgrad.datasets import labelled, pickles, rows
from gridgrad.datasets.files import download, fingerprint
from gridgrad.nn.files import limits

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SHAPE, PIXELS = (32, 32, 3), 3 * 32 * 32
LARGEST = 64 << 20  # bytes of a file; those published have 31 million


def parse_binary(path, content):
    """(images, labels) of a file of records, as `images_and_labels` gives them; ValueError if its length is no multiple."""
    if not content or len(content) % (1 + PIXELS):
        raise ValueError(f"{path}: {len(content)} bytes are no whole records of {1 + PIXELS}: truncated; fetch it anew")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return images_and_labels(path, records[:, 1:], records[:, 0])


def parse_pickle(path, content):
    """(images, labels) of a pickled dict, as `images_and_labels` gives them; ValueError if it is any other pickle."""
    data = pickles.parse(path, content)
    pixels, labels = (data.get(key) for key in ("data", "labels")) if type(data) is dict else (None, None)
    pixels = pixels.value if type(pixels) is pickles.Array else None
    if pixels is None or type(labels) is not list or not all(type(label) is int and label >= 0 for label in labels):
        raise ValueError(f"{path}: no dict of an array 'data' and a list of numbers 'labels'; fetch it anew")
    if not labels or pixels.shape != (len(labels), PIXELS):
        raise ValueError(f"{path}: 'data' is {pixels.shape} for {len(labels)} labels, not {PIXELS} each; fetch it anew")
    return images_and_labels(path, pixels, np.array(labels))


def images_and_labels(path, pixels, labels):
    """(n, 32, 32, 3) and (n,) from pixels (n, 3072) by channel and labels; ValueError for a label above 9."""
    if labels.max() >= len(CLASSES):
        raise ValueError(f"{path}: label {labels.max()} is not one of 0 to 9: damaged; fetch it anew")
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


@dataclass(frozen=True)
class Form:
    """One of the published forms: the names, the MD5 of the archive, and the function that reads one of its files."""

    archive: str
    checksum: str
    folder: str
    ending: str
    parse: Callable

    @property
    def train(self):
        return [f"data_batch_{number}{self.ending}" for number in range(1, 6)]

    @property
    def test(self):
        return [f"test_batch{self.ending}"]


FORMS = [
    Form("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin", ".bin", parse_binary),
    Form("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py", "", parse_pickle),
]


def prepare(directory):
    """Convert the published files to HDF5, once, and download them if need be; by one process, before the others load."""
    target = converted(directory)
    found = locate(directory)
    if found is None:
        if target.exists():
            return
        archive = directory / "cifar10" / FORMS[0].archive
        download(URL, f"md5:{FORMS[0].checksum}", archive, "CIFAR-10")
        found = FORMS[0], archive
    form, path = found
    names = form.train + form.test
    if path.is_dir() and (missing := [name for name in names if not (path / name).is_file()]):
        raise OSError(f"CIFAR-10: no file {path / missing[0]}; put it there, or delete the folder, and all are fetched anew")
    version = fingerprint(path, names) if path.is_dir() else fingerprint(path.parent, [path.name])
    if rows.is_current(target, version):
        return
    # There is no published checksum of a single file: in a folder, lengths and labels are all that can be checked.
    contents = read_folder(path, names) if path.is_dir() else read_archive(path, form)
    batches = {name: form.parse(path / name, content) for name, content in contents}
    halves = {half: [batches[name] for name in chosen] for half, chosen in (("train", form.train), ("test", form.test))}
    counted = {half: (sum(len(labels) for _, labels in chunks), chunks) for half, chunks in halves.items()}
    labelled.write(target, version, CLASSES, SHAPE, counted)


def load(directory, dtype, name="cifar10"):
    """The Dataset: images of (32, 32, 3) pixels, standardised by channel; labels 0 to 9. Images are mapped, not read."""
    return labelled.load(converted(directory), name, SHAPE, dtype)


def converted(directory):
    return directory / "cifar10" / "cifar10.h5"


def locate(directory):
    """(form, path) of the published files, an archive before a folder, since it can be checked; or None."""
    for form in FORMS:
        for name in (form.archive, form.folder):
            for path in (directory / "cifar10" / name, directory / name):
                if path.exists():
                    return form, path
    return None


def read_folder(folder, names):
    """Yields (name, content) of these files; ValueError for one that is too large."""
    for name in names:
        if (folder / name).stat().st_size > LARGEST:
            raise ValueError(f"{folder / name}: larger than any published file; fetch it anew")
        yield name, (folder / name).read_bytes()


def read_archive(path, form):
    """[(name, content)] of the wanted files in a published archive; ValueError if it is any other.

    They are read into memory and recognised by their whole published names, so that no member can be written anywhere,
    whatever its name or the target of its link.
    """
    with open(path, "rb", opener=limits.ordinary) as file:
        if hashlib.file_digest(file, "md5").hexdigest() != form.checksum:
            raise ValueError(f"{path}: the checksum differs from that of the published file; delete it and fetch it anew")
    wanted = {f"{form.folder}/{name}": name for name in form.train + form.test}
    contents = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name in wanted and member.isreg() and member.size <= LARGEST:
                    contents[wanted[member.name]] = archive.extractfile(member).read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path}: truncated or damaged archive ({error}); delete it and fetch it anew") from None
    if missing := [name for name in wanted if wanted[name] not in contents]:
        raise ValueError(f"{path}: without a regular file {missing[0]} of a published size; delete it and fetch it anew")
    return list(contents.items())
