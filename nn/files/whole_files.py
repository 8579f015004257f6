"""Writing files that appear whole or not at all, the error for those that can not be written, and locks for one writer.

Content is written beside the file, under a name of our own that no other program makes, and locked (flock) as long as its
writer lives. The next writer of the same file deletes what is there without a lock: its writer was killed.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

DAY = 86400.0  # seconds after which what can not be locked, or was written on another host, counts as left behind
OURS = ".gridgrad-"
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS  # what a disk says that is full or read-only
HELD = errno.EAGAIN, errno.EACCES  # what the system says where another process has the lock
MARK = b"gridgrad: in use by "  # how the files of locks begin
JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF"}
LOOKS, NAP = 20, 0.05  # at a lock whose holder has not said yet who it is; seconds between


class NotWritten(OSError):
    """A file can not be written. The message, of one line, names it, and says why and what to do. number: of the error."""

    def __init__(self, path, number):
        super().__init__(number, os.strerror(number), str(path))

    def __str__(self):
        remedy = "make room there, or give another name" if self.errno in FULL else "give another name"
        return f"can not write {self.filename}: {self.strerror}; {remedy}"


def resolved(path):
    """The path of a file that is to be written, without links. NotWritten if they lead in a circle."""
    found = os.path.realpath(path)
    if os.path.islink(found):
        raise NotWritten(path, errno.ELOOP)
    return Path(found)


@contextlib.contextmanager
def written_whole(path):
    """A path beside `path` to write to, which takes its place only if the block ends without an exception. Else NotWritten."""
    path = resolved(path)  # a link stays a link
    with _reported(path):
        if path.exists() and not path.is_file():
            raise OSError(f"can not write to {path}: it is no ordinary file; give another name")
        with _beside(path, _new_file) as beside:
            yield beside
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(beside, 0o666 & ~mask)
            os.replace(beside, path)


@contextlib.contextmanager
def folder_written_whole(path, anchor):
    """The path of a folder beside `path`, for the block to make; it takes the place of `path` only if the block succeeds. Only
    a folder with the file `anchor`, or an empty one, is replaced, else OSError; files of other names in it stay. NotWritten if
    it can not be written."""
    path = resolved(path)
    with _reported(path):
        if path.exists() and not (path.is_dir() and ((path / anchor).is_file() or not any(path.iterdir()))):
            raise OSError(f"can not write to {path}: it is no folder with {anchor}; give another name")
        with _beside(path, tempfile.mkdtemp) as beside:
            yield beside / path.name
            if path.exists():
                _copy_others(path, beside / path.name)
                os.rename(path, beside / "replaced")
            os.rename(beside / path.name, path)


@contextlib.contextmanager
def _reported(path):
    """Around the writing of `path`: errors of it become a NotWritten that names it."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = number_of(error)
        if number is None or not _is_of(error, path):
            raise
        raise NotWritten(path, number) from error


def _prefix(path):
    """What names beside a path begin with: whatever its own length, theirs are short."""
    return f"{OURS}{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-"


@contextlib.contextmanager
def _beside(path, new):
    """A new file or folder beside `path`, locked, and deleted in the end. new: as tempfile.mkdtemp, which makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not any(part.startswith(OURS) for part in path.parts):  # in a folder that is being written nothing can be left
        for left in path.parent.glob(f"{_prefix(path)}*"):
            _delete_if_left(left)
    made, lock = None, None
    try:
        while lock is None:
            made = Path(new(dir=path.parent, prefix=f"{_prefix(path)}{_host()}-"))
            lock = os.open(made, os.O_RDWR if made.is_file() else os.O_RDONLY)
            with contextlib.suppress(OSError):  # file systems without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():  # another writer took it for one that was left, before it was locked
                lock = os.close(lock)
        yield made
    finally:
        if made is not None:
            _delete(made)
        if lock is not None:
            os.close(lock)


def _new_file(dir, prefix):
    handle, made = tempfile.mkstemp(dir=dir, prefix=prefix)
    os.close(handle)
    return made


def _host():
    return hashlib.sha256(platform.node().encode(errors="replace")).hexdigest()[:8]


def _delete_if_left(path):
    """Delete what a writer that was killed has left. A lock of another host is not seen on all file systems."""
    if not re.fullmatch(rf"{re.escape(OURS)}[0-9a-f]{{16}}-[0-9a-f]{{8}}-[a-z0-9_]{{8}}", path.name):
        return
    with contextlib.suppress(OSError):
        status = path.lstat()
        old, mine = time.time() - status.st_mtime > DAY, path.name.split("-")[2] == _host()
        lock = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lives = False
        except OSError as error:
            lives, mine = isinstance(error, BlockingIOError), False
        if not lives and (old or mine):
            _delete(path)  # while it is locked, so that no writer takes it for its own
        os.close(lock)


def _delete(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _copy_others(old, new):
    """Copy what is in the folder `old` to the folder `new`, but no file that is named as one in `new`, whatever its numbers."""
    kind = lambda path, folder: re.sub("[0-9]+", "0", str(path.relative_to(folder)))  # noqa: E731
    made = {kind(path, new) for path in new.rglob("*")}
    for path in sorted(old.rglob("*")):
        if kind(path, old) not in made and (path.is_symlink() or not path.is_dir()):
            beside = new / path.relative_to(old)
            beside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, beside, follow_symlinks=False)


def write_text(path, text, errors="backslashreplace"):
    """Write a text in UTF-8, whole or not at all. errors: "surrogateescape" writes the bytes of names that are not UTF-8."""
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8", errors=errors)


def number_of(error):
    """The operating system's number of an error, which h5py has in a long text; None if it has none."""
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
    return name.is_relative_to(path.parent) and name.relative_to(path.parent).parts[0].startswith(_prefix(path))


def is_of_disk(error):
    """Whether an exception says that a file can not be written: that is no mistake of the program."""
    return isinstance(error, NotWritten) or isinstance(error, OSError) and error.errno in FULL


class Lock(contextlib.AbstractContextManager):
    """Locks something against other processes until `release` or the end of this one, by the system's lock (fcntl): no child
    inherits it, and shared file systems know it. The file is never deleted, since two processes could then lock two files of
    one name: it means nothing by being there. A file of somebody else stays as it is."""

    def __init__(self, path, taken, remedy):
        """taken, remedy: of the ValueError where another process has the lock; one, too, if `path` is no ordinary file."""
        self.note = ""  # what to say where the file system has no locks, so that nothing is locked
        try:
            self._file = open(path, "r+b", buffering=0, opener=opened)  # noqa: SIM115
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ValueError(f"{path} is a link, but a file to lock has to be there: move it away") from None
            raise NotWritten(path, error.errno) from None
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise ValueError(f"{path} is no ordinary file, but one to lock has to be there: move it away")
            self._take(taken, remedy)
        except OSError as error:  # there are no locks here
            self.note = f"note: {path} can not be locked ({error.strerror}): see to it that nothing else writes here meanwhile"
            self._file.close()
        except ValueError:
            self._file.close()
            raise

    def _take(self, taken, remedy):
        for _ in range(LOOKS):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self._say(MARK + f"{_this_process()}\n".encode())
            except OSError as error:
                if error.errno not in HELD:
                    raise
            if content := self._content():
                break
            time.sleep(NAP)
        named = content.startswith(MARK)
        holder = "".join(filter(str.isprintable, content.removeprefix(MARK).decode(errors="replace"))) if named else "unnamed"
        raise ValueError(f"{taken} ({holder}): {remedy}")

    def _content(self):
        return os.pread(self._file.fileno(), 400, 0)

    def _say(self, content):
        """Write a content, unless the file has somebody else's, or can not be written."""
        with contextlib.suppress(OSError):
            if not (before := self._content()) or before.startswith(MARK):
                os.ftruncate(self._file.fileno(), 0)
                os.pwrite(self._file.fileno(), content, 0)

    def release(self):
        """Let others have the lock."""
        if not self._file.closed:
            self._say(b"")
            self._file.close()

    def __exit__(self, *exception):
        self.release()


def opened(path, flags):
    """A descriptor of a file, made if there is none; neither of the target of a link nor waiting at a pipe."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


def _this_process():
    """This process in words: its number, its job and its host."""
    job = next((f" of {name} job {os.environ[variable]}" for variable, name in JOBS.items() if os.environ.get(variable)), "")
    return f"process {os.getpid()}{job} on {os.uname().nodename}"
