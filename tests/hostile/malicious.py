"""Files made to do harm: whatever reads them refuses them in one line, or finds in them nothing but what they hold."""

import gzip
import io
import json
import math
import os
import pickle
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from gridgrad import datasets
from gridgrad.nn import Linear, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.nodes import launcher_options, nodes_in
from tests.fuzz import table as fuzzed
from tests.fuzz.target import Target
from tests.fuzz.targets_data_sets import digits, idx, used
from tests.fuzz.targets_documents import machines
from tests.hostile.case import Case
from tests.hostile.programs import program


def nodes(path):
    """The options that a launcher gets: none of them may be taken for another one."""
    found = nodes_in(path)
    assert not any(name.startswith("-") or not name.isascii() for name in found), found
    launcher_options("srun", found, 2)


def job_script(path):
    """What `slurm` makes of a site, as bash runs it where no command is found but `touch`: no text of it is one."""
    return program("slurm", "--site", path.name, "--gpus", "1", "--out", "job.sh", "--account", "me", "--", "train")(
        path.parent
    )


FILES = {target.name: target for target in fuzzed.TARGETS if not target.name.startswith(("option", "table name"))}
FILES |= {"nodes": Target("nodes", lambda: (b"a:2\nb slots=3\n",), None, nodes, "nodes.txt", says=("nodes",))}
NO_BYTES = "table converted", "job sites"  # their readers here read the bytes themselves, or another file


def of_file(name, label, content, right=lambda value, folder: True, read=None):
    """A Case of one of FILES. content: bytes, or what makes the file at a path."""
    target = FILES[name]
    path = lambda folder: folder / target.file  # noqa: E731

    def make(folder):
        target.around(folder)
        path(folder).parent.mkdir(parents=True, exist_ok=True)
        path(folder).unlink(missing_ok=True)
        content(path(folder)) if callable(content) else path(folder).write_bytes(content)

    return Case(name.split(",")[0], label, make, lambda folder: (read or target.read)(path(folder)), right)


def sparse(path, beginning=b"", size=8 << 30):
    """A file of zeros that takes no room on the disk."""
    path.write_bytes(beginning)
    os.truncate(path, size)


SPECIAL = {
    "a FIFO": os.mkfifo, "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"), "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name), "8 GiB of zeros": sparse, "empty": Path.touch,
    "/proc/self/mem": lambda path: path.symlink_to("/proc/self/mem"),
}  # fmt: skip


# --- HDF5, NPZ, NPY


def h5(**arrays):
    """A maker of a file; arrays: {name: array, or a function of the file and the name}."""

    def make(path):
        with h5py.File(path, "w", libver="v110") as file:
            for name, value in arrays.items():
                value(file, name) if callable(value) else file.create_dataset(name, data=value)

    return make


def never(*shape, dtype="f8", chunks=None, **options):
    return lambda file, name: file.create_dataset(name, shape, dtype, chunks=chunks, **options)


def linked(make):
    return lambda file, name: file.__setitem__(name, make(str(Path(file.filename).parents[1] / "outside" / "secret.h5")))


def virtual(source, dataset, count=12):
    def make(file, name):
        layout = h5py.VirtualLayout((count, 3), "f8")
        layout[...] = h5py.VirtualSource(source, dataset, (count, 3))
        file.create_virtual_dataset(name, layout)

    return make


def nested(file, name):
    for _ in range(3000):
        file = file.create_group("g")
    file[name] = np.ones((12, 3))


X, Y = np.arange(36.0).reshape(12, 3), np.arange(12) / 8 + 0.25
HDF5 = {
    "8 GB that were never written": h5(x=never(10**7, 100, chunks=(1000, 100)), y=never(10**7)),
    "a row of 1 GiB": h5(x=never(3, 2**27, chunks=(1, 2**12)), y=Y[:3]),
    "a chunk of 2 GiB": h5(x=never(12, 2**28, chunks=(1, 2**28), compression="gzip"), y=Y),
    "10^15 rows": h5(x=never(10**15, 3, chunks=(1024, 3)), y=never(10**15, chunks=(1024,))),
    "a packed block of zeros": lambda path: packed_hdf5(path, 2_000_000),
    "no rows, many columns": h5(x=never(0, 2**40, chunks=(1, 2**10)), y=Y[:0]),
    "numbers in another file": h5(x=lambda file, name: file.create_dataset(name, (12, 3), "f8",
    external=[("/etc/passwd", 0, 288)]), y=Y),
    "an external link": h5(x=linked(lambda path: h5py.ExternalLink(path, "x")), y=Y),
    "a link to itself": h5(x=linked(lambda path: h5py.SoftLink("/x")), y=Y),
    "a virtual array of another file": h5(x=virtual("../outside/secret.h5", "x"), y=Y),
    "a virtual array of itself": h5(x=virtual(".", "x"), y=Y),
    "3000 groups, one in another": h5(x=nested, y=Y), "a group in itself": h5(x=lambda file,
    name: file.__setitem__(name, file["/"]), y=Y),
    "20000 arrays": h5(**{f"a{i}": np.ones(2) for i in range(20000)}),
    "control characters in names": h5(**{"x\n\x1b[31m": X, "\x07": Y}),
    "a name of 60000 bytes": h5(**{"x" * 60000: X, "y": Y}), "complex numbers": h5(x=X + 1j, y=Y),
    "texts": h5(x=np.full((12, 3), b"1"), y=Y),
    "objects": h5(x=lambda file, name: file.create_dataset(name, (12,), h5py.vlen_dtype("f8")), y=Y),
    "references": h5(x=lambda file, name: file.create_dataset(name, (12, 3), h5py.ref_dtype), y=Y),
    "NaN": h5(x=X * np.nan, y=Y), "2^64 - 1": h5(x=np.full((12, 3), 2**64 - 1, np.uint64), y=Y),
    "33 dimensions": h5(x=np.ones((12, *[1] * 31)), y=Y),
}  # fmt: skip


def packed_hdf5(path, rows):
    """Chunks of zeros, of which each is stored as some bytes: 8 GB of numbers in all, of which every byte is written."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (rows, 500), "f8", chunks=(rows // 50, 500), compression="gzip")
        block = zlib.compress(bytes(1 << 20), 9)  # the chunk says that it has 160 MB
        for number in range(50):
            data.id.write_direct_chunk((number * (rows // 50), 0), block)
        file["y"] = np.zeros(rows)


def header(shape="(12, 3)", descr="'<f8'", order="False", version=1, length=None):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    size = struct.pack(
        "<H" if version == 1 else "<I", (len(text) if length is None else length) % 2 ** (16 if version == 1 else 32)
    )
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


NPY = {
    "2^60 rows": header("(1152921504606846976,)"), "negative rows": header("(-12, 3)"),
    "more elements than 2^64": header("(4294967296, 4294967296, 3)"),
    "a pickle": header("(1,)", "'|O'") + pickle.dumps(Evil()), "a header of 4 GiB": header(version=2, length=2**32 - 1),
    "a header that calls": header("__import__('os').system('touch executed')"),
    "a header of brackets": header("(" * 5000), "a header of a long product": header("9**9**9"),
    "a type without a size": header(descr="'|V0'") + bytes(288),
    "a type of 2 GiB": header(descr="'|V2147483647'"), "a type in types": header(descr="[" * 400 + "]" * 400),
    "a shape that is no tuple": header("12") + bytes(288),
    "dimensions that are truths": header("(True, False)") + bytes(8), "version 9": header(version=9) + bytes(288),
    "no rows": header("(0, 3)"), "rows of nothing": header("(12, 0)"),
    "64 dimensions": header(f"({'1,' * 65})") + bytes(8), "long numbers": header(f"({'9' * 5000},)"),
    "control characters": header("'\x1b[31m'"),
}  # fmt: skip


def zipped(**members):
    """A maker of an archive; members: {name: content, or (content, how often)}."""

    def make(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, content in members.items():
                content, times, block = content if isinstance(content, tuple) else (content, 0, b"")
                with file.open(name, "w", force_zip64=True) as member:
                    member.write(content)
                    for _ in range(times):
                        member.write(block)

    return make


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


MIB = bytes(1 << 20)
NPZ = {
    "1.2 GB in Fortran's order": zipped(**{"x.npy": (header("(50, 3145728)", order="True"), 1200, MIB), "y.npy": npy(Y)}),
    "a row of 900 MB": zipped(**{"x.npy": (header("(2, 58982400)"), 900, MIB), "y.npy": npy(Y[:2])}),
    "a row of 900 MB that is no number": zipped(**{"x.npy": (header("(1,)", "'|V943718400'"), 900, MIB), "y.npy": npy(Y)}),
    "a header of 900 MB": zipped(**{"x.npy": (header(version=2, length=900 << 20), 900, MIB), "y.npy": npy(Y)}),
    "a pickle": zipped(**{"x.npy": header("(1,)", "'|O'") + pickle.dumps(Evil()), "y.npy": npy(Y)}),
    "names that leave the folder": zipped(**{"../../outside/x.npy": npy(X), "/y.npy": npy(Y)}),
    "10000 members": zipped(**{f"{i}.npy": npy(Y) for i in range(10000)}),
    "an archive in it": zipped(**{"x.npz": npy(X), "x.npy": npy(X), "y": npy(Y)}),
    "names with control characters": zipped(**{"x\x1b[31m\n.npy": npy(X), "y.npy": npy(Y)}),
    "NaN": zipped(**{"x.npy": npy(X * np.nan), "y.npy": npy(Y)}),
    "a size that lies": lambda path: (zipped(**{"x.npy": npy(X), "y.npy": npy(Y)})(path),
    path.write_bytes(path.read_bytes().replace(struct.pack("<I", len(npy(X))), b"\xff" * 4))),
    "half of it": lambda path: (zipped(**{"x.npy": npy(X), "y.npy": npy(Y)})(path),
    os.truncate(path, path.stat().st_size // 2)),
}  # fmt: skip
TEXT = {
    "one line of 1 GiB": lambda path: sparse(path, b"a,b\n1,2\n3,", 1 << 30),
    "a first line of 1 GiB": lambda path: sparse(path, b"a", 1 << 30),
    "a million columns": b"1," * 10**6 + b"1\n" + b"2," * 10**6 + b"2\n",
    "a name that is never closed": b'"' + b"a,b\n1,2\n" * 10**6,
    "a name with control characters": b"\x1b[31mred,\x07b,\x9bc\n" + b"1,2,3.5\n2,3,1\n" * 6,
    "names with line breaks": b'"a\nb",c\n1,2.5\n3,4\n5,6\n', "zeros between": b"a,b\n1\x00,2\n3,4\n",
    "letters that turn the line": "\u202eabc,b,c\n".encode() + b"1,2,3.5\n2,3,1\n" * 6,
    "numbers of 5000 digits": b"1," + b"9" * 5000 + b"\n1,2\n3,4\n",
    "1e999": b"a,b\n1,1e999\n2,3\n4,5\n", "nan": b"a,b\n1,nan\n2,3\n4,5\n",
    "UTF-16 without a mark": "a,b\n1,2.5\n2,3\n".encode("utf-16-le"), "formulas": b"=cmd|'/c calc'!A0,b\n1,2\n2,3.5\n3,1\n",
    "lone surrogates": b"\xed\xa0\x80,b\n1,2.5\n3,4\n5,6\n", "only line breaks": b"\n" * 10**6,
}  # fmt: skip


# --- images, pickles, IDX


def png(width, height, kind=6, bits=8, more=b"", bytes_=None):
    """A PNG of zeros, packed a thousand times."""
    pack = zlib.compressobj(9)
    row = bytes(1 + width * {0: 1, 2: 3, 6: 4}[kind] * bits // 8)
    data = b"".join(pack.compress(row) for _ in range(min(height, bytes_ or height))) + pack.flush()
    size = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + more + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def zeros(mib):
    """So many MiB of zeros, packed."""
    pack = zlib.compressobj(1)
    return b"".join(pack.compress(MIB) for _ in range(mib)) + pack.flush()


def many(image, count):
    """So many images of 80 million pixels, which threads decode at the same time."""
    return lambda path: [(path.parent / f"{number}.png").write_bytes(image) for number in range(count)]


def saved(form, image, **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def resized(content, at, form, *sizes):
    return content[:at] + struct.pack(form, *sizes) + content[at + struct.calcsize(form) :]


DOT = Image.new("RGB", (8, 8))
IMAGES = {
    "8 PNG of 80 million pixels": lambda path: many(png(9000, 8900), 8)(path),
    "8 PNG of 16 bits": lambda path: many(png(6000, 6000, bits=16), 8)(path),
    "a PNG of 2^31 pixels": png(2**31 - 1, 1, bytes_=0, kind=0) if False else lambda path: path.write_bytes(resized(saved("PNG",
    DOT), 16, ">II", 2**31 - 1, 1)),
    "a PNG of 50000 x 50000": lambda path: path.write_bytes(resized(saved("PNG", DOT), 16, ">II", 50000, 50000)),
    "a PNG of 1 x 80 million": lambda path: path.write_bytes(png(1, 80_000_000 // 100, 0)),
    "a text that unpacks to 900 MB": lambda path: path.write_bytes(png(8, 8, more=chunk(b"zTXt", b"a\0\0" + zeros(900)))),
    "a profile that unpacks to 900 MB": lambda path: path.write_bytes(png(8, 8,
    more=chunk(b"iCCP", b"a\0\0" + zeros(900)))), "a GIF of 65535 x 65535": resized(saved("GIF", DOT.convert("P")), 6,
    "<HH", 65535, 65535), "a JPEG of 65535 x 65535": saved("JPEG", DOT).replace(b"\x08\0\x08\0\x08\x03",
    b"\x08\xff\xff\xff\xff\x03"),
    "a GIF of 3000 images": saved("GIF", Image.new("P", (900, 900)), save_all=True,
    append_images=[Image.new("P", (900, 900), i % 2) for i in range(30)]),
    "a BMP of 2^31 pixels": resized(saved("BMP", DOT), 18, "<ii", 2**31 - 1, -(2**31)),
    "an EPS that starts a program": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(touch executed) run\n",
    "an SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "an image with an odd name": lambda path: (path.parent / "\x1b[31m\n'$(touch executed)'.png").write_bytes(b"no image"),
    "a name that is no text": lambda path: Path(os.fsdecode(bytes(path.parent) + b"/\xff\xfe.png")).write_bytes(b"no image"),
    "a folder named as an image": lambda path: (path.parent / "9.png").mkdir(),
}  # fmt: skip
IMAGES = {
    label: content if callable(content) else partial(lambda content, path: path.write_bytes(content), content)
    for label, content in IMAGES.items()
}


def dictionary(data, labels=b"](K\x01K\x02e"):
    return b"\x80\x02}(U\x06labels" + labels + b"U\x04data" + data + b"u."


ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR("
    b"K\x01%scnumpy\ndtype\n(U\x02u1K\x00K\x01tR\x89%stb"
)
LATIN = b"c_codecs\nencode\nq\x09" + b"X" + struct.pack("<I", 8 << 20) + "é".encode() * (4 << 20) + b"q\x08U\x06latin1q\x07"
PICKLES = {
    "os.system": b"cos\nsystem\n(S'touch executed'\ntR.",
    "builtins.eval": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", "a persistent name": b"\x80\x02U\x01aQ.",
    "an extension": b"\x80\x02\x82\x01.", "an instance": b"(ios\nsystem\n.", "a new object": b"\x80\x02cos\nsystem\n)\x81.",
    "a text copied 500 times": dictionary(b"]" + LATIN + b"0" * 2 + b"(" + b"h\x09h\x08h\x07\x86R" * 500 + b"e"),
    "a text of 2 GiB": b"\x80\x02T\xff\xff\xff\x7fabc.", "bytes of 2^63": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "a negative text": b"\x80\x02T\xff\xff\xff\xffabc.",
    "lists within lists": b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b".", "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "tuples within tuples": b"\x80\x02)" + b"\x85" * 900_000 + b".",
    "a list of itself, doubled": b"\x80\x02]q\x00(" + b"h\x00" * 400_000 + b"e.",
    "a negative shape": dictionary(ARRAY % (b"(J\xff\xff\xff\xffM\x00\x0ct", b"U\x00")),
    "a shape of 2^62": dictionary(ARRAY % (b"(\x8a\x08\0\0\0\0\0\0\0\x40K\x04t", b"U\x00")),
    "a million dimensions": dictionary(ARRAY % (b"(" + b"K\x01" * 500_000 + b"t", b"U\x01a")),
    "labels that are lists": dictionary(ARRAY % (b"K\x02M\x00\x0c\x86", b"U\x01a"), b"](]]e"),
    "labels of 2000 digits": dictionary(ARRAY % (b"K\x01M\x00\x0c\x86", b"T\x00\x0c\0\0" + bytes(3072)),
    b"](\x8a\xff" + b"\x7f" * 255 + b"e"), "a million marks": b"\x80\x02" + b"(" * 10**6 + b".",
    "nothing but a memo": b"\x80\x02j\xff\xff\xff\xff.", "no end": b"\x80\x02" + b"N" * 10**6,
}  # fmt: skip
GZ, PIXELS = "mnist images.gz", "mnist images"
IDX = {
    "dimensions of 2^32": b"\0\0\x08\x03" + b"\xff" * 12, "no pixels": idx(np.zeros((9, 0, 5), np.uint8)),
    "no images": idx(np.zeros((0, 5, 4), np.uint8)), "other types": b"\0\0\x0d\x03" + digits()["train-images-idx3-ubyte"][4:],
    "more than it says": digits()["train-images-idx3-ubyte"] + b"x",
    "five dimensions": b"\0\0\x08\x05" + b"\0\0\0\x01" * 5 + b"x", "a product of 2^64": b"\0\0\x08\x03" + b"\0\0\0\x80" * 3,
}  # fmt: skip
GZIPPED = {
    "2 GiB of zeros": gzip.compress(bytes(1 << 26), 9, mtime=0) * 32,
    "a name of 50 MB": b"\x1f\x8b\x08\x08\0\0\0\0\0\0" + b"a" * (50 << 20),
    "a million empty ones": gzip.compress(b"", mtime=0) * 200_000, "cut in its head": gzip.compress(b"a", mtime=0)[:5],
    "zeros behind it": gzip.compress(digits()["t10k-images-idx3-ubyte"], mtime=0) + bytes(1 << 26),
    "gzip in gzip": gzip.compress(gzip.compress(bytes(1 << 26))),
}  # fmt: skip


# --- JSON and TOML


def with_value(content, text, *keys):
    """A JSON document in which a value is this text."""
    document = json.loads(content.splitlines()[0])
    inside = document
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = "VALUE"
    return json.dumps(document).replace('"VALUE"', text).encode()


ODD_JSON = {
    "5e-324": "5e-324", "NaN": "NaN", "Infinity": "-Infinity", "1e999": "1e999", "a zero byte": '"a\\u0000b"',
    "a lone surrogate": '"\\ud800"', "control characters": '"\\u001b[31m\\u0007"', "5000 digits": "9" * 5000,
    "2^63": str(2**63), "-1": "-1",
    "lists in lists": "[" * 100_000, "objects in objects": '{"a":' * 100_000,
    "a list of a million": "[" + "1," * 999_999 + "1]", "a long text": f'"{"a" * 10**6}"', "null": "null", "true": "true",
    "a line break": '"a\\nb"', "text that turns": '"\\u202egnp"',
}  # fmt: skip
PLACES = {
    "machine file": (machines()[0], [("name",), ("core", "flops"), ("node", "ranks"), ("links", "node", "alpha")]),
    "speedup reports": (FILES["speedup reports"].valid()[0], [("net",), ("seconds_per_step", "median"), ("P",)]),
    "sweep files": (FILES["sweep files"].valid()[0], [("net",), ("sweep", "ranks")]),
    "kernel table": (FILES["kernel table"].valid()[0], [("source",
    )] if b'"source"' in FILES["kernel table"].valid()[0] else []),
}  # fmt: skip
JSON = [
    (name, f"{where[-1]}: {label}", with_value(content, text, *where))
    for name, (content, places) in PLACES.items()
    for number, where in enumerate(places)
    for place, (label, text) in enumerate(ODD_JSON.items())
    if number == 0 or place % len(places) == number
]
LISTS = "".join(
    f"{name} = [{', '.join(map(str, range(1, 21)))}]\n"
    for name in ("batch_size", "steps", "seed", "micro_batches", "threads", "rate", "delay", "lr")
)
TOML = {
    "8 lists of 20": LISTS.encode(), "ranks of 2^63": b"ranks = [9223372036854775808]",
    "10^6 ranks": f"ranks = {list(range(1, 200_000))}".encode(), "lists in lists": b"ranks = " + b"[" * 100_000,
    "tables in tables": b"a." * 50_000 + b"a = 1", "nan": b"interval = nan", "inf": b"minutes = inf",
    "dates": b"nets = 1979-05-27",
    "control characters": b'nets = ["\\u001b[31m"]', "a name with control characters": b'"\\u001b[31m" = 1',
    "a line break": b'nets = ["mlp:8,relu\\nx"]', "a net of 10^9": b'nets = ["mlp:1000000000,relu"]',
    "a batch of 2^63 - 1": b"batch_size = 9223372036854775807", "a grid of 10^18": b'grids = ["batch=1000000000000000000"]',
    "10^12 repeats": b"repeats = 1000000000000", "a lone surrogate": b'nets = ["\xed\xa0\x80"]',
}  # fmt: skip
CODE = (
    "$(touch executed)",
    "`touch executed`",
    '"; touch executed; "',
    "'; touch executed; '",
    "\\ntouch executed\\n",
    "\\u0085touch executed",
    "\\u2028touch executed",
    "a\\rtouch executed",
)
ENTRIES = {"name": 'name = "VALUE"\nsystem = "slurm"\n', "folder": '{}folder = "VALUE"\n', "account": '{}account = "VALUE"\n',
    "sources key": '{}[sources]\n"VALUE" = "http://a"\n', "variable": '{}[variables]\n"VALUE" = "a"\n',
    "python": '{}python = "VALUE"\n', "directive": '{}directives = ["--x=VALUE"]\n', "value": '{}[variables]\nA = "VALUE"\n',
    "note": '{}notes = ["VALUE"]\n'}  # fmt: skip
HEAD = 'name = "a"\nsystem = "slurm"\ncores = 8\ngpus = 2\n'
SHELL = {"folder", "value"}  # in which bash fills in what a site says: only line breaks are odd there
SITES = {
    f"{entry}: {code}": form.replace("{}", HEAD).replace("VALUE", code.replace('"', '\\"')).encode()
    for entry, form in ENTRIES.items()
    for code in CODE
    if entry not in SHELL or code[0] in "\\a"
}
NODES = {
    "an option of ssh": b"-Fevil:1\n", "an option with a blank": b"-oProxyCommand=touch,executed:1\n",
    "a slot of 5000 digits": b"a:" + b"9" * 5000, "10^18 slots": b"a:1000000000000000000\n",
    "control characters": b"\x1b[31ma:1\n", "digits of another script": "a:٣\n".encode(),
    "letters of another script": "é:1\n".encode(), "zeros": b"a\x00b:1\n",
    "no slots": b"a:0\nb:0\n", "a command": b"$(touch executed):1\n",
    "a hundred thousand": b"".join(b"n%d:1\n" % i for i in range(100_000)), "a dot": b"..:1\n",
    "a line of 1 GiB": lambda path: sparse(path, b"a", 1 << 30),
}  # fmt: skip
PARTS = {
    "10^30": b"1" + b"0" * 30,
    "-1": b"-1\n" * 40,
    "digits of another script": "٣\n".encode() * 40,
    "control characters": b"\x1b[31m\n",
    "1_0": b"1_0\n" * 40,
    "a line of 1 GiB": lambda path: sparse(path, b"1", 1 << 30),
}
SCHEDULES = {
    "10^30": b"0F" + b"9" * 30,
    "a million cells": b"0F0," * 10**6,
    "never ends": b"0B0,0F0\n",
    "a sum": b"=1+1,0F0\n",
    "control characters": b"\x1b[31m,0F0\n",
    "another script": "٣F0,0B0\n".encode(),
    "16 million lines": b"\n" * 2**24,
    "a line of 1 GiB": lambda path: sparse(path, b"0F0,", 1 << 30),
}


# --- checkpoints, owners, pruned networks


def manifest(path, **entries):
    """The manifest of the newest checkpoint, with other entries; its own checksum fits."""
    content = json.loads(Path(path).read_text()) | {name: value for name, value in entries.items()}
    Path(path).write_text(json.dumps(content))


def other_manifest(**entries):
    return lambda path: (path.write_bytes(FILES["checkpoint manifest that fits"].valid()[0]), manifest(path, **entries))


def first(**entry):
    files = json.loads(FILES["checkpoint manifest that fits"].valid()[0])["files"]
    return [files[0] | entry, *files[1:]]


MANIFESTS = {
    "a step below 0": {"step": -1}, "a step of 2^63": {"step": 2**63}, "a step of 400 digits": {"step": 10**400},
    "saved at NaN": {"saved": math.nan}, "saved at Infinity": {"saved": math.inf}, "saved at 1e308": {"saved": 1e308},
    "a value of NaN": {"value": math.nan}, "saved as a truth": {"saved": True},
    "10^18 workers": {"workers": 10**18}, "settings in settings": {"settings": json.loads('{"a":' * 400 + "1" + "}" * 400)},
    "control characters in settings": {"settings": {"\x1b[31m": "\x07"}},
    "a file outside": {"files": first(name="../../outside/a")}, "a file with a zero byte": {"files": first(name="a\0b")},
    "a file with a line break": {"files": first(name="a\nb\x1b[31m")},
    "a file with a lone surrogate": {"files": first(name="\ud800")}, "a long name": {"files": first(name="a" * 5000)},
    "the manifest as a file": {"files": first(name="manifest.json")}, "a size below 0": {"files": first(size=-1)},
    "10000 times one file": {"files": first() * 10000}, "no files": {"files": []},
}  # fmt: skip


def list_manifest(path):
    """Both readers: the list of `checkpoints`, and resuming."""
    FILES["checkpoint manifest that fits"].read(path)


def listed(path):
    return program("checkpoints", str(path.parents[1]))(path.parent)


def fits(**entries):
    from gridgrad.parallel.checkpoint.manifest import digest

    def make(path):
        other_manifest(**entries)(path)
        content = json.loads(path.read_text())
        content["sha256"] = digest({name: value for name, value in content.items() if name != "sha256"})
        path.write_text(json.dumps(content))

    return make


def state(value):
    """Load these weights into a layer of 3 inputs and 2 outputs."""

    def read(folder):
        net = Sequential([Linear(3, 2)], input_shape=(3,))
        net.load_state_dict({"0.weight": value(folder) if callable(value) else value, "0.bias": np.zeros(2)})
        assert np.isfinite(net.params).all()

    return read


def complex_state(folder):
    with h5py.File(folder / "state.h5", "w") as file:
        file["w"] = np.ones((2, 3), complex)
    return h5py.File(folder / "state.h5")["w"]


W = np.ones((2, 3))
STATES = {"complex": W * 1j, "complex in HDF5": complex_state, "NaN": W * np.nan, "Infinity": W * np.inf,
    "objects": W.astype(object), "texts": np.full((2, 3), "1"), "dates": np.zeros((2, 3), "M8[s]"),
    "too large for float32": W * 1e300, "another shape": W[:1], "a ragged list": [[1, 2, 3], [1, 2]], "nothing": None,
    "records": np.zeros((2, 3), [("a", "f4")]), "a stretched number": np.broadcast_to(1.0, (2**40, 3)),
    "bytes": np.full((2, 3), b"1")}  # fmt: skip
NETS = {"10^8": "mlp:100000000,relu", "30 digits": "mlp:" + "9" * 30 + ",relu", "5000 digits": "mlp:" + "9" * 5000 + ",relu",
    "a hundred thousand layers": "mlp:" + "1," * 100_000 + "relu", "dropout NaN": "mlp:8,relu,dropout=nan",
    "another script": "mlp:٣,relu", "1_0": "mlp:1_0,relu", "a zero byte": "mlp:8\0,relu",
    "control characters": "mlp:\x1b[31m,relu", "a lone surrogate": "mlp:\udcff", "nothing": "mlp:",
    "a pruned /dev/zero": "pruned:/dev/zero", "a pruned FIFO": "pruned:fifo", "a pruned folder": "pruned:."}  # fmt: skip
PROGRAMS = {"explain 10^8": ("explain", "--net", "mlp:100000000,relu"),
    "explain 30 digits": ("explain", "--net", "mlp:" + "9" * 30),
    "explain a batch of 2^63 - 1": ("explain", "--net", "mlp:8,relu", "--batch-size", str(2**63 - 1)),
    "explain features of 10^12": ("explain", "--net", "mlp:8,relu", "--features", "1000000000000"),
    "explain outputs of 10^12": ("explain", "--net", "mlp:8,relu", "--outputs", "1000000000000"),
    "explain 10^9 ranks": ("explain", "--net", "mlp:8,relu", "--grid", "batch=1000000000"),
    "launch 100000": ("launch", "100000", "train"), "train 10^8": ("train", "--net", "mlp:100000000,relu", "--steps", "1"),
    "train a batch of 2^63 - 1": ("train", "--batch-size", str(2**63 - 1), "--steps", "1"),
    "train steps of 2^63 - 1": ("train", "--epochs", str(2**63 - 1), "--batch-size", "0"),
    "slurm 10^9 nodes": ("slurm", "--nodes", "1000000000000000000", "--", "train"),
    "sweep 10^6 ranks": ("sweep", "--ranks", "1000000", "--dry-run")}  # fmt: skip
NAMES = {"300 bytes": "table:" + "a" * 300 + ".csv", "a zero byte": "table:a\0.csv", "control characters": "table:\x1b[31m.csv",
    "a line break": "images:a\nb", "a lone surrogate": "table:\udcff.csv", "quotes": "table:'\"$(touch executed).csv",
    "3000 folders": "images:" + "../" * 3000, "a home of nobody": "table:~nobody-such/a.csv", "a FIFO": "table:fifo",
    "a device": "table:/dev/zero.csv", "a size of 10^30": "images:.,size=" + "9" * 30,
    "a shape of 10^27": "table:good.csv,shape=999999999x999999999x999999999",
    "a target of 5000 digits": "table:good.csv,target=" + "9" * 5000, "a test of 1e-300": "table:good.csv,test=1e-300",
    "10^5 options": "table:good.csv" + ",x=a" * 10**5, "a set that is none": "\x1b[31m"}  # fmt: skip


def around_names(folder):
    os.mkfifo(folder / "fifo")
    (folder / "good.csv").write_bytes(b"a,b,c\n" + b"1,2,3.5\n2,3,1\n" * 6)


def of_name(name, folder):
    datasets.prepare(name, folder)
    used(datasets.load(name, folder))


def built(spec, folder):
    assert network_names.build(spec, 3, 2).parameters


def secret(folder):
    with h5py.File(folder.parent / "outside" / "secret.h5", "w") as file:
        file["x"] = np.full((12, 3), 4242.0)


ELSEWHERE = "another file", "external"


def hdf5_case(label, content):
    case = of_file(
        "table hdf5",
        label,
        content,
        None if "link" in label or any(word in label for word in ELSEWHERE) else lambda value, folder: True,
    )
    return Case(case.kind, case.name, lambda folder: (secret(folder), case.make(folder)), case.read, case.right)


def cases():
    """All of them."""
    special = [
        of_file(name, label, make)
        for name in FILES
        if name not in NO_BYTES and "fits" not in name
        for label, make in SPECIAL.items()
    ]
    tables = {"table npy": NPY, "table npz": NPZ, "table csv": TEXT, "image files": IMAGES, "cifar10 pickle": PICKLES,
        GZ: GZIPPED, "sweep settings": TOML, "nodes": NODES, "parts": PARTS, "schedule csv": SCHEDULES}  # fmt: skip
    found = [of_file(name, label, content) for name, rows in tables.items() for label, content in rows.items()]
    found += [of_file(PIXELS, label, content) for label, content in IDX.items()]
    found += [of_file(name, label, content) for name, label, content in JSON] + [
        hdf5_case(label, content) for label, content in HDF5.items()
    ]
    found += [
        of_file("job sites", label, content, lambda value, folder: not executed(folder), job_script)
        for label, content in SITES.items()
    ]
    for label, entries in MANIFESTS.items():
        found += [
            of_file(
                "checkpoint manifest",
                label,
                fits(**entries),
                read=FILES["checkpoint manifest"].read if label not in () else None,
            ),
            of_file("checkpoint manifest", f"{label}, in a list", fits(**entries), read=listed),
        ]
    found += [Case("states", label, lambda folder: None, state(value), None) for label, value in STATES.items()]
    found += [Case("networks by name", label, around_names, partial(built, spec)) for label, spec in NETS.items()]
    found += [Case("names of data", label, around_names, partial(of_name, name)) for label, name in NAMES.items()]
    found += [Case("programs", label, around_names, program(*words)) for label, words in PROGRAMS.items()]
    return found + special


def executed(folder):
    """Whether a job script has run what is in the texts of its site. The words of its programs are not there."""
    os.system("env -i PATH=/nowhere HOME=/ /bin/bash -c 'touch() { echo > executed; }; . ./job.sh' > /dev/null 2>&1")
    return Path("executed").exists()
