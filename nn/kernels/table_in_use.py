"""The table (`nn/kernels/kernel_table.py`) that this process uses.

It is chosen at its first use: by GRIDGRAD_KERNELS, which is `plain` or names a file like a stored one; else the one that comes
with the project for this processor; else the one that was measured here before and stored in the cache folder. A processor that
has none gets PRESET until `nn/kernels/measure_table.py` has measured it. Tables hold for one BLAS thread: with several,
products are not cut.
"""

import os
import sys
import zlib
from dataclasses import replace

from gridgrad.nn.files.cache_files import cache_path
from gridgrad.nn.files.limits import read_limited
from gridgrad.nn.files.whole_files import write_text
from gridgrad.nn.kernels.kernel_table import Kernels, Tiles, from_json, to_json
from gridgrad.nn.kernels.processor import blas, processor
from gridgrad.nn.kernels.shipped_tables import shipped

VARIABLE = "GRIDGRAD_KERNELS"
PLAIN = Kernels("plain")  # every product is one call of the library
PRESET = Kernels("preset", row_winograd=5, winograd_3x3=24, winograd_5x5=24)

_in_use = None


def kernels():
    """The table in use. Raises ValueError if it is chosen now and GRIDGRAD_KERNELS names no table."""
    global _in_use
    if _in_use is None:
        _in_use = known()
    return _in_use


def use(table):
    """Use `table` from now on; None: choose one at the next use."""
    global _in_use
    _in_use = table


def known():
    """The table for this process that needs no measurement. It is PRESET where one has to be measured.

    Raises ValueError if GRIDGRAD_KERNELS names no table.
    """
    table = named()
    if table:
        return table
    library = blas()
    table = shipped(processor(), library)
    if library.threads != 1:
        return without_tiles(table or PRESET)
    return table or stored() or PRESET


def named():
    """The table that GRIDGRAD_KERNELS names, or None. ValueError, with one line, if it names none or GRIDGRAD_BLAS is set."""
    if os.environ.get("GRIDGRAD_BLAS"):
        raise ValueError("GRIDGRAD_BLAS is gone: unset it, and link NumPy with the library that is to multiply matrices")
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    if name == "plain":
        return PLAIN
    try:
        return replace(from_json(read_limited(name)), name=name)
    except OSError as error:
        raise ValueError(f"{VARIABLE}: can not read {name} ({error.strerror}): set it to plain or to a file") from None
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {name} is no table of kernels: {error}") from None


def without_tiles(table):
    """A table for several BLAS threads: `table`, but products are not cut."""
    none = Tiles()
    return replace(table, name=f"{table.name}, products uncut", tiles=none, tiles_left_transposed=none,
                   tiles_right_transposed=none, group_rows=0, small_batch=0)  # fmt: skip


def table_file():
    """The path of the file with the measured table for this processor, this BLAS library and one thread; it may not exist."""
    here = processor()
    what = here.name, here.vendor, here.family, *sorted(here.flags), str(blas())
    return cache_path(f"kernels-{zlib.crc32(repr(what).encode()):08x}.json")


def stored():
    """The table that was measured here before; None if there is none or its file is damaged."""
    try:
        return from_json(read_limited(table_file()))
    except (OSError, ValueError):
        return None


def store(table):
    """Store a measured table. If that fails, print a warning, since the next run will measure again and may sum otherwise."""
    try:
        write_text(table_file(), to_json(table) + "\n")
    except OSError as error:
        print(f"can not write {table_file()} ({error.strerror}): the next run measures again", file=sys.stderr)
