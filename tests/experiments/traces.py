"""Reading what the exports write: the messages of time-independent traces, and a schedule in GOAL played without any times."""

import re
from collections import Counter, defaultdict
from typing import NamedTuple

SENT = {  # bytes that all ranks send together in a native collective, of the numbers in its line on each rank
    "allreduce": lambda lines: 2 * lines[0][0] * (len(lines) - 1),
    "allgatherv": lambda lines: sum(line[0] for line in lines) * (len(lines) - 1),
    "reducescatter": lambda lines: sum(lines[0][:-2]) * (len(lines) - 1),
    "alltoallv": lambda lines: sum(line[0] for line in lines),
}


class Traces(NamedTuple):
    """What is in the traces of all ranks.

    messages: {(sender, receiver, tag): list of their bytes}. native: for each collective of all ranks (its name, the numbers of
    its line on each rank). flops: for each rank their sum.
    """

    messages: dict
    native: list
    flops: list

    def sent(self, rank):
        """(messages, bytes) that a rank sends, without native collectives."""
        mine = [nbytes for (sender, *_), of in self.messages.items() if sender == rank for nbytes in of]
        return len(mine), sum(mine)

    @property
    def sent_natively(self):
        """Bytes that all ranks send together in native collectives."""
        return sum(SENT[name](lines) for name, lines in self.native)


def read(folder):
    """The Traces in a folder. Every message must be sent and received, and waited for, and collectives must fit together."""
    sent, received, lines, flops = defaultdict(list), defaultdict(list), [], []
    for rank, name in enumerate((folder / "traces.txt").read_text().split()):
        mine, seconds, under_way = [], 0.0, Counter()
        first, *actions, last = (line.split() for line in (folder / name).read_text().splitlines())
        assert first == [str(rank), "init"] and last == [str(rank), "finalize"]
        for me, action, *words in actions:
            assert int(me) == rank
            numbers = [float(word) if action == "compute" else int(word) for word in words]
            if action == "compute":
                seconds += numbers[0]
            elif action in ("isend", "irecv"):
                other, tag, nbytes, datatype = numbers
                assert datatype == 6 and other != rank
                key = (rank, other, tag) if action == "isend" else (other, rank, tag)
                (sent if action == "isend" else received)[key].append(nbytes)
                under_way[key] += 1
            elif action == "wait":
                assert under_way[tuple(numbers)] == 1
                del under_way[tuple(numbers)]
            elif action == "waitall":
                under_way.clear()
            else:
                mine.append((action, numbers))
        assert not +under_way
        lines.append(mine)
        flops.append(seconds)
    assert sent == received
    assert len(set(map(len, lines))) <= 1
    return Traces(sent, [joined(of) for of in zip(*lines, strict=True)], flops)


def joined(of):
    """(name, the numbers of each rank) of one native collective; these must fit together."""
    (name,) = {action for action, _ in of}
    lines = [numbers for _, numbers in of]
    if name in ("allreduce", "reducescatter"):
        assert len({tuple(line) for line in lines}) == 1
    elif name == "allgatherv":
        assert len({tuple(line[1:]) for line in lines}) == 1
        assert [line[0] for line in lines] == lines[0][1:-1]
    else:
        ranks = len(lines)
        for rank, line in enumerate(lines):
            assert line[0] == sum(line[1 : ranks + 1]) and line[ranks + 1] == sum(line[ranks + 2 : -2])
            assert line[1 : ranks + 1] == [other[ranks + 2 + rank] for other in lines]
    return name, lines


OPERATION = re.compile(r"l(\d+): (?:calc (\d+)|(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+))")
NEEDED = re.compile(r"l(\d+) requires l(\d+)")


def play(path):
    """Play a GOAL schedule until nothing more can happen, and refuse what is left.

    Returns {rank: (nanoseconds of its operations, list of the bytes of its messages)}.
    """
    header, *blocks = path.read_text().split("\nrank ")
    assert re.fullmatch(rf"// .*\nnum_ranks {len(blocks)}\n", header)
    rows, sent = [], defaultdict(list)
    for number, block in enumerate(blocks):
        first, *lines, end = block.strip().splitlines()
        assert first == f"{number} {{" and end == "}"
        operations, needs = {}, defaultdict(set)
        for line in lines:
            if found := OPERATION.fullmatch(line):
                operations[int(found[1])] = found
            else:
                label, needed = map(int, NEEDED.fullmatch(line).groups())
                assert needed in operations and label in operations
                needs[label].add(needed)
        rows.append((operations, needs))
    done, mail, goes_on = [set() for _ in rows], defaultdict(list), True
    while goes_on:
        goes_on = False
        for rank, (operations, needs) in enumerate(rows):
            for label, found in operations.items():
                if label in done[rank] or not needs[label] <= done[rank]:
                    continue
                if found[3] == "recv":
                    waiting = mail[int(found[5]), rank, found[6]]
                    if not waiting:
                        continue
                    assert waiting.pop(0) == int(found[4])
                elif found[3] == "send":
                    mail[rank, int(found[5]), found[6]].append(int(found[4]))
                    sent[rank].append(int(found[4]))
                done[rank].add(label)
                goes_on = True
    assert [len(of) for of in done] == [len(operations) for operations, _ in rows] and not any(mail.values())
    return {rank: (sum(int(f[2] or 0) for f in operations.values()), sent[rank]) for rank, (operations, _) in enumerate(rows)}
