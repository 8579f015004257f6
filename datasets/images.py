"""Folders of images: FOLDER/train/CLASS/*.jpg (.jpeg, .png, .bmp, .gif, .webp) and FOLDER/test or FOLDER/val likewise.

Each image is scaled so that its shorter side is SIZE pixels, and the SIZE x SIZE pixels in its middle are kept, in
three colours. The orientation in EXIF is ignored, as training programs do.
"""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from tqdm import tqdm

from gridgrad.datasets import labelled, rows
from gridgrad.datasets.files import fingerprint

PREFIX, SIZE, LARGEST = "images:", 224, 4096
NAME = f"{PREFIX}FOLDER[,size={SIZE}]"
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP")  # whatever a file is called, no other decoder sees it: one starts programs
CHUNK = 256  # images in memory
NAMED = 5  # damaged files in a message


def parse(name):
    """(folder, size) of a name such as "images:flowers,size=64"; ValueError saying what is accepted."""
    folder, comma, size = name.removeprefix(PREFIX).partition(",size=")
    if not folder:
        raise ValueError(f"data set '{name}' names no folder: use {NAME}")
    if comma and not (size.isascii() and size.isdigit() and 1 <= int(size[:9]) <= LARGEST):
        raise ValueError(f"data set '{name}': size must be a whole number of at least 1 and at most {LARGEST}, not '{size}'")
    return os.path.normpath(os.path.expanduser(folder)), int(size) if comma else SIZE


def prepare(directory, name):
    """Convert the folder (a path, or one in the data directory) to HDF5, once; by one process, before the others load.

    OSError if there is no such folder; ValueError naming what is wrong with it, or the files in it that are no images.
    """
    text, size = parse(name)
    target = converted(directory, name)
    folder = next((one for one in (Path(text).absolute(), directory / text) if one.is_dir()), None)
    if folder is None:
        if target.exists():
            return
        raise OSError(f"images: no folder {text} in {os.getcwd()} or {directory}; give one that holds train/CLASS/*.jpg and "
                      "test/CLASS/*.jpg, or --data-dir")  # fmt: skip
    classes, files = survey(folder)
    version = fingerprint(folder, [path for half in files.values() for path, _ in half])
    if rows.is_current(target, version):
        return
    with tqdm(total=sum(map(len, files.values())), desc="converting", unit=" images", delay=2, disable=None) as bar:
        halves = {half: (len(found), chunks(folder, found, size, bar)) for half, found in files.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decoders', about what does not matter
            warnings.simplefilter("error", Image.DecompressionBombWarning)  # few bytes, but pixels that fill the memory
            labelled.write(target, version, classes, (size, size, 3), halves)


def load(directory, dtype, name):
    """The Dataset: images of (SIZE, SIZE, 3) pixels, standardised by channel. They are mapped, not read."""
    _, size = parse(name)
    return labelled.load(converted(directory, name), name, (size, size, 3), dtype)


def converted(directory, name):
    """The path of the converted file: in the data directory, since the folder may be read-only, with a name for each path."""
    folder, size = parse(name)
    return directory / f"{quote(folder, safe='')}-{size}.h5"


def survey(folder):
    """(classes, files): names in order, and {"train" or "test": [(path relative to the folder, label)]}.

    ValueError if there is nothing to train on or to test, or for a class without training images.
    """
    train = listing(folder, "train")
    tests = [listing(folder, half) for half in ("test", "val")]  # that of ImageNet has its labels in val alone
    test = next((found for found in tests if any(found.values())), {})
    for found, half in ((train, "train"), (test, "test or val")):
        if not any(found.values()):
            raise ValueError(f"{folder}: no images {half}/CLASS/*{ENDINGS[0]} (or {', '.join(ENDINGS[1:])}); put them there")
    for label in [*train, *(label for label in test if test[label])]:
        if not train.get(label):
            raise ValueError(f"{folder}: no images of the class {label} in train; put some there or remove its folders")
    numbers = {label: number for number, label in enumerate(train)}
    train, test = ([(path, numbers[label]) for label, paths in found.items() for path in paths] for found in (train, test))
    return list(numbers), {"train": train, "test": test}


def listing(folder, half):
    """{class: [path relative to the folder]} of HALF/CLASS/*, in the order of their names; {} without such folders."""
    root = folder / half
    classes = sorted(found.name for found in os.scandir(root) if found.is_dir()) if root.is_dir() else []
    return {
        label: sorted(f"{half}/{label}/{name}" for name in os.listdir(root / label)
                      if name.lower().endswith(ENDINGS) and not name.startswith("."))
        for label in classes if not label.startswith(".")
    }  # fmt: skip


def chunks(folder, files, size, bar):
    """Yields (images, labels) of (path, label) pairs, in order, decoded by threads.

    ValueError at the end, when all damaged files are known, if there are any.
    """
    damaged = []
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(files), CHUNK):
            some = files[start : start + CHUNK]
            decoded = list(pool.map(lambda file: read(folder / file[0], size), some))
            damaged += [image for image in decoded if isinstance(image, str)]
            bar.update(len(some))
            if not damaged:
                yield np.stack(decoded), [label for _, label in some]
    if damaged:
        more = f" and {len(damaged) - NAMED} more" * (len(damaged) > NAMED)
        raise ValueError(f"damaged or no images: {', '.join(damaged[:NAMED])}{more}; mend or remove them")


def read(path, size):
    """The image, (size, size, 3) of uint8, or a text that names the file and says why there is none."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            image.draft("RGB", (2 * size, 2 * size))  # JPEG: decode no more than scaling down needs
            image = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
            return np.asarray(image)
    except UnidentifiedImageError:
        return f"{path} (of none of the formats {', '.join(FORMATS)})"
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        return f"{path} (more than {Image.MAX_IMAGE_PIXELS} pixels, perhaps a decompression bomb)"
    except Exception as error:  # decoders fail in many ways
        reason = " ".join(str(error).split())[:80]
        return f"{path} ({reason or type(error).__name__})"
