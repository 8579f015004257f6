"""The files that a timeline is written to: JSON for ui.perfetto.dev or, where the name ends with .otf2, an OTF2 archive.

An archive is a folder of several files.
"""

import json
from importlib.util import find_spec
from pathlib import Path

from gridgrad.nn.files.whole_files import check_replaceable, folder_written_whole, write_text
from gridgrad.parallel.observe.chrome_trace import chrome_trace

ARCHIVE = ".otf2"  # how the name of a folder with an OTF2 archive ends
ANCHOR = "traces.otf2"  # the file in it that viewers open


def is_archive(path):
    """Whether the name of a file says that it is to be an OTF2 archive."""
    return Path(path).suffix == ARCHIVE


def opened(path):
    """The path that viewers open of what has been written to `path`."""
    return Path(path) / ANCHOR if is_archive(path) else path


def check_archive(path):
    """Raise ValueError if no OTF2 archive can be written here, OSError if something else is at `path`."""
    if find_spec("otf2") is None:
        raise ValueError(f"{path} is to be an OTF2 archive, but the package that writes one is not installed: pip install "
                         "otf2, or give a name that ends with .json")  # fmt: skip
    check_replaceable(path, ANCHOR)


def write(path, timeline):
    """Write a Timeline to a file or an archive, which appears whole or not at all.

    ValueError without the package that writes archives; OSError if it can not be written.
    """
    if not is_archive(path):
        write_text(path, json.dumps(chrome_trace(timeline), allow_nan=False) + "\n")
        return
    check_archive(path)
    from gridgrad.parallel.observe import otf2_archive  # which needs the package

    with folder_written_whole(path, ANCHOR) as beside:
        otf2_archive.write(timeline, beside / ANCHOR)
