"""Gas sensors under dynamic mixtures of ethylene and methane (UCI 322, CC BY 4.0; Fonollosa et al. 2015).

The published text has one header line, then 4,178,504 lines of 19 columns: time (s), methane (ppm), ethylene (ppm)
and 16 sensors, at 100 Hz. Laugier et al. 2018 train on 700,000 x 16 inputs and 2 outputs without saying which rows:
the first 700,000 are taken. Every tenth row is for testing. UCI publishes no checksum; the one below is what users of
its archive have recorded.

`ethylene-synthetic` is made up, has the same shape, and is called synthetic wherever it appears.
"""

import zipfile
import zlib

import numpy as np

from gridgrad.datasets import rows
from gridgrad.datasets.files import download, find, fingerprint
from gridgrad.datasets.part import moments, regression
from gridgrad.datasets.text import read_table
from gridgrad.nn.files import limits
from gridgrad.nn.files.whole_files import written_whole

NAME, COLUMNS, SAMPLES = "ethylene_methane.txt", 19, 700_000
SENSORS, GASES = 16, 2
BLOCK = 1 << 20  # bytes of the text that are unpacked at a time
LARGEST = 1 << 30  # bytes of the text; the one published has 640 million
URL = "https://archive.ics.uci.edu/static/public/322/gas+sensor+array+under+dynamic+gas+mixtures.zip"
CHECKSUM = "sha1:12dd9c43e621d56b53f2f8894dddd6e410283d47"


def prepare(directory):
    """Convert the published text to HDF5, once, and download it if need be; by one process, before the others load."""
    text, target = locate(directory), converted(directory, "ethylene")
    if text is None:
        if target.exists():
            return
        archive = directory / "ethylene" / "ethylene.zip"
        if not archive.exists():
            download(URL, CHECKSUM, archive, "ethylene (or use --dataset ethylene-synthetic)")
        text = extract(archive)
    version = fingerprint(text.parent, [NAME])
    if rows.is_current(target, version):
        return
    table = read_table(text, COLUMNS, skip=1, most=SAMPLES)
    if len(table) < 10:
        raise ValueError(f"{text}: {len(table)} rows of data: the file is empty or truncated; fetch it anew")
    write(target, table[:, 3:], table[:, 1:3], version)


def locate(directory):
    """The published text, or None."""
    return find([directory / "ethylene", directory], [NAME])


def extract(archive):
    """Write the one text that is wanted beside the archive, whatever else it holds; ValueError if it is not there."""
    with written_whole(archive.parent / NAME) as beside, open(beside, "wb") as target:
        for block in unpacked(archive):
            target.write(block)
    return archive.parent / NAME


def unpacked(archive):
    """Yields the text in an archive, block by block; ValueError if it is not there or can not be read."""
    try:
        with open(archive, "rb", opener=limits.ordinary) as packed, zipfile.ZipFile(packed) as file, file.open(NAME) as source:
            if file.getinfo(NAME).file_size > LARGEST:
                raise ValueError(f"more than {LARGEST} bytes")
            while block := source.read(BLOCK):
                yield block
    except (zipfile.BadZipFile, zlib.error, EOFError, LookupError, OSError, RuntimeError, ValueError) as error:
        # OSError of a seek to a negative place, RuntimeError of an encrypted file, ValueError of a name that is no text
        raise ValueError(f"{archive}: damaged, or without {NAME} ({error}); delete it, and it is fetched anew") from None


def prepare_synthetic(directory):
    """Make the synthetic samples, once; by one process, before the others load."""
    target = converted(directory, "ethylene-synthetic")
    if not target.exists():
        x, y = synthetic(SAMPLES)
        write(target, x, y, "synthetic")


def load(directory, dtype, name="ethylene"):
    """The Dataset: 16 sensors to the concentrations of methane and ethylene (ppm). Rows are mapped, not read."""
    path = converted(directory, name)
    train, test = (rows.map_pair(path, half, ((SENSORS,), np.float32), ((GASES,), np.float32)) for half in ("train", "test"))
    fitted = rows.vectors(path, {"x_mean": SENSORS, "x_std": SENSORS, "y_mean": GASES, "y_std": GASES})
    return regression(name, train, test, "ppm", dtype, name == "ethylene-synthetic", fitted)


def converted(directory, name):
    return directory / "ethylene" / f"{name}.h5"


def write(path, x, y, source):
    """Split the samples into training and test rows, and write both with the moments of the training rows."""
    test = np.arange(len(x)) % 10 == 9
    fitted = *moments(x[~test]), *moments(y[~test])
    arrays = {"train/x": x[~test], "train/y": y[~test], "test/x": x[test], "test/y": y[test]}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    rows.write(path, arrays, {"source": source} | dict(zip(("x_mean", "x_std", "y_mean", "y_std"), fitted)))


def synthetic(samples, seed=0):
    """(x, y): concentrations that jump every few minutes, and 16 sensors that follow them, saturate, and are noisy."""
    rng = np.random.default_rng(seed)
    jumps = np.arange(samples) // 10_000
    levels = rng.uniform(0, [300, 20], (jumps[-1] + 1, GASES)) if samples else np.empty((1, GASES))  # ppm
    y = levels[jumps]
    gain = rng.uniform(0.2, 1.0, (GASES, SENSORS)) * [[1 / 300], [1 / 20]]
    response = y @ gain
    x = 2000 + 3000 * response / (1 + response) + rng.normal(0, 20, (samples, SENSORS))
    return x, y
