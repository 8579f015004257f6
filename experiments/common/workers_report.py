"""What a report says of the workers of an update protocol."""

from collections import Counter, defaultdict

from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS


def losses_of_all(grid, net, protocol, losses):
    """The mean loss over each global minibatch, in the order of the steps: a list on rank 0, None elsewhere. Collective.

    grid: of all workers. losses: of the turns of this worker.
    """
    mine = list(zip(protocol.taken, losses, strict=True)) if net.grid.rank == 0 else []
    workers = grid.gather(mine)
    if workers is None:
        return None
    sums, weights = defaultdict(float), defaultdict(float)
    for turns in workers:
        for (step, weight), loss in turns:
            sums[step] += weight * loss
            weights[step] += weight
    return [sums[step] / weights[step] for step in sorted(sums)]


def of_protocol(grid, net, protocol, batch_size):
    """What a report says of the protocol: a dict on rank 0, None elsewhere; empty where there is one worker. Collective.

    effective_batch: samples whose gradients make one update. interval: steps between two exchanges, None if there is one at the
    end alone. staleness: {updates by others in between: gradients that were applied}; where parameters are spread over several
    servers, each counts a gradient. turns: minibatches of each worker. protocol_memory: bytes that the protocol itself keeps,
    on the rank with the most. After a death the lists are those of the first worker alone. What was sent is among the
    communication of a report, under the layer "protocol".
    """
    if protocol.workers.size == 1:
        return {}
    kept = sum(array.nbytes for array in protocol.own_arrays().values())
    ranks = grid.gather((net.grid.rank, len(protocol.taken), protocol.staleness, kept))
    if ranks is None:
        return None
    return {
        "workers": protocol.workers.size,
        "effective_batch": protocol.effective_batch(batch_size),
        "interval": protocol.interval,
        "staleness": dict(sorted(sum((stale for _, _, stale, _ in ranks), Counter()).items())),
        "turns": [turns for rank, turns, *_ in ranks if rank == 0],
        "lost_workers": protocol.lost,
        "protocol_memory": max(kept for *_, kept in ranks),
    }


def in_words(followed, measured):
    """A line about what `of_protocol` and `report.time_and_bytes` returned."""
    interval = {None: "once", 1: "in every turn"}.get(followed["interval"], f"every {followed['interval']} turns")
    staleness = followed["staleness"]
    gradients = sum(staleness.values())
    mean = f", staleness {sum(k * n for k, n in staleness.items()) / gradients:.2f} updates on average" if gradients else ""
    sent = sum(row["bytes"] for row in measured["communication"] if row["layer"] == BETWEEN_WORKERS)
    batch = followed["effective_batch"]
    return f"effective batch {batch:g}, exchange {interval}{mean}, {sent:.0f} bytes a step between workers"
