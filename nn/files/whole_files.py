"""Writing files that appear whole or not at all, and the error for those that can not be written, such as on a full disk."""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS  # what a disk says that is full or read-only


class NotWritten(OSError):
    """A file can not be written. The message, of one line, names it, and says why and what to do. number: of the error."""

    def __init__(self, path, number):
        super().__init__(number, os.strerror(number), str(path))

    def __str__(self):
        remedy = "make room there, or give another name" if self.errno in FULL else "give another name"
        return f"can not write {self.filename}: {self.strerror}; {remedy}"


@contextlib.contextmanager
def written_whole(path):
    """A path beside `path` to write to; it takes the place of `path` only if the block ends without an exception.

    NotWritten, which names `path`, if it can not be written.
    """
    path = Path(path).resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        raise OSError(f"can not write to {path}: it is no ordinary file; give another name")
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        yield Path(beside)
        os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, path)
    except (OSError, RuntimeError) as error:
        number = number_of(error)
        if number is None or not _is_of(error, path):
            raise
        raise NotWritten(path, number) from error
    finally:
        if beside is not None:
            with contextlib.suppress(OSError):
                os.unlink(beside)


@contextlib.contextmanager
def folder_written_whole(path, anchor):
    """The path of a folder beside `path`, for the block to make; it takes the place of `path` only if the block succeeds.

    anchor: the name of a file that is in all folders of this kind. What is at `path` already is replaced if it is such a folder
    or an empty one. OSError if it is anything else; NotWritten, which names `path`, if the folder can not be written.
    """
    path = Path(path).resolve()
    check_replaceable(path, anchor)
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        yield beside / path.name
        if path.exists():
            os.rename(path, beside / "replaced")
        os.rename(beside / path.name, path)
    except OSError as error:
        number = number_of(error)
        if number is None or not _is_of(error, path):
            raise
        raise NotWritten(path, number) from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)


def check_replaceable(path, anchor):
    """Raise OSError if at `path` is anything that a folder with the file `anchor` must not replace."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and ((path / anchor).is_file() or not any(path.iterdir()))):
        raise OSError(f"can not write to {path}: it is no folder with {anchor}; give another name")


def write_text(path, text):
    """Write a text; the file appears whole or not at all. NotWritten as in `written_whole`."""
    with written_whole(path) as beside:
        beside.write_text(text)


def number_of(error):
    """The number that the operating system gives an error; None if it has none.

    h5py raises OSError or RuntimeError with the number in a long text.
    """
    within = re.search(r"errno = (\d+)", str(error))
    return int(within[1]) if within else getattr(error, "errno", None)


def _is_of(error, path):
    """Whether an error is of writing `path` or of making its folder, and not of a file that is read meanwhile."""
    name = getattr(error, "filename", None)
    if name is None:  # errors of writing to an open file name none; nor do some that have nothing to do with a disk
        return number_of(error) in (*FULL, errno.EIO)
    name = Path(os.fsdecode(name))
    if path.is_relative_to(name):
        return True
    return name.is_relative_to(path.parent) and name.relative_to(path.parent).parts[0].startswith(f".{path.name}.")


def is_of_disk(error):
    """Whether an exception says that a file can not be written: that is no mistake of the program."""
    return isinstance(error, NotWritten) or isinstance(error, OSError) and error.errno in FULL


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
