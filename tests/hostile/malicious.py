"""Files made to do harm: whatever reads them refuses them in one line, or finds in them nothing but what they hold."""

import gzip
import json
import os
import pickle
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from gridgrad.experiments.launching.start_ranks import launcher_options, nodes_in
from tests.fuzz.damage_hdf5 import virtual
from tests.fuzz.target import Target, every_target
from tests.fuzz.targets_data import written
from tests.fuzz.targets_training import signed
from tests.hostile.case import Case, program

MIB, X, Y = 1 << 20, np.arange(36.0).reshape(12, 3), np.arange(12) / 8
GOES = ("work/input",)  # what readers move


def nodes(path):
    """The options that a launcher gets: none of them may be taken for another one."""
    found = nodes_in(path)
    assert not any(name.startswith("-") or not name.isascii() for name in found), found
    launcher_options("srun", found, 2)


def job_script(path):
    """What `slurm` makes of a site, as bash runs it where no command is found but `touch`: no text of it is one."""
    words = "--site", path.name, "--gpus", "1", "--out", "job.sh", "--account", "me", "--", "train"
    program("slurm", *words)(path.parent)
    os.system("env -i PATH=/nowhere HOME=/ /bin/bash -c 'touch() { echo > executed; }; . ./job.sh' > /dev/null 2>&1")


FILES = {name: target for name, target in every_target().items() if not name.startswith("option")}
FILES |= {"nodes": Target("nodes", lambda: (b"a:2\nb slots=3\n",), None, nodes, "nodes.txt", says=("nodes",))}


def of_file(name, label, content, read=None, right=lambda value, folder: True):
    """A Case of one of FILES. content: bytes, or a function of the path that writes the file, or returns its bytes."""
    target = FILES[name]

    def make(folder):
        target.around(folder)
        path = folder / target.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        found = content(path) if callable(content) else content
        if isinstance(found, bytes):
            path.write_bytes(found)

    def use(folder):
        (read or target.read)(folder / target.file)

    return Case(f"files: {name.split()[0]}", f"{name}: {label}", make, use, right, GOES)


def sparse(beginning=b"", size=8 << 30):
    """A maker of a file of zeros that takes no room on the disk."""
    return lambda path: (path.write_bytes(beginning), os.truncate(path, size))


SPECIAL = {
    "a FIFO": os.mkfifo, "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"), "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name), "8 GiB of zeros": sparse(), "empty": Path.touch,
}  # fmt: skip
CHANGED = {  # of the bytes of a valid file
    "half of it": lambda content: content[: len(content) // 2], "twice": lambda content: content * 2,
    "a mark of UTF-8": b"\xef\xbb\xbf".__add__, "UTF-16": lambda content: content.decode("latin-1").encode("utf-16"),
}  # fmt: skip


def h5(**arrays):
    """A maker of a file; arrays: {name: array, a link, (shape, options) of what is never written, or what makes it}."""

    def make(path):
        with h5py.File(path, "w", libver="v110") as file:
            for name, value in ({"y": Y} | arrays).items():
                if callable(value):
                    value(file)
                elif isinstance(value, tuple):
                    file.create_dataset(name, value[0], **{"dtype": "f8"} | value[1])
                else:
                    file[name] = value

    return make


def bomb(file):
    data = file.create_dataset("x", (12, 3), "f8", chunks=(12, 3), compression="gzip")
    data.id.write_direct_chunk((0, 0), zeros(900))


HDF5 = {
    "8 GB that were never written": h5(x=((10**7, 100), {"chunks": (1000, 100)}), y=((10**7,), {})),
    "a chunk of 2 GiB": h5(x=((12, 2**28), {"chunks": (1, 2**28), "compression": "gzip"})),
    "control characters": h5(**{"x\n\x1b[31m": X}),
    "a small chunk that unpacks to 900 MB": h5(x=bomb),
    "external numbers": h5(x=((12, 3), {"external": [("/etc/passwd", 0, 288)]})),
    "an external link": h5(x=h5py.ExternalLink("/etc/passwd", "x")), "a link": h5(x=h5py.SoftLink("/x")),
    "its own source": h5(x=partial(virtual, name="x", shape=(12, 3), kind="f8", source=".")),
}  # fmt: skip


def header(shape="(12, 3)", descr="'<f8'", order="False", length=None):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\2\0" + struct.pack("<I", length or len(text)) + text


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


NPY = {
    "a header of 4 GiB": header(length=2**32 - 1), "more elements than 2^64": header("(4294967296, 4294967296, 3)"),
    "a pickle": header("(1,)", "'|O'") + pickle.dumps(Evil()), "brackets": header("(" * 5000),
    "a header that calls": header("__import__('os').system('touch executed')"),
}  # fmt: skip


def zipped(**members):
    """A maker of an archive; members: {name: content, or (content, how many MiB of zeros behind it)}."""

    def make(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, content in ({"y.npy": written(np.save, Y)} | members).items():
                content, mib = content if isinstance(content, tuple) else (content, 0)
                with file.open(name, "w", force_zip64=True) as member:
                    for block in (content, *[bytes(MIB)] * mib):
                        member.write(block)

    return make


NPX, GAS = written(np.save, X), "ethylene_methane.txt"
NPZ = {
    "1.2 GB": zipped(**{"x.npy": (header("(50, 3145728)", order="True"), 1200)}),
    "a pickle": zipped(**{"x.npy": NPY["a pickle"]}),
    "names that leave the folder": zipped(**{"../../outside/x.npy": NPX, "\x1b[31m\n.npy": NPX}),
}  # fmt: skip
ZIPS = {
    "names that leave the folder": zipped(**{f"../../outside/{GAS}": b"1 2", f"/tmp/{GAS}": b"a"}),
    "2 GiB of zeros": zipped(**{GAS: (b"a", 2048)}), "control characters": zipped(**{f"\x1b[31m\n{GAS}": b"1 2"}),
}  # fmt: skip
TEXT = {
    "one line of 1 GiB": sparse(b"a,b\n1,2\n3,", 1 << 30), "5000 digits": b"1," + b"9" * 5000 + b"\n1,2\n3,4\n",
    "a million columns": lambda path: b"1," * 10**6 + b"1\n" + b"2," * 10**6 + b"2\n",
    "a name that is never closed": lambda path: b'"' + b"a,b\n1,2\n" * 10**6,
    "control characters": b"\x1b[31mred,\x07b,\x9bc\n" + b"1,2,3.5\n2,3,1\n" * 6,
}  # fmt: skip


def png(width, height, more=b"", data=b""):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    size = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    more = chunk(b"zTXt", b"a\0\0" + more) if more else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + more + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def zeros(count, block=bytes(MIB)):
    """So many blocks of zeros, packed."""
    pack = zlib.compressobj(1)
    return b"".join(pack.compress(block) for _ in range(count)) + pack.flush()


def beside(name, content):
    """A maker of another file, of which the name may be bytes."""
    return lambda path: Path(os.fsdecode(bytes(path.parent) + b"/" + os.fsencode(name))).write_bytes(content) and None


IMAGES = {
    "a PNG of 64 million pixels": lambda path: png(8000, 8000, data=zeros(8000, bytes(32001))),
    "a PNG of 50000 x 50000": png(50000, 50000), "a text that unpacks to 900 MB": lambda path: png(8, 8, zeros(900)),
    "an EPS that starts a program": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(touch executed) run\n",
    "a link to a file outside": lambda path: path.symlink_to("/etc/passwd"), "a name of bytes": beside(b"\xff.png", b"a"),
    "an odd name": beside("\x1b[31m\n'$(touch executed)'.png", b"a"),
}  # fmt: skip
PICKLES = {
    "os.system": b"cos\nsystem\n(S'touch executed'\ntR.", "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "builtins.eval": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
    "lists within lists": b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b".",
}  # fmt: skip
LISTS = "batch_size", "steps", "seed", "micro_batches", "threads", "rate", "delay", "lr"
TOML = {
    "8 lists of 20": "".join(f"{name} = {list(range(1, 21))}\n" for name in LISTS).encode(), "inf": b"minutes = inf",
    "lists in lists": b"ranks = " + b"[" * 100_000, "control characters": b'"\\u001b[31m" = ["\\u001b[31m"]',
    "a grid of 10^18": b'grids = ["batch=1000000000000000000"]',
}  # fmt: skip
CODE = "$(touch executed)", "`touch executed`", '"; touch executed; "', "'; touch executed; '", "\\ntouch executed\\n"
SITE = 'name = "a"\nsystem = "slurm"\ncores = 8\ngpus = 2\n'
ENTRIES = {
    "name": 'name = "CODE"\nsystem = "slurm"\n', "account": SITE + 'account = "CODE"\n',
    "source": SITE + '[sources]\n"CODE" = "http://a"\n', "variable": SITE + '[variables]\n"CODE" = "a"\n',
    "python": SITE + 'python = "CODE"\n', "directive": SITE + 'directives = ["--x=CODE"]\n',
    "note": SITE + 'notes = ["CODE"]\n',
}  # fmt: skip
NODES = {
    "an option of ssh": b"-Fevil:1\n", "an option with a blank": b"-oProxyCommand=touch,executed:1\n", "zeros": b"a\x00b:1\n",
    "a command": b"$(touch executed):1\n", "10^18 slots": b"a:1000000000000000000\n", "control": b"\x1b[31ma:1\n",
}  # fmt: skip


GZIPPED = {"2 GiB of zeros": lambda path: gzip.compress(bytes(1 << 26), 9) * 32}
MANIFESTS = {
    "a file outside": {"files": [{"name": "../../outside/a"}]}, "control characters": {"settings": {"\x1b[31m": "\x07"}},
    "10^18 workers": {"workers": 10**18}, "settings in settings": {"settings": json.loads('{"a":' * 400 + "1" + "}" * 400)},
}  # fmt: skip


def fits(entries, path):
    """The manifest of the newest checkpoint with other entries, of which its checksum is one."""
    content = json.loads(FILES["checkpoint manifest"].valid()[0])
    entries = entries | {"files": [content["files"][0] | file for file in entries["files"]]} if "files" in entries else entries
    return json.dumps(signed(content | entries)).encode()


PROGRAMS = ("plot speedup fifo", "plot compare good.csv good.csv", "sweep gather good.csv --out .", "checkpoints good.csv",
    "train --net pruned:fifo", "train --batch-size 9223372036854775807 --steps 1", "launch 100000 train")  # fmt: skip


def around_programs(folder):
    os.mkfifo(folder / "fifo")
    (folder / "good.csv").write_bytes(b"a,b,c\n" + b"1,2,3.5\n2,3,1\n" * 6)


def cases():
    """All of them."""
    tables = {"table hdf5": HDF5, "table npy": NPY, "table npz": NPZ, "table csv": TEXT, "image files": IMAGES, "nodes": NODES,
        "cifar10 pickle": PICKLES, "mnist images.gz": GZIPPED, "ethylene zip": ZIPS, "sweep settings": TOML}  # fmt: skip
    for name, rows in tables.items():
        for label, content in rows.items():
            yield of_file(name, label, content, *(None, None) * ("external" in label))
    for entry, text in ENTRIES.items():
        for code in CODE:
            content = text.replace("CODE", code.replace('"', '\\"')).encode()
            yield of_file("job sites", f"{entry}: {code}", content, job_script)
    for label, entries in MANIFESTS.items():
        yield of_file("checkpoint manifest", label, partial(fits, entries))
    for words in PROGRAMS:
        yield Case("programs", words, around_programs, program(*words.split()), None)
    for name in FILES:
        if name != "job sites" and "fits" not in name:
            for label, make in SPECIAL.items():
                yield of_file(name, label, make)
            for label, change in CHANGED.items():
                yield of_file(name, label, lambda path, name=name, change=change: change(FILES[name].valid()[0]))
