"""Where the main thread of this process is: read from its stack by another thread, while it computes or is blocked in MPI.

A blocked MPI function is no Python frame. It is known by the call under way in the innermost frame: the position of that call
in the source is in the code object (PEP 657), and the name of what is called there says whether it is one of MPI's methods.
"""

import ast
import inspect
import linecache
import os
import sys
import sysconfig
import threading
from pathlib import Path

from mpi4py import MPI

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}) + ("<",)
CLASSES = MPI.Comm, MPI.Intracomm, MPI.Request, MPI.Message, MPI.Win, MPI.File
MPI_METHODS = {name for kind in CLASSES for name in vars(kind) if not name.startswith("_")}
OWN = tuple(f"{ROOT / package}/" for package in ("nn", "parallel", "datasets", "experiments"))
SHOWN = 2  # frames of a stack, which say where something is and by what it was called


def main_frame():
    """The innermost frame of the main thread; None if it has ended."""
    return sys._current_frames().get(threading.main_thread().ident)


def mpi_call(frame):
    """The name of the MPI method that a frame is calling, such as "Allreduce"; None if it calls none."""
    name = _called(frame)
    return name if name in MPI_METHODS else None


def _called(frame):
    """The name of the function or method that a frame is calling; None if it calls none or its source is not known."""
    place = inspect.getframeinfo(frame, context=0).positions
    if place is None or None in (place.lineno, place.end_lineno, place.col_offset, place.end_col_offset):
        return None
    lines = [line.encode() for line in linecache.getlines(frame.f_code.co_filename)[place.lineno - 1 : place.end_lineno]]
    if not lines:
        return None
    lines[-1] = lines[-1][: place.end_col_offset]
    lines[0] = lines[0][place.col_offset :]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call):
        return None
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def place(frame):
    """Where a frame is, in words: the innermost lines of this project, or of the user's script, that are being executed."""
    found = []
    while frame is not None and len(found) < SHOWN:
        code = frame.f_code
        if code.co_filename.startswith(OWN) or not code.co_filename.startswith(LIBRARIES):
            found.append(f"{code.co_name} at {_short(code.co_filename)}:{frame.f_lineno}")
        frame = frame.f_back
    return ", called by ".join(found) or "outside of this project"


def _short(path):
    """The path of a file, relative to the folder of this project if it is in it; bytes that are no UTF-8 are escaped."""
    path = Path(path)
    short = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return os.fsencode(short).decode(errors="backslashreplace")
