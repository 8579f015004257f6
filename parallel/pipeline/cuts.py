"""Where to cut a list of layers into chunks so that the longest chunk is as short as possible."""

from math import inf


def shortest(layers, chunks, seconds):
    """The positions at which to begin the second and every later chunk: a tuple. None if no cuts have finite seconds.

    layers: their number. chunks: how many there must be; some may be empty. seconds: a function of (number of a chunk, its
    first layer, the one behind its last layer) that says how long the chunk takes; inf where it can not be so.
    Of several choices in which the longest chunk is as short as possible, the last chunk begins as early as it can, then the
    one before it, and so on.
    """
    best = [(seconds(0, 0, end), None) for end in range(layers + 1)]  # (the longest chunk, where the last one begins)
    tables = [best]
    for chunk in range(1, chunks):
        before, best = best, []
        for end in range(layers + 1):
            options = (
                (max(before[start][0], seconds(chunk, start, end)), start) for start in range(end + 1) if before[start][0] < inf
            )
            best.append(min(options, default=(inf, 0)))
        tables.append(best)
    if best[layers][0] == inf:
        return None
    cuts, end = [], layers
    for table in reversed(tables[1:]):
        end = table[end][1]
        cuts.append(end)
    return tuple(reversed(cuts))
