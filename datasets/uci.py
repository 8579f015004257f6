"""Two regressions of the UCI repository, both CC BY 4.0.

`airfoil`: NASA airfoil self-noise (UCI 291; Brooks, Pope and Marcolini 1989), 1,503 samples, in this folder. Columns: frequency
(Hz), angle (degrees), chord (m), velocity (m/s), displacement thickness (m), and the sound pressure (dB) to predict. Laugier et
al. 2018 use four features without naming them: `airfoil` takes the first four, `airfoil5` all.

`ethylene`: gas sensors under mixtures of ethylene and methane (UCI 322; Fonollosa et al. 2015). A header line, and 4,178,504
lines of 19 columns: time (s), methane, ethylene (ppm) and 16 sensors. Laugier et al. 2018 train on 700,000 of them: the first
ones are taken, every tenth for testing. `ethylene-synthetic` is made up and has the same shape.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from gridgrad.datasets import files
from gridgrad.datasets.part import MOMENTS, moments, regression
from gridgrad.datasets.stored import read_table
from gridgrad.nn.files import limits
from gridgrad.nn.files.whole_files import written_whole

AIRFOIL, ROWS, TEST_ROWS = "airfoil_self_noise.dat", 1503, 301
ETHYLENE, COLUMNS, SAMPLES = "ethylene_methane.txt", 19, 700_000
SENSORS, GASES = 16, 2
BLOCK = 1 << 20  # bytes of the text that are unpacked at a time
LARGEST = 1 << 30  # bytes of the text; the one published has 640 million
URL = "https://archive.ics.uci.edu/static/public/322/gas+sensor+array+under+dynamic+gas+mixtures.zip"
CHECKSUM = "sha1:12dd9c43e621d56b53f2f8894dddd6e410283d47"  # UCI publishes none: as users of its archive have recorded it


def load_airfoil(directory, dtype, name):
    """The Dataset; a file of the published name in the data directory is preferred to the project's own."""
    path = files.find([directory], [AIRFOIL]) or Path(__file__).parent / AIRFOIL
    table = read_table(path, columns=6, most=ROWS + 1)
    if len(table) != ROWS:
        raise ValueError(f"{path}: {len(table)} rows, expected {ROWS}: the file is truncated or not the published one")
    table = np.random.default_rng(0).permutation(table)  # the file is sorted by experiment
    x, y = np.ascontiguousarray(table[:, : {"airfoil": 4, "airfoil5": 5}[name]]), table[:, 5:]
    cut = ROWS - TEST_ROWS
    return regression(name, (x[:cut], y[:cut]), (x[cut:], y[cut:]), "dB", dtype)


def prepare_ethylene(directory, name):
    """Convert the published text to HDF5, once, and download it if need be."""
    text, target = files.find([directory / "ethylene", directory], [ETHYLENE]), converted(directory, name)
    if text is None:
        if target.exists():
            return
        archive = directory / "ethylene" / "ethylene.zip"
        if not archive.exists():
            files.download(URL, CHECKSUM, archive, "ethylene (or use --dataset ethylene-synthetic)")
        text = archive.parent / ETHYLENE
        with written_whole(text) as beside, open(beside, "wb") as file:
            file.writelines(unpacked(archive))
    version = files.fingerprint(text.parent, [ETHYLENE])
    if files.is_current(target, version):
        return
    table = read_table(text, COLUMNS, skip=1, most=SAMPLES)
    if len(table) < 10:
        raise ValueError(f"{text}: {len(table)} rows of data: the file is empty or truncated; fetch it anew")
    write(target, table[:, 3:], table[:, 1:3], version)


def unpacked(archive):
    """Yields the text in an archive, block by block; ValueError if it is not there or can not be read."""
    try:
        with (
            open(archive, "rb", opener=limits.ordinary) as packed,
            zipfile.ZipFile(packed) as file,
            file.open(ETHYLENE) as text,
        ):
            if file.getinfo(ETHYLENE).file_size > LARGEST:
                raise ValueError(f"more than {LARGEST} bytes")
            while block := text.read(BLOCK):
                yield block
    except (zipfile.BadZipFile, zlib.error, EOFError, LookupError, OSError, RuntimeError, ValueError) as error:
        # OSError of a seek to a negative place, RuntimeError of an encrypted file, ValueError of a name that is no text
        raise ValueError(f"{archive}: damaged, or without {ETHYLENE} ({error}); delete it, and it is fetched anew") from None


def prepare_synthetic(directory, name):
    """Make the samples, once: concentrations that jump every few minutes, and sensors that follow, saturate, and are noisy."""
    target, rng = converted(directory, name), np.random.default_rng(0)
    if not target.exists():
        jumps = np.arange(SAMPLES) // 10_000
        y = rng.uniform(0, [300, 20], (jumps[-1] + 1, GASES))[jumps]  # ppm
        response = y @ (rng.uniform(0.2, 1.0, (GASES, SENSORS)) * [[1 / 300], [1 / 20]])
        x = 2000 + 3000 * response / (1 + response) + rng.normal(0, 20, (SAMPLES, SENSORS))
        write(target, x, y, "synthetic")


def load_ethylene(directory, dtype, name):
    """The Dataset: 16 sensors to the concentrations of methane and ethylene (ppm). Rows are mapped, not read."""
    path = converted(directory, name)
    train, test = (files.map_pair(path, half, ((SENSORS,), np.float32), ((GASES,), np.float32)) for half in ("train", "test"))
    fitted = files.vectors(path, dict(zip(MOMENTS, (SENSORS, SENSORS, GASES, GASES))))
    return regression(name, train, test, "ppm", dtype, name == "ethylene-synthetic", fitted)


def converted(directory, name):
    return directory / "ethylene" / f"{name}.h5"


def write(path, x, y, source):
    """Split the samples into training and test rows, and write both with the moments of the training rows."""
    test = np.arange(len(x)) % 10 == 9
    fitted = dict(zip(MOMENTS, (*moments(x[~test]), *moments(y[~test]))))
    arrays = {"train/x": x[~test], "train/y": y[~test], "test/x": x[test], "test/y": y[test]}
    files.write(path, {name: array.astype(np.float32) for name, array in arrays.items()}, {"source": source} | fitted)
