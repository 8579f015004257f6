"""Folders of images, FOLDER/train/CLASS/*.jpg (or another of the ENDINGS) and FOLDER/test or FOLDER/val likewise.

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

from gridgrad.datasets import files
from gridgrad.datasets.part import Dataset, Made, Part
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
    """Convert the folder (a path, or one in the data directory) to HDF5, once."""
    text, size = parse(name)
    folder, target = located(directory, text), converted(directory, name)
    if not folder.is_dir():
        hint = "give one that holds train/CLASS/*.jpg and test/CLASS/*.jpg, or --data-dir"
        raise OSError(f"images: no folder {text} in {os.getcwd()} or {directory}; {hint}")
    classes, found, note = survey(folder)
    version = files.fingerprint(folder, [path for half in found.values() for path, _ in half]) + note
    if files.is_current(target, version):
        return
    with tqdm(total=sum(map(len, found.values())), desc="converting", unit=" images", delay=2, disable=None) as bar:
        halves = {half: (len(pairs), chunks(folder, pairs, size, bar)) for half, pairs in found.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decoders', about what does not matter
            warnings.simplefilter("error", Image.DecompressionBombWarning)  # few bytes, but pixels that fill the memory
            write_images(target, version, classes, (size, size, 3), halves, note)


def load(directory, dtype, name):
    """The Dataset: images of (SIZE, SIZE, 3) pixels, standardised by channel. They are mapped, not read."""
    _, size = parse(name)
    return load_images(converted(directory, name), name, (size, size, 3), dtype)


def new_images(directory, name, size):
    """The images anywhere in the folder of a name, as an array, (n, size, size, 3): decoded where they are indexed."""
    folder = located(directory, parse(name)[0])
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    if not paths:
        raise OSError(f"images: no images ({', '.join(ENDINGS)}) in {folder}; give the folder that has some")

    def decoded(numbers):
        found = [read(paths[i], size) for i in numbers]
        refuse([image for image in found if isinstance(image, str)])
        return np.array(found, np.uint8)

    images = Made((len(paths), size, size, 3), np.uint8, decoded)
    images.files = paths
    return images


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
    """(classes, pairs, note): names in order, {"train" or "test": [(path in the folder, label)]}, what is not taken."""
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

    classes, others = {}, []
    for path in entries(half) if (folder / half).is_dir() else []:
        if path.endswith("/"):
            found = entries(path[:-1])
            classes[path.split("/")[1]] = [name for name in found if name.lower().endswith(ENDINGS)]
            others += [name for name in found if not name.lower().endswith(ENDINGS)]
        else:
            others.append(path)
    return classes, others


def left_out(paths):
    """What is not taken, in a line: how many files of which ending, and which folders; "" if there is nothing."""
    folders = [path for path in paths if path.endswith("/")]
    endings = Counter(os.path.splitext(path)[1].lower() or "without ending" for path in paths if not path.endswith("/"))
    counts = [f"{count} {ending}" for ending, count in endings.most_common(NAMED)]
    if len(endings) > NAMED:
        counts.append(f"{sum(count for _, count in endings.most_common()[NAMED:])} others")
    words = [f"files that are not taken: {', '.join(counts)}"] if counts else []
    if folders:
        words.append(f"folders in classes that are not taken: {files.listed(folders, NAMED)}")
    return "; ".join(words).encode(errors="backslashreplace").decode()


def chunks(folder, pairs, size, bar):
    """Yields (images, labels) of (path, label) pairs, in order, decoded by threads; in the end, ValueError for damaged ones."""
    damaged, step = [], max(1, min(CHUNK, limits.BUDGET // (6 * size**2)))  # there are two of each while they are stacked
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(pairs), step):
            some = pairs[start : start + step]
            decoded = pool.map(lambda file: read(folder / file[0], size, THREADS), some)
            decoded = [read(folder / name, size) if image is None else image for image, (name, _) in zip(list(decoded), some)]
            damaged += [image for image in decoded if isinstance(image, str)]
            bar.update(len(some))
            if not damaged:
                yield np.stack(decoded), [label for _, label in some]
    refuse(damaged)


def refuse(damaged):
    """ValueError that names some of these files, if there are any."""
    if damaged:
        more = f" and {len(damaged) - NAMED} more" * (len(damaged) > NAMED)
        raise ValueError(f"damaged or no images: {', '.join(damaged[:NAMED])}{more}; mend or remove them")


def read(path, size, threads=1):
    """The image, (size, size, 3) of uint8, or a text that names the file and says why there is none. threads: how many decode
    images meanwhile; None for an image that needs more than its part of limits.BUDGET."""
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


class ChannelMoments:
    """Mean and deviation of each channel over all pixels, added up in whole numbers: exact, however images are cut."""

    def __init__(self, channels):
        self.count, self.sums, self.squares = 0, np.zeros(channels, np.int64), np.zeros(channels, np.int64)

    def add(self, images):
        """images: (n, height, width, channels) of uint8."""
        self.count += images[..., 0].size
        for channel in range(images.shape[-1]):
            values = np.ascontiguousarray(images[..., channel])
            self.sums[channel] += values.sum(dtype=np.int64)
            self.squares[channel] += np.square(values, dtype=np.uint32).sum(dtype=np.int64)

    def result(self):
        """(mean, deviation), the latter 1 where a channel is constant: float64."""
        spread = [self.count * int(q) - int(s) ** 2 for s, q in zip(self.sums, self.squares)]  # Python's: no overflow
        return self.sums / self.count, np.array([v**0.5 / self.count if v else 1.0 for v in spread])


def write_images(path, source, classes, shape, halves, note=""):
    """Write all images and labels, a chunk at a time, with the moments of the training images. shape: of an image. halves:
    {"train" or "test": (number of images, iterable of (images, labels))}. note: of the Dataset."""
    moments = ChannelMoments(shape[-1])
    arrays = {f"{half}/x": ((count, *shape), np.uint8) for half, (count, _) in halves.items()}
    arrays |= {f"{half}/y": ((count,), np.int32) for half, (count, _) in halves.items()}
    with files.creating(path, arrays) as file:
        for half, (_, chunks) in halves.items():
            start = 0
            for images, labels in chunks:
                stop = start + len(images)
                file[f"{half}/x"][start:stop], file[f"{half}/y"][start:stop] = images, labels
                start = stop
                if half == "train":
                    moments.add(images)
        mean, std = moments.result()
        classes = [os.fsencode(name).decode(errors="backslashreplace") for name in classes]  # of folders, which may be no UTF-8
        file.attrs.update({"source": source, "classes": classes, "x_mean": mean, "x_std": std, "note": note})


def load_images(path, name, shape, dtype):
    """The Dataset that was written; its images are mapped, and standardised by channel. ValueError if the file is damaged."""
    classes, note = files.texts(path, "classes"), files.attributes(path).get("note", "")
    if not isinstance(note, str):
        raise ValueError(f"{path}: its note is damaged; {files.ANEW}")
    mean, std = files.vectors(path, {"x_mean": shape[-1], "x_std": shape[-1]})
    parts = []
    for half in ("train", "test"):
        x, y = files.map_pair(path, half, (shape, np.uint8), ((), np.int32))
        if y.min() < 0 or y.max() >= len(classes):
            raise ValueError(f"{path}: {half}/y has labels that are none of {len(classes)} classes; {files.ANEW}")
        parts.append(Part(x, y, mean, std, dtype=dtype))
    return Dataset(name, *parts, "cross-entropy", len(classes), "", note=note, classes=classes)
