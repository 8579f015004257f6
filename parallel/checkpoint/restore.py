"""Going on from a checkpoint, on any grid. All ranks together check the files of the newest checkpoint and read their tables;
if it is damaged or unreadable, they take the one before. Then each rank puts its own blocks together from whatever pieces have
elements of them."""

from itertools import count, takewhile
from math import prod

import numpy as np
from mpi4py import MPI

from gridgrad.nn.files.documents import UNFIT
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.checkpoint.pieces import Piece, fill, pieces_of
from gridgrad.parallel.checkpoint.state import State
from gridgrad.parallel.job.run import UserError, on_root, one_line
from gridgrad.parallel.job.waiting import meet

CHECKED, READ = "the files of a checkpoint, which are checked", "the files of a checkpoint, which are read"


def newest(comm, directory, say=lambda line: None, best=False):
    """The newest Checkpoint in a folder that is whole; None if there are none, UserError if none of them can be used.
    Collective. say: is told on each rank which are passed over. best: the one with the lowest value comes first."""
    manifests, passed_over = comm.bcast(on_root(comm, lambda: found_in(directory)))
    if best:
        manifests.sort(key=lambda manifest: (manifest.value is None, manifest.value))
    for words in passed_over.values():
        say(f"passed over: {words}")
    for manifest in manifests:
        checkpoint = Checkpoint(comm, manifest)
        if not checkpoint.damage:
            checkpoint.passed_over = {*passed_over}
            return checkpoint
        say(f"passed over, since {'unreadable' if checkpoint.is_unreadable else 'damaged'}: {checkpoint.damage}")
        passed_over[manifest.folder] = checkpoint.damage
    if passed_over:
        advice = f"begin in another folder; gridgrad checkpoints {directory} --verify says more"
        first = next(iter(passed_over.values()))
        raise UserError(f"no checkpoint in {directory} can be used ({first}): mend what hinders reading, or {advice}")
    return None


class Checkpoint:
    """A checkpoint, open for reading. Making one checks all of its files, each on one rank of `comm`. Collective.
    damage: what is wrong first, in words; if empty, it may be read. is_unreadable: whether the system is to blame."""

    def __init__(self, comm, manifest):
        self.manifest, self._comm, damage, unreadable, shards = manifest, comm, "", False, {}
        self.passed_over = set()  # the folders of those that `newest` could not use
        for number in range(comm.rank, len(manifest.files), comm.size):
            try:
                if not damage:
                    shards[number] = manifest.shard(manifest.files[number])
            except (OSError, ValueError) as error:
                damage, unreadable = one_line(error), isinstance(error, OSError)
        meet(comm, CHECKED)
        everyone = comm.allgather((damage, unreadable, shards))
        self.damage, self.is_unreadable = next((one[:2] for one in everyone if one[0]), ("", False))
        checked = {number: shard for *_, some in everyone for number, shard in some.items()}
        self._shards = [checked[number] for number in sorted(checked)]

    def restore(self, net, participants, workers=MPI.COMM_SELF):
        """Let participants take over their states, in the order of the dict; layouts may be others. Collective over all ranks.
        ValueError, on all ranks, before anything has changed or, if a participant can not use its numbers, after some have."""
        if workers.size != (needed := self.manifest.workers):
            advice = f"name a grid with batch={needed}"
            raise ValueError(f"{self.manifest.folder} has {needed} workers, and this run {workers.size}: {advice}")
        wanted, states, error = {name: participant.state() for name, participant in participants.items()}, {}, ""
        try:
            states = {name: self._state(net, name, state, workers.rank) for name, state in wanted.items()}
        except (ValueError, OSError) as caught:
            error = one_line(caught)
        meet(self._comm, READ)
        if error := next(filter(None, self._comm.allgather(error)), ""):
            raise ValueError(error)
        for name, participant in participants.items():
            try:
                participant.load(states[name])
            except UNFIT as error:
                raise ValueError(f"{self.manifest.folder} does not fit the {name} of this run: {error}") from None

    def _state(self, net, participant, wanted, worker):
        """The State of a participant, for the layouts of a network now. wanted: its State now, whose values do not matter."""
        own = [shard for shard in self._shards if shard.worker == worker]  # in the order of the worker's ranks
        if not own:
            raise ValueError(f"{self.manifest.folder} has no file of worker {worker}")
        found = State(numbers=own[0].numbers.get(participant, {}))
        if different := ", ".join(sorted(found.numbers.keys() ^ wanted.numbers.keys())):
            words = f"its {participant} differs in {different}"
            raise ValueError(f"{self.manifest.folder} was written with other settings: {words}")
        for name, (_, slices) in wanted.arrays.items():
            shards = self._shards if name in wanted.divided else own
            found.arrays[name] = self._elements(net, shards, f"{participant}/{name}", pieces_of(net, slices)), slices
        for name in wanted.buffers:
            parts = [self._elements(net, own, f"{participant}/{name}", [Piece.whole(*pair)]) for pair in net.buffers]
            found.buffers[name] = [part.reshape(buffer.block_shape) for part, (_, buffer) in zip(parts, net.buffers)]
        for name in wanted.terms:
            terms = [self._term(net, own, f"{participant}/{name}", layer, p) for layer, p, _ in net.reduction.places]
            found.terms[name] = np.concatenate([np.empty(0, net.dtype), *terms])
        for name in wanted.own:
            same = len(own) == net.grid.size
            found.own[name] = np.array(own[net.grid.rank].array(f"own/{participant}/{name}")) if same else None
        for name in wanted.logs:
            found.logs[name] = np.array(own[0].array(f"logs/{participant}/{name}"))
        return found

    def _term(self, net, shards, path, layer, p):
        """The sum of the terms that are this rank's now, in the block of a Parameter: see `State.terms`."""
        group, piece = net.grid.group(*p.layout.summed), Piece.whole(layer, p)
        there = lambda term: any(shard.sources(term, piece.array) for shard in shards)  # noqa: E731
        terms = list(takewhile(there, (f"{path}/{number}" for number in count())))[group.rank :: group.size]
        return sum((self._elements(net, shards, term, [piece]) for term in terms), np.zeros(len(piece), net.dtype))

    def _elements(self, net, shards, path, pieces):
        """The elements of some pieces of the arrays of a path, one after another. ValueError if no shard has such arrays."""
        out, start = np.zeros(sum(map(len, pieces)), net.dtype), 0
        zero = {Piece.whole(layer, p).array for layer, p in net.parameters if p.stays_zero}  # a partition has nothing of these
        for piece in pieces:
            sources = [source for shard in shards for source in shard.sources(path, piece.array)]
            shapes = {theirs.shape for theirs, _ in sources}
            if not shapes and len(piece) and piece.array not in zero:
                words = f"has no {path} of {piece.array}: it is of another network or other settings"
                raise ValueError(f"{self.manifest.folder} {words}")
            if any(prod(shape) != prod(piece.shape) for shape in shapes) or len(shapes) > 1:
                raise ValueError(f"{self.manifest.folder}: {piece.array} has shape {sources[0][0].shape}, not {piece.shape}")
            fill(out[start : start + len(piece)], piece, sources)
            start += len(piece)
        return out


def whole_array(shards, path, name):
    """A global array, put together from the files of a worker."""
    sources = [source for shard in shards for source in shard.sources(path, name)]
    shape = sources[0][0].shape
    found = np.zeros(prod(shape), sources[0][1]().dtype)
    fill(found, Piece(name, shape, tuple(slice(0, length) for length in shape), 0, found.size), sources)
    return found.reshape(shape)
