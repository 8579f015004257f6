"""Ranks that follow their rows one instruction at a time, as simply as can be, and how long they wait."""


def ends(schedule):
    """Whether ranks that follow a schedule of whole chunks come to an end, and have then done everything once."""
    where = {chunk: rank for chunk, (rank,) in enumerate(schedule.route.places)}
    last, micro_batches = len(where) - 1, 1 + max(one.micro_batch for row in schedule.rows for one in row)
    done, mail, updated = set(), set(), [-1] * len(schedule.rows)
    rows = [list(row) for row in schedule.rows]

    def can(rank, op, chunk, b):
        if op == "U":
            mine = [c for c in where if where[c] == rank]
            return updated[rank] < b and all(("W", c, i) in done for c in mine for i in range(b + 1))
        if where[chunk] != rank or (op, chunk, b) in done:
            return False
        before_is_far = chunk > 0 and where[chunk - 1] != rank
        after_is_far = chunk < last and where[chunk + 1] != rank
        if op == "F":
            return chunk == 0 or (("RECV_F" if before_is_far else "F", chunk - (not before_is_far), b) in done)
        if op in ("B", "I"):
            after = chunk == last or (("RECV_B" if after_is_far else "I", chunk + (not after_is_far), b) in done)
            return ("F", chunk, b) in done and ("I", chunk, b) not in done and after
        return {
            "W": ("I", chunk, b) in done,
            "SEND_F": after_is_far and ("F", chunk, b) in done,
            "SEND_B": before_is_far and ("I", chunk, b) in done,
            "RECV_F": before_is_far and ("F", chunk, b) in mail,
            "RECV_B": after_is_far and ("B", chunk, b) in mail,
        }[op]

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while row and can(rank, *row[0]):
                op, chunk, b = row.pop(0)
                done |= {("I", chunk, b), ("W", chunk, b)} if op == "B" else {(op, chunk, b)}
                if op == "U":
                    updated[rank] = b
                if op.startswith("SEND"):
                    mail.add((op[-1], chunk + (1 if op == "SEND_F" else -1), b))
                moved = True
    all_done = all((op, c, b) in done for op in "FIW" for c in where for b in range(micro_batches))
    return not any(rows) and all_done and set(updated) == {micro_batches - 1}


def idle_between(simulation, first, last):
    """For each rank, the seconds in which it waits between two of its updates, counted from 0."""
    found = []
    for row in simulation.events:
        ends = [place for place, event in enumerate(row) if event.instruction.op == "U"]
        begin, end = ends[first], ends[last]
        busy = sum(event.stop - event.start for event in row[begin + 1 : end + 1])
        found.append(row[end].stop - row[begin].stop - busy)
    return tuple(found)
