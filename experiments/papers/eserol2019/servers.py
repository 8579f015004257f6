"""Parameters on servers in Eserol 2019, section 5.2.3: how evenly whole parameters of VGG16 can be spread over several."""

from math import prod

from gridgrad.experiments.papers.eserol2019 import vgg16
from gridgrad.parallel.protocols.server import greedy, round_robin

SERVERS = 2, 4, 8, 16
MIB = 2**20


def loads(sizes, owners, servers):
    """The sum of the sizes that each server has, a list."""
    found = [0] * servers
    for size, owner in zip(sizes, owners, strict=True):
        found[owner] += size
    return found


def imbalances():
    """Rows: the largest load of a server over the mean, for each number of servers.

    No choice that leaves parameters whole can be better than where the largest one is alone.
    """
    shapes = [p.shape for layer in vgg16.network().leaves() for p in layer.parameters]
    sizes, found = [prod(shape) * vgg16.ITEM_BYTES for shape in shapes], []
    for servers in SERVERS:
        mean = sum(sizes) / servers
        row = {"servers": servers, "mean, MiB": mean / MIB}
        for name, choose in (("round-robin", round_robin), ("greedy", greedy)):
            largest = max(loads(sizes, choose(sizes, servers), servers))
            row |= {f"{name}, max MiB": largest / MIB, f"{name}, max/avg": largest * servers / sum(sizes)}
        found.append(row | {"FC1 alone, max/avg": max(sizes) / mean})
    return found
