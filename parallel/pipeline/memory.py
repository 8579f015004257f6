"""What a rank keeps while it follows its row of a schedule: open contexts and versions of its parameters."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Memory:
    """How much a rank keeps, in bytes. All are {(rank, chunk): bytes}; what is missing takes none.

    contexts: of the context of one micro-batch, which is open from the start of its F until its B or its W ends. between: what
    the context grows by from the start of I until its W ends. weights: of one version of the parameters. stash: whether a
    version is kept as long as a context of it is open; otherwise there is only the newest one.
    Messages under way and what an optimizer keeps are not counted.
    """

    contexts: dict = field(default_factory=dict)
    between: dict = field(default_factory=dict)
    weights: dict = field(default_factory=dict)
    stash: bool = True


@dataclass(frozen=True)
class KeptMemory:
    """The most that a rank keeps at any time.

    open: contexts. of_chunk: {chunk: contexts of it}. versions: {chunk: versions of its parameters}. bytes: of all that a
    Memory counts. staleness: {(chunk, micro-batch): updates of the rank between its F and its B or I}.
    """

    open: int
    of_chunk: dict
    versions: dict
    bytes: float
    staleness: dict


def kept(rank, row, chunks, memory):
    """The KeptMemory of a rank with this row, in which every context is opened before it is closed. chunks: that it holds."""
    version, opened = 0, {}  # opened: {(chunk, micro-batch): the version at its F}
    users = {chunk: Counter() for chunk in chunks}  # {version: how many contexts are open of it}
    open_now = Counter()
    most_of, most_versions = dict.fromkeys(chunks, 0), dict.fromkeys(chunks, 1)
    level = sum(memory.weights.get((rank, chunk), 0) for chunk in chunks)
    most, most_open, staleness = level, 0, {}

    def versions(chunk):
        return len(users[chunk]) + (version not in users[chunk]) if memory.stash else 1

    for op, chunk, micro_batch in row:
        place = rank, chunk
        if op == "F":
            opened[chunk, micro_batch] = version
            users[chunk][version] += 1
            open_now[chunk] += 1
            most_of[chunk] = max(most_of[chunk], open_now[chunk])
            most_open = max(most_open, open_now.total())
            level += memory.contexts.get(place, 0)
        elif op == "U":
            before = {chunk: versions(chunk) for chunk in chunks}
            version += 1
            for chunk in chunks:
                most_versions[chunk] = max(most_versions[chunk], versions(chunk))
                level += (versions(chunk) - before[chunk]) * memory.weights.get((rank, chunk), 0)
        if op in ("I", "B"):
            staleness[chunk, micro_batch] = version - opened[chunk, micro_batch]
        if op == "I":
            level += memory.between.get(place, 0)
        most = max(most, level)
        if op in ("B", "W"):
            before, then = versions(chunk), opened.pop((chunk, micro_batch))
            users[chunk][then] -= 1
            if not users[chunk][then]:
                del users[chunk][then]
            open_now[chunk] -= 1
            level += (versions(chunk) - before) * memory.weights.get(place, 0) - memory.contexts.get(place, 0)
            level -= memory.between.get(place, 0) if op == "W" else 0
    return KeptMemory(most_open, most_of, most_versions, most, staleness)
