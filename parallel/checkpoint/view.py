"""A checkpoint as one file: `whole.h5`, in which every array is whole.

Its datasets are virtual: HDF5 finds their elements in the files of the ranks, which must stay beside it. An array is
`PARTICIPANT/NAME/ARRAY`, such as `network/parameters/0.weight`; with several workers a group `worker-N` is in front. They have
the layout of this library, channels last: (inputs, outputs) for a Linear. Resuming does not read this file.
"""

import io
from itertools import product
from math import prod

import h5py
import numpy as np

from gridgrad.parallel.checkpoint.shard_file import file_of
from gridgrad.parallel.placement.partition import indices, size

NAME = "whole.h5"


def view_of(ranks, dtype, divided=()):
    """The content of the file, as bytes.

    ranks: (worker, {path: pieces}) of each; None gives None. dtype: of the arrays. divided: the paths of arrays of which each
    worker has a part, so that they belong to none.
    """
    if ranks is None:
        return None
    several, layouts = len({worker for worker, _ in ranks}) > 1, {}
    for rank, (worker, pieces) in enumerate(ranks):
        for path, found in pieces.items():
            elements = sum(piece.stop - piece.start for piece in found)
            source = h5py.VirtualSource(file_of(rank), path, (elements,), dtype)
            first = 0
            for piece in found:
                name = f"worker-{worker}/" * (several and path not in divided) + f"{path}/{piece.array}"
                layout = layouts.setdefault(name, h5py.VirtualLayout(piece.shape, dtype))
                for whole, before in piece.blocks():
                    for block, inside in selectable(whole):
                        start = first + before + inside
                        layout[block] = source[start : start + prod(map(size, block))]
                first += piece.stop - piece.start
    file = io.BytesIO()
    with h5py.File(file, "w", libver="v110") as whole:
        for name, layout in layouts.items():
            whole.create_virtual_dataset(name, layout, fillvalue=np.dtype(dtype).type(0))
    return file.getvalue()


def selectable(block):
    """Blocks that make a block together, in C order, with one index array each at most: HDF5 selects no others.

    block: a slice or an increasing index array for each dimension. Yields (a block, where its elements begin among those of the
    whole).
    """
    arrays = [dim for dim, part in enumerate(block) if not isinstance(part, slice)]
    if len(arrays) < 2:
        yield block, 0
        return
    one_by_one, rest = block[: arrays[-2] + 1], block[arrays[-2] + 1 :]
    for number, place in enumerate(product(*(indices(part).tolist() for part in one_by_one))):
        yield (*(slice(i, i + 1) for i in place), *rest), number * prod(map(size, rest))
