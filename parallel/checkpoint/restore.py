"""Going on from a checkpoint, on any grid. All ranks together check the files of the newest checkpoint and read their tables;
if it is damaged or unreadable, they take the one before. Then each rank puts its own blocks together from whatever pieces have
elements of them."""

from contextlib import ExitStack
from functools import partial
from itertools import count, takewhile

import numpy as np
from mpi4py import MPI

from gridgrad.nn.files.documents import UNFIT
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.checkpoint.pieces import assemble, parts_of
from gridgrad.parallel.checkpoint.shard_file import ShardFile
from gridgrad.parallel.checkpoint.state import State
from gridgrad.parallel.job.run import UserError, on_root, one_line
from gridgrad.parallel.job.waiting import meet

CHECKED, READ = "the files of a checkpoint, which are checked", "the files of a checkpoint, which are read"


def newest(comm, directory, say=lambda line: None):
    """The newest Checkpoint in a folder that is whole; None if the folder has no checkpoints. Collective over all ranks.
    say: is told which are passed over, on each rank. UserError if none of those there can be used, or read."""
    manifests, passed_over = comm.bcast(on_root(comm, lambda: found_in(directory)))
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
        self.manifest, self._comm, damage, unreadable, found = manifest, comm, "", False, []
        self.passed_over = set()  # the folders of those that `newest` could not use
        for number, entry in list(enumerate(manifest.files))[comm.rank :: comm.size]:
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
        """Let participants take over their states, in the order of the dict; layouts may be others. Collective over all ranks.
        ValueError, on all ranks, before anything has changed or, if a participant can not use its numbers, after some have."""
        if workers.size != (needed := self.manifest.workers):
            advice = f"name a grid with batch={needed}"
            raise ValueError(f"{self.manifest.folder} has {needed} workers, and this run {workers.size}: {advice}")
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
    """The files of a checkpoint from which a worker reads: opened when they are needed, and closed by the ExitStack `opened`.
    shards: (number of the file, worker, pieces, numbers) of each file, in their order."""

    def __init__(self, manifest, shards, worker, opened):
        self.manifest, self._opened, self._open = manifest, opened, {}
        self._files = [number for number, of, *_ in shards if of == worker]  # of this worker, in the order of its ranks
        if not self._files:
            raise ValueError(f"{manifest.folder} has no file of worker {worker}")
        self._numbers = next(numbers for _, of, _, numbers in shards if of == worker)
        self._own, self._all = {}, {}  # {(path, array): [(number of the file, Piece, elements before it in the dataset)]}
        for number, of, pieces, _ in shards:
            for path, found in pieces.items():
                first = 0
                for piece in found:
                    for known in (self._own, self._all) if of == worker else (self._all,):
                        known.setdefault((path, piece.array), []).append((number, piece, first))
                    first += len(piece)

    def state(self, net, participant, wanted):
        """The State of a participant, for the layouts of a network now. wanted: its State now, whose values do not matter."""
        found = State(numbers=self._numbers.get(participant, {}))
        if different := ", ".join(sorted(found.numbers.keys() ^ wanted.numbers.keys())):
            words = f"its {participant} differs in {different}"
            raise ValueError(f"{self.manifest.folder} was written with other settings: {words}")
        nothing = np.empty(0, net.dtype)
        for name, (_, slices) in wanted.arrays.items():
            path, known = f"{participant}/{name}", self._all if name in wanted.divided else self._own
            places = parts_of(net, slices)
            parts = [self._block(path, layer, p, net.dtype, known).reshape(-1)[part] for layer, p, part in places]
            found.arrays[name] = np.concatenate([nothing, *parts]), slices
        for name in wanted.buffers:
            path = f"{participant}/{name}"
            found.buffers[name] = [self._block(path, layer, buffer, net.dtype, self._own) for layer, buffer in net.buffers]
        for name in wanted.terms:
            terms = [self._term(f"{participant}/{name}", net, layer, p).reshape(-1) for layer, p, _ in net.reduction.places]
            found.terms[name] = np.concatenate([nothing, *terms])
        for name in wanted.own:
            same = len(self._files) == net.grid.size
            found.own[name] = self._shard(self._files[net.grid.rank]).own(f"own/{participant}/{name}") if same else None
        for name in wanted.logs:
            found.logs[name] = self._shard(self._files[0]).own(f"logs/{participant}/{name}")
        return found

    def _term(self, path, net, layer, parameter):
        """This rank's term of a sum, in the block of a Parameter: see `State.terms`."""
        group, name = net.grid.group(*parameter.layout.summed), f"{layer.name}.{parameter.name}"
        terms = list(takewhile(lambda term: (term, name) in self._own, (f"{path}/{number}" for number in count())))
        if len(terms) == group.size:
            terms = [terms[group.rank]]
        elif group.rank:
            terms = []
        blocks = (self._block(term, layer, parameter, net.dtype, self._own) for term in terms)
        return sum(blocks, np.zeros(parameter.block_shape, net.dtype))

    def _block(self, path, layer, parameter, dtype, known):
        """This rank's block of an array, which belongs to a Parameter or Buffer. known: `_own` or `_all`."""
        array = f"{layer.name}.{parameter.name}"
        sources = known.get((path, array), [])
        if not sources and parameter.size and not parameter.stays_zero:  # of what stays zero a partition has nothing
            raise ValueError(f"{self.manifest.folder} has no {path} of {array}: it is of another network or other settings")
        if sources and np.prod(sources[0][1].shape) != np.prod(parameter.shape):
            raise ValueError(f"{self.manifest.folder}: {array} has shape {sources[0][1].shape}, not {parameter.shape}")
        reads = [(piece, partial(self._elements, number, path, piece, first)) for number, piece, first in sources]
        return assemble(parameter.shape, parameter.index, dtype, reads)

    def _elements(self, number, path, piece, first):
        return self._shard(number).array(path)[first : first + len(piece)]

    def _shard(self, number):
        if number not in self._open:
            shard = ShardFile(self.manifest.folder / self.manifest.files[number]["name"])
            self._open[number] = self._opened.enter_context(shard)
        return self._open[number]
