"""Going on from a checkpoint, on any grid.

All ranks together check the files of the newest checkpoint, and read what the tables of the files say. Then each rank puts its
own blocks together from whatever pieces have elements of them. A checkpoint that is damaged, or can not be read, is passed over
for the one before.
"""

from contextlib import ExitStack
from functools import partial
from itertools import count, takewhile

import numpy as np
from mpi4py import MPI

from gridgrad.nn.files.documents import UNFIT
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.checkpoint.pieces import assemble
from gridgrad.parallel.checkpoint.shard_file import ShardFile
from gridgrad.parallel.checkpoint.state import State
from gridgrad.parallel.job.run import UserError, on_root, one_line
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.placement.partition import common, size

CHECKED, READ = "the files of a checkpoint, which are checked", "the files of a checkpoint, which are read"


def newest(comm, directory, say=lambda line: None):
    """The newest Checkpoint in a folder that is whole; None if the folder has no checkpoints. Collective over all ranks.

    say: called on each rank with a line about each one that is passed over. UserError if the folder has some and none can be
    used, or can not be read.
    """
    manifests, passed_over = on_root(comm, lambda: found_in(directory)) or (None, None)
    manifests, passed_over = comm.bcast((manifests, passed_over))
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
        raise UserError(
            f"no checkpoint in {directory} can be used ({next(iter(passed_over.values()))}): mend what hinders reading, or "
            f"begin in another folder; gridgrad checkpoints {directory} --verify says more"
        )
    return None


class Checkpoint:
    """A checkpoint, open for reading. Making one checks all of its files, each on one rank. Collective over all ranks.

    comm: the communicator of all ranks. manifest: its Manifest. damage: the first thing that is wrong with it, in words; empty
    if nothing is, and only then it may be read. is_unreadable: whether that is no damage, but an error of the system.
    passed_over: the folders of those that `newest` could not use.
    """

    def __init__(self, comm, manifest):
        self.manifest, self._comm, damage, unreadable, found = manifest, comm, "", False, []
        for number in range(comm.rank, len(manifest.files), comm.size):
            entry = manifest.files[number]
            try:
                damage = damage or manifest.damage(entry)
                if not damage:
                    with ShardFile(manifest.folder / entry["name"]) as shard:
                        found.append((number, shard.worker, shard.pieces, shard.numbers))
            except (OSError, ValueError) as error:
                damage, unreadable = one_line(error), isinstance(error, OSError)
        meet(comm, CHECKED)
        everyone = comm.allgather((damage, unreadable, found))
        self.damage, self.is_unreadable = next((one[:2] for one in everyone if one[0]), ("", False))
        self._shards = sorted((one for *_, found in everyone for one in found), key=lambda one: one[0])

    def restore(self, net, participants, workers=MPI.COMM_SELF):
        """Let participants take over their states. Collective over all ranks.

        net, participants, workers: as for a Saver, and the layouts may be other ones than those of the checkpoint. The
        participants take over their states in the order of the dict.
        ValueError, on all ranks, if the checkpoint is of other participants, another network or another number of workers, or
        can not be read; then nothing has changed. ValueError also if a participant can not make use of its numbers; then those
        before it have taken over theirs, and training must not go on.
        """
        if workers.size != self.manifest.workers:
            raise ValueError(
                f"{self.manifest.folder} has {self.manifest.workers} workers, and this run {workers.size}: "
                f"name a grid with batch={self.manifest.workers}"
            )
        wanted, states, error = {name: participant.state() for name, participant in participants.items()}, {}, ""
        try:
            with ExitStack() as opened:
                sources = Sources(self.manifest, self._shards, workers.rank, opened)
                states = {name: sources.state(net, name, state) for name, state in wanted.items()}
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


class Sources:
    """The files of a checkpoint, opened when they are needed.

    shards: (number of the file, worker, pieces, numbers) of each file, in their order. worker: for which one to read. opened:
    an ExitStack, which closes what was opened.
    """

    def __init__(self, manifest, shards, worker, opened):
        self.manifest, self._shards, self._worker, self._opened, self._open = manifest, shards, worker, opened, {}
        self._files = [number for number, of, *_ in shards if of == worker]  # of this worker, in the order of its ranks
        if not self._files:
            raise ValueError(f"{manifest.folder} has no file of worker {worker}")
        self._numbers = next(numbers for _, of, _, numbers in shards if of == worker)
        self._found = {}  # what `_pieces` has returned

    def _pieces(self, path, divided=False):
        """{array: [(number of the file, Piece, first element in the dataset)]} of this worker or, if `divided`, of all."""
        if (path, divided) not in self._found:
            found = self._found[path, divided] = {}
            for number, of, pieces, _ in self._shards:
                first = 0
                for piece in pieces.get(path, ()) if divided or of == self._worker else ():
                    found.setdefault(piece.array, []).append((number, piece, first))
                    first += piece.stop - piece.start
        return self._found[path, divided]

    def state(self, net, participant, wanted):
        """The State of a participant, for the layouts of a network now. wanted: its State now, whose values do not matter."""
        found = State(numbers=self._numbers.get(participant, {}))
        if different := ", ".join(sorted(found.numbers.keys() ^ wanted.numbers.keys())):
            raise ValueError(
                f"{self.manifest.folder} was written with other settings: its {participant} differs in {different}"
            )
        for name, (_, slices) in wanted.arrays.items():
            path, parts, divided = f"{participant}/{name}", [np.empty(0, net.dtype)], name in wanted.divided
            for where in slices:
                for layer, p, place in net.reduction.places:
                    part = common(where, place)
                    if size(part):
                        block = self._block(path, layer, p, net.dtype, divided).reshape(-1)
                        parts.append(block[part.start - place.start : part.stop - place.start])
            found.arrays[name] = np.concatenate(parts), slices
        for name in wanted.buffers:
            path = f"{participant}/{name}"
            found.buffers[name] = [self._block(path, layer, buffer, net.dtype) for layer, buffer in net.buffers]
        for name in wanted.terms:
            terms = [self._term(f"{participant}/{name}", net, layer, p).reshape(-1) for layer, p, _ in net.reduction.places]
            found.terms[name] = np.concatenate([np.empty(0, net.dtype), *terms])
        for name in wanted.own:
            same = len(self._files) == net.grid.size
            found.own[name] = self._shard(self._files[net.grid.rank]).own(f"own/{participant}/{name}") if same else None
        for name in wanted.logs:
            found.logs[name] = self._shard(self._files[0]).own(f"logs/{participant}/{name}")
        return found

    def _term(self, path, net, layer, parameter):
        """This rank's term of a sum, in the block of a Parameter: see `State.terms`."""
        group, name = net.grid.group(*parameter.layout.summed), f"{layer.name}.{parameter.name}"
        terms = list(takewhile(lambda term: name in self._pieces(term), (f"{path}/{number}" for number in count())))
        if len(terms) == group.size:
            terms = [terms[group.rank]]
        elif group.rank:
            terms = []
        return sum(
            (self._block(term, layer, parameter, net.dtype) for term in terms), np.zeros(parameter.block_shape, net.dtype)
        )

    def _block(self, path, layer, parameter, dtype, divided=False):
        """This rank's block of an array, which belongs to a Parameter or Buffer. divided: see `_pieces`."""
        array = f"{layer.name}.{parameter.name}"
        sources = self._pieces(path, divided).get(array)
        if sources is None and parameter.size and not parameter.stays_zero:  # of what stays zero a partition has nothing
            raise ValueError(f"{self.manifest.folder} has no {path} of {array}: it is of another network or other settings")
        if sources and np.prod(sources[0][1].shape) != np.prod(parameter.shape):
            raise ValueError(f"{self.manifest.folder}: {array} has shape {sources[0][1].shape}, not {parameter.shape}")
        reads = [(piece, partial(self._elements, number, path, piece, first)) for number, piece, first in sources or ()]
        return assemble(parameter.shape, parameter.index, dtype, reads)

    def _elements(self, number, path, piece, first):
        return self._shard(number).array(path)[first : first + piece.stop - piece.start]

    def _shard(self, number):
        """The file with a number, open."""
        if number not in self._open:
            shard = ShardFile(self.manifest.folder / self.manifest.files[number]["name"])
            self._open[number] = self._opened.enter_context(shard)
        return self._open[number]
