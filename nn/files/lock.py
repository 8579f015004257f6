"""A lock that one process holds on files that only one program may write.

It is the operating system's and ends with the process, however that ends: the file of a lock means nothing by being there.
"""

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress

from gridgrad.nn.files.whole_files import NotWritten

HELD = errno.EAGAIN, errno.EACCES  # what the system says where another process has the lock
MARK = b"gridgrad: in use by "  # how the files of locks begin
JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF"}
LOOKS, NAP = 20, 0.05  # at a lock whose holder has not said yet who it is; seconds between


class Lock:
    """Locks something against other processes, until `release` or the end of this process.

    It is a lock of fcntl: no child inherits it, and file systems that several hosts share know it. The file is never deleted,
    since two processes could then lock two files of one name. A file at `path` that is somebody else's is not changed.

    path: of the file, which is made if there is none. taken, remedy: the message where another process has the lock.
    note: what to say where the file system has no locks, so that nothing is locked; else an empty text.
    ValueError if another process has the lock, or at `path` is no ordinary file; NotWritten if it can not be opened.
    """

    def __init__(self, path, taken, remedy):
        self.note = ""
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
                return self._say(MARK + f"{this_process()}\n".encode())
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
        with suppress(OSError):
            if not (before := self._content()) or before.startswith(MARK):
                os.ftruncate(self._file.fileno(), 0)
                os.pwrite(self._file.fileno(), content, 0)

    def release(self):
        """Let others have the lock."""
        if not self._file.closed:
            self._say(b"")
            self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.release()


def opened(path, flags):
    """A descriptor of a file, made if there is none; neither of the target of a link nor waiting at a pipe."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


def this_process():
    """This process in words: its number, its job and its host."""
    job = next((f" of {name} job {os.environ[variable]}" for variable, name in JOBS.items() if os.environ.get(variable)), "")
    return f"process {os.getpid()}{job} on {os.uname().nodename}"
