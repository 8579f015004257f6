"""Folders of images: FOLDER/train/CLASS/*.jpg (or another of the ENDINGS), and FOLDER/test or FOLDER/val likewise.

Each image is scaled so that its shorter side is SIZE pixels, and the SIZE x SIZE pixels in its middle are kept, in three
colours. The orientation in EXIF is ignored, as training programs do. What is transparent has the colour that lies there. Of
several pictures in a file the first is taken.
"""

import hashlib
import math
import os
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from tqdm import tqdm

from gridgrad.datasets import rows
from gridgrad.datasets.files import fingerprint
from gridgrad.nn.files import limits

PREFIX, SIZE, LARGEST = "images:", 224, 4096
NAME = f"{PREFIX}FOLDER[,size={SIZE}]"
ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # no other decoder sees a file: one starts programs
CHUNK = 256  # images in memory at most, and no more of them than have the bytes of limits.BUDGET
THREADS = min(32, (os.cpu_count() or 1) + 4)
NAMED = 5  # files in a message


def parse(name):
    """(folder, size) of a name such as "images:flowers,size=64"; ValueError saying what is accepted."""
    folder, comma, size = name.removeprefix(PREFIX).partition(",size=")
    if not folder:
        raise ValueError(f"data set '{name}' names no folder: use {NAME}")
    if comma and not (size.isascii() and size.isdigit() and 1 <= int(size[:9]) <= LARGEST):
        raise ValueError(f"data set '{name}': size must be a whole number of at least 1 and at most {LARGEST}, not '{size}'")
    return os.path.normpath(os.path.expanduser(folder)), int(size) if comma else SIZE


def prepare(directory, name):
    """Convert the folder (a path, or one in the data directory) to HDF5, once; by one process, before the others load."""
    text, size = parse(name)
    folder, target = located(directory, text), converted(directory, name)
    if not folder.is_dir():
        hint = "give one that holds train/CLASS/*.jpg and test/CLASS/*.jpg, or --data-dir"
        raise OSError(f"images: no folder {text} in {os.getcwd()} or {directory}; {hint}")
    classes, files, note = survey(folder)
    version = fingerprint(folder, [path for half in files.values() for path, _ in half]) + note
    if rows.is_current(target, version):
        return
    with tqdm(total=sum(map(len, files.values())), desc="converting", unit=" images", delay=2, disable=None) as bar:
        halves = {half: (len(found), chunks(folder, found, size, bar)) for half, found in files.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decoders', about what does not matter
            warnings.simplefilter("error", Image.DecompressionBombWarning)  # few bytes, but pixels that fill the memory
            rows.write_images(target, version, classes, (size, size, 3), halves, note)


def load(directory, dtype, name):
    """The Dataset: images of (SIZE, SIZE, 3) pixels, standardised by channel. They are mapped, not read."""
    _, size = parse(name)
    return rows.load_images(converted(directory, name), name, (size, size, 3), dtype)


def located(directory, text):
    """The absolute path of a folder: in the current one, if it is there or nowhere, else in the data directory."""
    here, there = Path(text).absolute(), directory.absolute() / text
    return there if there.is_dir() and not here.is_dir() else here


def converted(directory, name):
    """The path of the converted file: in the data directory, since the folder may be read-only, with a name for each path."""
    text, size = parse(name)
    folder = os.fsencode(located(directory, text))
    return directory / f"{quote(os.path.basename(folder))[:100]}-{size}-{hashlib.sha256(folder).hexdigest()[:16]}.h5"


def survey(folder):
    """(classes, files, note): names in order, {"train" or "test": [(path in the folder, label)]}, what is not taken."""
    (train, others), *tests = (listing(folder, half) for half in ("train", "test", "val"))
    test, more = next((found for found in tests if any(found[0].values())), ({}, []))  # ImageNet has its labels in val alone
    for found, half in ((train, "train"), (test, "test or val")):
        if not any(found.values()):
            raise ValueError(f"{folder}: no images {half}/CLASS/*{ENDINGS[0]} (or {', '.join(ENDINGS[1:])}); put them there")
    if empty := [label for label in [*train, *(label for label in test if test[label])] if not train.get(label)]:
        raise ValueError(f"{folder}: no images of the class {empty[0]} in train; put some there or remove its folders")
    numbers = {label: number for number, label in enumerate(train)}
    train, test = ([(path, numbers[label]) for label, paths in found.items() for path in paths] for found in (train, test))
    return list(numbers), {"train": train, "test": test}, left_out(others + more)


def listing(folder, half):
    """({class: paths of HALF/CLASS/*}, paths of what else is there), sorted, without hidden files; folders end in /."""

    def entries(path):
        shown = (found for found in os.scandir(folder / path) if not found.name.startswith("."))
        return sorted(f"{path}/{found.name}" + "/" * found.is_dir() for found in shown)

    top = entries(half) if (folder / half).is_dir() else []
    classes, others = {}, [path for path in top if not path.endswith("/")]
    for path in (path for path in top if path.endswith("/")):
        found = entries(path[:-1])
        classes[path.split("/")[1]] = [name for name in found if name.lower().endswith(ENDINGS)]
        others += [name for name in found if not name.lower().endswith(ENDINGS)]
    return classes, others


def left_out(paths):
    """What is not taken, in a line: how many files of which ending, and which folders; "" if there is nothing."""
    folders = [path for path in paths if path.endswith("/")]
    endings = Counter(os.path.splitext(path)[1].lower() or "without ending" for path in paths if not path.endswith("/"))
    counts, rest = endings.most_common(NAMED), endings.total() - sum(count for _, count in endings.most_common(NAMED))
    said = [", ".join([f"{count} {ending}" for ending, count in counts] + [f"{rest} others"] * bool(rest)), listed(folders)]
    whats = "files that are not taken", "folders in classes that are not taken"
    text = "; ".join(f"{what}: {names}" for what, names in zip(whats, said) if names)
    return text.encode(errors="backslashreplace").decode()


def listed(names):
    return ", ".join(names[:NAMED]) + ", .." * (len(names) > NAMED)


def chunks(folder, files, size, bar):
    """Yields (images, labels) of (path, label) pairs, in order, decoded by threads; in the end, ValueError for damaged ones."""
    damaged, step = [], max(1, min(CHUNK, limits.BUDGET // (6 * size**2)))  # there are two of each while they are stacked
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(files), step):
            some = files[start : start + step]
            decoded = pool.map(lambda file: read(folder / file[0], size, THREADS), some)
            decoded = [read(folder / name, size) if image is None else image for image, (name, _) in zip(list(decoded), some)]
            damaged += [image for image in decoded if isinstance(image, str)]
            bar.update(len(some))
            if not damaged:
                yield np.stack(decoded), [label for _, label in some]
    check(damaged)


def check(damaged):
    """ValueError that names some of these files, if there are any."""
    if damaged:
        more = f" and {len(damaged) - NAMED} more" * (len(damaged) > NAMED)
        raise ValueError(f"damaged or no images: {', '.join(damaged[:NAMED])}{more}; mend or remove them")


class Files:
    """The images anywhere in the folder of a name such as "images:FOLDER", as an array: decoded where they are indexed."""

    dtype = np.dtype(np.uint8)

    def __init__(self, directory, name, size):
        folder = located(directory, parse(name)[0])
        self.files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
        self.shape = (len(self.files), size, size, 3)
        if not self.files:
            raise OSError(f"images: no images ({', '.join(ENDINGS)}) in {folder}; give the folder that has some")

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        samples, *block = index if isinstance(index, tuple) else (index,)
        numbers = np.arange(len(self))[samples]
        found = [read(self.files[i], self.shape[1]) for i in numbers.ravel()]
        check([image for image in found if isinstance(image, str)])
        return np.array(found, self.dtype).reshape(*numbers.shape, *self.shape[1:])[(..., *(block or [slice(None)] * 3))]


def read(path, size, threads=1):
    """The image, (size, size, 3) of uint8, or a text that names the file and says why there is none.

    threads: how many decode images meanwhile; None for an image that needs more than its part of limits.BUDGET.
    """
    most = limits.BUDGET // 4  # pixels, of which each takes 4 bytes
    try:
        with open(path, "rb", opener=limits.ordinary) as file, Image.open(file, formats=FORMATS) as image:
            tile = math.prod(getattr(image, "tag_v2", {}).get(side, 1) for side in (322, 323))  # of TIFF, held as a whole
            if max(image.width * image.height, tile) > most:
                raise Image.DecompressionBombError
            image.draft("RGB", (2 * size, 2 * size))  # JPEG: decode no more than scaling down needs
            if image.width * image.height > most // threads:
                return None
            image.load()
            return np.asarray(ImageOps.fit(three_colours(image), (size, size), Image.Resampling.BILINEAR))
    except UnidentifiedImageError:
        return f"{path} (of none of the formats {', '.join(FORMATS)})"
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        return f"{path} (more than {most} pixels, perhaps a decompression bomb)"
    except Exception as error:  # decoders fail in many ways
        return f"{path} ({' '.join(str(error).split())[:80] or type(error).__name__})"


def three_colours(image):
    """The image in RGB. Pillow clips grey levels of more than 8 bits. ValueError if nobody knows what is white."""
    if image.mode[0] not in "IF":
        return image if image.mode == "RGB" else image.convert("RGB")
    tags = getattr(image, "tag_v2", {})  # of TIFF: 258 is the number of bits, 262 is 0 if 0 is white
    if image.mode == "F" or image.mode == "I" and image.format not in ("PNG", "PPM") or tags.get(262) == 0:
        raise ValueError("grey levels of 32 bits, or with white at 0; write it with 8 or 16 bits")
    grey = np.asarray(image) >> (min(tags.get(258, (16,))) - 8)
    return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
