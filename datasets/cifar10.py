"""CIFAR-10 (Krizhevsky 2009): 50,000 + 10,000 colour images of 32 x 32 pixels, in ten classes.

Either of the two published forms, as an archive or as the folder in it, in DIR/cifar10 or DIR: the binary one, whose records
are a byte with the label and 3 x 1,024 bytes of red, green and blue; or pickles of Python 2.

`denoise` is made of it: quarters of the images in grey, with Gaussian noise, and without it as the target. The noise has a
deviation of 30 grey levels of 255, one of the usual ones. Noisy levels are rounded and cut off, as a camera does it.
"""

import hashlib
import pickletools
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gridgrad.datasets import files, images
from gridgrad.datasets.part import MOMENTS, regression
from gridgrad.nn.files import limits

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SHAPE, PIXELS = (32, 32, 3), 3 * 32 * 32
LARGEST = 64 << 20  # bytes of a file; those published have 31 million
MOST = 200_000  # instructions of a pickle; those published have some 50,000
SIDE, QUARTER = 16, 16 * 16  # pixels of a quarter
NOISE = 30  # grey levels
CHUNK = 4000  # the quarters that are converted at a time


def parse_binary(path, content):
    """(pixels, labels) of a file of records: (n, 3072) by channel and (n,)."""
    if not content or len(content) % (1 + PIXELS):
        raise ValueError(f"{path}: {len(content)} bytes are no whole records of {1 + PIXELS}: truncated; fetch it anew")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return records[:, 1:], records[:, 0]


def parse_pickle(path, content):
    """The same of a pickled dict, whose instructions are looked at: none is executed."""
    found, key = {"data": [], "labels": [], "batch_label": [], "filenames": []}, "batch_label"
    try:
        for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
            if count > MOST or instruction.name == "NEWTRUE":  # the latter would say that numbers are in Fortran's order
                raise ValueError(f"instruction {instruction.name}, the number {count} of them")
            if isinstance(argument, str) and argument in found:
                key = argument
            elif instruction.name.endswith(("STRING", "BININT", "BININT1", "BININT2")):
                found[key].append(argument)
    except Exception as error:  # whatever is raised for a damaged file
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise ValueError(f"{path}: not a pickle as it was published ({reason}); fetch it anew") from None
    texts, labels = [text for text in found["data"] if isinstance(text, str)], found["labels"]
    numbers = bool(labels) and all(isinstance(label, int) and label >= 0 for label in labels)
    if not numbers or "u1" not in texts or len(texts[-1]) != PIXELS * len(labels):
        raise ValueError(f"{path}: no {PIXELS} bytes of 'data' for each of the 'labels'; fetch it anew")
    return np.frombuffer(texts[-1].encode("latin-1"), np.uint8).reshape(-1, PIXELS), np.array(labels)


@dataclass(frozen=True)
class Form:
    """One of the published forms: the names, the MD5 of the archive, and the function that reads one of its files."""

    archive: str
    checksum: str
    folder: str
    ending: str
    parse: Callable

    @property
    def names(self):
        """Of all files; the last one is for testing."""
        return [*(f"data_batch_{number}{self.ending}" for number in range(1, 6)), f"test_batch{self.ending}"]

    def read(self, path, content):
        """(images, labels) of a file: (n, 32, 32, 3) and (n,)."""
        pixels, labels = self.parse(path, content)
        if labels.max() >= len(CLASSES):
            raise ValueError(f"{path}: label {labels.max()} is not one of 0 to 9: damaged; fetch it anew")
        return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


FORMS = [
    Form("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin", ".bin", parse_binary),
    Form("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py", "", parse_pickle),
]


def prepare(directory, name="cifar10"):
    """Convert the published files to HDF5, once, and download them if need be."""
    target, folders = converted(directory), (directory / "cifar10", directory)
    # an archive before a folder, since it can be checked
    places = [(form, folder / name) for form in FORMS for name in (form.archive, form.folder) for folder in folders]
    form, path = next((place for place in places if place[1].exists()), places[0])
    if not path.exists():
        if target.exists():
            return
        files.download(URL, f"md5:{form.checksum}", path, "CIFAR-10")
    if path.is_dir() and (missing := [name for name in form.names if not (path / name).is_file()]):
        raise OSError(f"CIFAR-10: no file {path / missing[0]}; put it there, or move the folder away, and all are fetched anew")
    version = files.fingerprint(path, form.names) if path.is_dir() else files.fingerprint(path.parent, [path.name])
    if files.is_current(target, version):
        return
    # There is no published checksum of a single file: in a folder, lengths and labels are all that can be checked.
    content = (lambda name: limits.read_limited(path / name, LARGEST)) if path.is_dir() else read_archive(path, form).get
    *train, test = [form.read(path / name, content(name)) for name in form.names]
    halves = {half: (sum(len(labels) for _, labels in chunks), chunks) for half, chunks in (("train", train), ("test", [test]))}
    images.write_images(target, version, CLASSES, SHAPE, halves)


def load(directory, dtype, name="cifar10"):
    """The Dataset: images of (32, 32, 3) pixels, standardised by channel; labels 0 to 9. Images are mapped, not read."""
    return images.load_images(converted(directory), name, SHAPE, dtype)


def converted(directory, name="cifar10"):
    return directory / "cifar10" / f"{name}.h5"


def read_archive(path, form):
    """{name: content} of the wanted files in a published archive, known by their whole names: none is written anywhere."""
    with open(path, "rb", opener=limits.ordinary) as file:
        if hashlib.file_digest(file, "md5").hexdigest() != form.checksum:
            raise ValueError(f"{path}: the checksum differs from that of the published file; delete it and fetch it anew")
    wanted, contents = {f"{form.folder}/{name}": name for name in form.names}, {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name in wanted and member.isreg() and member.size <= LARGEST:
                    contents[wanted[member.name]] = archive.extractfile(member).read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path}: truncated or damaged archive ({error}); delete it and fetch it anew") from None
    if missing := [name for name in wanted if wanted[name] not in contents]:
        raise ValueError(f"{path}: without a regular file {missing[0]} of a published size; delete it and fetch it anew")
    return contents


def prepare_denoise(directory, name="denoise"):
    """Make it of CIFAR-10, once."""
    prepare(directory)
    target = converted(directory, name)
    source = f"{files.attributes(converted(directory)).get('source')}, noise {NOISE}, side {SIDE}"
    if files.is_current(target, source):
        return
    data, random = load(directory, np.float32), np.random.default_rng(0)
    halves, moments = {"train": data.train, "test": data.test}, {name: images.ChannelMoments(1) for name in "xy"}
    arrays = {f"{half}/{name}": ((4 * len(part), QUARTER), np.uint8) for half, part in halves.items() for name in "xy"}
    with files.creating(target, arrays) as file:
        for half, part in halves.items():
            for start in range(0, 4 * len(part), CHUNK):
                whole = np.rint(part.x[start // 4 : (start + CHUNK) // 4].mean(axis=3)).reshape(-1, 2, SIDE, 2, SIDE)
                grey = whole.transpose(0, 1, 3, 2, 4).reshape(-1, QUARTER)  # the quarters of each image, one after another
                noisy = np.clip(np.rint(grey + NOISE * random.standard_normal(grey.shape)), 0, 255)
                for name, levels in (("x", noisy), ("y", grey)):
                    levels = levels.astype(np.uint8)
                    file[f"{half}/{name}"][start : start + len(levels)] = levels
                    if half == "train":
                        moments[name].add(levels[..., np.newaxis])
        for name, of_pixels in moments.items():
            file.attrs[f"{name}_mean"], file.attrs[f"{name}_std"] = of_pixels.result()
        file.attrs["source"] = source


def load_denoise(directory, dtype, name="denoise"):
    """The Dataset: the 256 noisy grey levels of a quarter to those without noise. Rows are mapped, not read."""
    path = converted(directory, name)
    train, test = (files.map_pair(path, half, *[((QUARTER,), np.uint8)] * 2) for half in ("train", "test"))
    fitted = files.vectors(path, dict.fromkeys(MOMENTS, 1))
    return regression(name, train, test, "grey levels", dtype, fitted=fitted)
