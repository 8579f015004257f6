"""Parameters on servers in Eserol 2019, section 5.2.3: how evenly whole parameters of VGG16 can be spread over several."""

from math import prod

from gridgrad.experiments.papers.eserol2019 import vgg16
from gridgrad.parallel.protocols.ownership import greedy, imbalance, loads, round_robin

SERVERS = 2, 4, 8, 16
MIB = 2**20


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
            owners = choose(sizes, servers)
            row |= {f"{name}, max MiB": max(loads(sizes, owners, servers)) / MIB}
            row |= {f"{name}, max/avg": imbalance(sizes, owners, servers)}
        found.append(row | {"FC1 alone, max/avg": max(sizes) / mean})
    return found
