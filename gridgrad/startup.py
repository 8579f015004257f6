"""What every program does first: Ctrl-C, standard streams that are closed, and what an import says where something is missing.

It needs nothing but what Python has loaded, and stands outside the packages, whose import takes most of the start.
"""

import errno
import io
import os
import select
import signal
import sys

STATUS = 130
RANKS = "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"  # the variables of launchers, by which one of several ranks speaks
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\r\t"}
# What an import says without the library of MPI (mpi4py, of different kinds in its versions), and without memory.
NEEDED = {
    ("libmpi", "MPI library"): "there is no MPI library: pip install mpich, or load that of your system (docs/install.md)",
    ("failed to map segment", "annot allocate memory"): "there is not enough memory to start: raise the limit (ulimit -v)",
}


def listen():
    """From now on Ctrl-C ends this process with one line, until `run` or `run_launcher` of `parallel/job/run.py` takes over.

    Python would print the traceback of an import. What is printed has no control characters, is written in any locale, and
    may have no reader any more. A shell's background ignores the signal, and so does this.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    _open_what_is_closed()
    sys.stdout, sys.stderr = _outliving(sys.stdout, CONTROL | {ord("\r"): "\\r"}), _outliving(sys.stderr, CONTROL)


def interruptible():
    """From now on Ctrl-C raises KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def said_of(error):
    """The line for an error of an import that is no mistake of the program, or None."""
    if isinstance(error, MemoryError):
        return NEEDED["failed to map segment", "annot allocate memory"]
    found = isinstance(error, ImportError | RuntimeError | OSError) and str(error)
    return next((line for words, line in NEEDED.items() if found and any(word in found for word in words)), None)


def speaks():
    """Whether this process is rank 0, or none of several ranks."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def _end(number, frame):
    if speaks():
        os.write(2, b"gridgrad: interrupted\n")
    os._exit(STATUS)


def _open_what_is_closed():
    """Let standard streams that are closed, such as by >&-, be empty: the next file would get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _outliving(stream, escapes):
    """A standard stream that outlives its reader, such as `head`; one that is no file stays as it is."""
    if isinstance(stream, _Text):
        return stream
    try:
        raw = _Output(stream.fileno(), "w", closefd=False)
        stream.flush()
    except (AttributeError, OSError, ValueError):
        return stream
    buffer = raw if stream.write_through else io.BufferedWriter(raw)  # as Python makes it, with its option -u and without
    made = _Text(buffer, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering,
                 write_through=stream.write_through)  # fmt: skip
    made.escapes = escapes
    return made


class _Output(io.FileIO):
    """A file that counts as written what nobody reads any more, waits for a slow reader, and is full where it takes nothing.

    No program ends because standard error takes nothing: it has nowhere to say so, and may have trained for hours.
    """

    def write(self, data):
        left = memoryview(data)
        try:
            while left:
                if (written := super().write(left)) is None:  # another program has made the stream one that does not wait
                    select.select([], [self], [])
                left = left[written or 0 :]
        except BrokenPipeError:
            pass
        except OSError as error:  # such as of a stream that was opened to read, or of a terminal that is gone
            if self.fileno() != 2:
                raise OSError(errno.ENOSPC, error.strerror) from None
        return len(data)


class _Text(io.TextIOWrapper):
    """Text in which control characters, which may come from a file and mean something to a terminal, are escaped."""

    def write(self, text):
        return super().write(text.translate(self.escapes))
