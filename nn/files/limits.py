"""How much of a file is held in memory at once, whoever wrote it; and files that would never end, which are not opened.

A file may be as large as it likes where it is mapped or read in pieces. What is bounded is one piece of it, unpacked: a text, a
line, a row, a block, an image. Limits are functions, so that BUDGET is the only number.
"""

import errno
import math
import os
import stat
import zlib

BUDGET = 1 << 28  # bytes that a piece may take in memory
OF_TEXT = 64  # bytes that objects of Python may take for a byte of the text that is taken apart into them
MOST_PACKED = 500  # bytes that one byte may unpack to in an array larger than BUDGET; deflate makes at most 1032 of it
DEFLATE, FEW_FILTERS = 1, {2, 3}  # the numbers of HDF5 filters: deflate, and those that pack nothing (shuffle, fletcher32)


def longest_text():
    """The most bytes of a text, or of a line of numbers, that is taken apart into objects of Python."""
    return BUDGET // OF_TEXT


def size(count):
    """A number of bytes in words."""
    return f"{count >> 20} MiB" if count >> 20 else f"{count} bytes"


def ordinary(path, flags):
    """An opener for `open`. OSError for a FIFO, which could be waited for in vain, and for a device, which may have no end."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode) and not os.path.isdir(path):  # a folder is refused by `open`
        os.close(handle)
        raise OSError(errno.EINVAL, "no ordinary file", os.fspath(path))
    return handle


def read_limited(path, most=None):
    """The bytes of an ordinary file. OSError if it is none; ValueError if there are more than `most`, or than BUDGET."""
    most = BUDGET if most is None else most
    with open(path, "rb", opener=ordinary) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise ValueError(f"{path}: it has more than {size(most)}, which is the most that is read of such a file")
        return file.read()


def lines_of(file, path, most=None):
    """Yields the lines of an open file. ValueError, with its number, for a line of more than `most` characters: by default half
    of BUDGET, since a line is held twice while it is read."""
    number, most = 0, BUDGET // 2 if most is None else most
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise ValueError(f"{path}: line {number} has more than {size(most)}, which is the most that is read of a line")
        yield line


def check_unpacked(unpacked, packed):
    """ValueError if so many bytes of an array are too many for the bytes that it takes in the file."""
    if unpacked > max(BUDGET, MOST_PACKED * packed):
        raise ValueError(f"most of it was never written, or it is packed too tightly: {packed} bytes for {size(unpacked)}")


def check_dataset(data):
    """ValueError if an HDF5 dataset, or one of its chunks, would become too large when it is read. The library holds a chunk as
    a whole, and unpacks what lies there to the end, however large the chunk should be."""
    check_unpacked(data.nbytes, data.id.get_storage_size())
    if data.chunks is None:
        return
    chunk, properties = math.prod(data.chunks) * data.dtype.itemsize, data.id.get_create_plist()
    if chunk > BUDGET:
        raise ValueError(f"it has chunks of more than {size(BUDGET)}")
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    if sum(number not in FEW_FILTERS for number in filters) > 1:
        raise ValueError("it is packed several times over")

    def check(stored):
        if stored.size > chunk + chunk // 8 + (1 << 12):
            raise ValueError("a chunk takes more room than its numbers")
        if DEFLATE in filters and stored.size * 1032 > BUDGET and not stored.filter_mask:
            content = data.id.read_direct_chunk(stored.chunk_offset)[1]
            try:
                if len(zlib.decompressobj().decompress(content, chunk + 5)) > chunk + 4:  # 4 are a checksum
                    raise ValueError("a chunk holds more numbers than it should")
            except zlib.error as error:
                raise ValueError(f"a chunk can not be unpacked ({error})") from None

    if filters and data.id.get_num_chunks():
        data.id.chunk_iter(check)
