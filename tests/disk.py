"""What stands for a full disk in tests: a limit of the size of files. The same calls fail, with another reason."""

import resource
from contextlib import contextmanager


@contextmanager
def files_end_at(size):
    """A `with` block in which this process can make no file longer than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
