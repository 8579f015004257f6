"""Where the chunks of a network are, and which ranks send their outputs to which.

A network's layers are cut into chunks 0, 1, .., each of consecutive layers. A rank holds whole chunks or parts of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gridgrad.nn.arguments import whole_number


@dataclass(frozen=True)
class Route:
    """The ranks of each chunk of a pipeline, and the messages between one chunk and the next.

    A rank that also holds the chunk before needs its own outputs too, without a message. The backward pass sends the gradients
    of the same outputs the other way. `contiguous`, `looped`, `v_shaped` and `of_stages` make those of whole chunks.

    Parameters
    ----------
    places : sequence of sequences of int
        For each chunk, the ranks that hold it or a part of it.
    senders : sequence of dicts
        For each chunk {rank: other ranks whose outputs of the chunk before it needs}; those of chunk 0 are {}.
    ranks : int
        The number of ranks.

    Raises
    ------
    ValueError
        If a rank holds nothing, or if the senders do not fit the places.

    Examples
    --------
    >>> from gridgrad.parallel import Route
    >>> Route.v_shaped(2).places, Route.looped(2, per_rank=2).held(1)
    (((0,), (1,), (1,), (0,)), (1, 3))
    """

    places: Sequence[Sequence[int]]
    senders: Sequence[Mapping[int, Sequence[int]]]
    ranks: int

    def __post_init__(self):
        object.__setattr__(self, "places", tuple(tuple(sorted(ranks)) for ranks in self.places))
        object.__setattr__(
            self, "senders", tuple({rank: tuple(sorted(found)) for rank, found in of.items() if found} for of in self.senders)
        )
        idle = set(range(self.ranks)).difference(*self.places) if self.places else {0}
        if idle:
            raise ValueError(f"rank {min(idle)} of the pipeline holds no chunk of the network")
        if len(self.senders) != self.chunks or any(rank >= self.ranks for ranks in self.places for rank in ranks):
            raise ValueError(f"a route of {self.chunks} chunks on {self.ranks} ranks needs as many senders, and no other ranks")
        for chunk, ranks in enumerate(self.places):
            before = set(self.places[chunk - 1]) if chunk else set()
            for rank in {*ranks, *self.senders[chunk]}:
                senders = self.senders[chunk].get(rank, ())
                if rank not in ranks or rank in senders or not before.issuperset(senders):
                    raise ValueError(f"what rank {rank} needs for chunk {chunk} can not come from ranks {senders}")
                if chunk and not senders and rank not in before:
                    raise ValueError(f"nothing comes to rank {rank} for chunk {chunk}")

    @classmethod
    def of_stages(cls, stage_of_chunk: Iterable[int]) -> "Route":
        """Whole chunks. stage_of_chunk: the rank of each."""
        places = tuple((whole_number(stage, "a stage", least=0),) for stage in stage_of_chunk)
        pairs = zip(places, places[1:])
        senders: tuple = ({}, *({here: (before,)} if here != before else {} for (before,), (here,) in pairs))
        return cls(places, senders, 1 + max((stage for (stage,) in places), default=-1))

    @classmethod
    def contiguous(cls, stages: int) -> "Route":
        """A chunk on each of so many ranks."""
        return cls.of_stages(range(whole_number(stages, "stages")))

    @classmethod
    def looped(cls, stages: int, per_rank: int) -> "Route":
        """So many chunks on each rank, dealt out in turn: chunk c on rank c % stages."""
        return cls.of_stages([*range(whole_number(stages, "stages"))] * whole_number(per_rank, "chunks of a rank"))

    @classmethod
    def v_shaped(cls, stages: int) -> "Route":
        """Two chunks on each rank, those of rank 0 being the first and the last one of the network."""
        forth = range(whole_number(stages, "stages"))
        return cls.of_stages([*forth, *reversed(forth)])

    @classmethod
    def everywhere(cls, ranks: int, senders: Sequence[Mapping[int, Sequence[int]]]) -> "Route":
        """A part of every chunk on every rank. senders: as in Route."""
        return cls((tuple(range(ranks)),) * len(senders), tuple(senders), ranks)

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return len(self.places)

    def held(self, rank: int) -> tuple[int, ...]:
        """The chunks that a rank holds or has a part of, in rising order."""
        return self._held[rank]

    def holds(self, chunk: int, rank: int) -> bool:
        """Whether a rank holds a chunk or a part of it."""
        return chunk in self._held_as_set[rank]

    def local_before(self, chunk: int, rank: int) -> bool:
        """Whether a rank holds this chunk and the one before, or parts of them."""
        return self.holds(chunk, rank) and self.holds(chunk - 1, rank)

    def local_after(self, chunk: int, rank: int) -> bool:
        """Whether a rank holds this chunk and the next one, or parts of them."""
        return self.local_before(chunk + 1, rank)

    def sources(self, chunk: int, rank: int) -> Sequence[int]:
        """The other ranks whose outputs of the chunk before a rank needs for this one."""
        return self.senders[chunk].get(rank, ())

    def receivers(self, chunk: int, rank: int) -> Sequence[int]:
        """The other ranks that need a rank's outputs of a chunk for the next chunk."""
        return self._receivers[chunk].get(rank, ())

    @cached_property
    def _held(self):
        held = [[] for _ in range(self.ranks)]
        for chunk, ranks in enumerate(self.places):
            for rank in ranks:
                held[rank].append(chunk)
        return tuple(map(tuple, held))

    @cached_property
    def _held_as_set(self):
        return tuple(map(frozenset, self._held))

    @cached_property
    def _receivers(self):
        found = [{} for _ in self.places]
        for chunk, of in enumerate(self.senders):
            for receiver in sorted(of):
                for sender in of[receiver]:
                    found[chunk - 1][sender] = (*found[chunk - 1].get(sender, ()), receiver)
        return tuple(found)
