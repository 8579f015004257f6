"""Data parallelism in Eserol 2019, section 5.2.3: parameters on servers, and the rows of Table 5.15 about them, *predicted*.

The batch of such a row is taken to be that of each worker: with twice the workers the thesis' run times of small batches, most
of which is communication, halve, and so must have the steps. The thesis does not say where its single server runs. Here it runs
on the node of the first worker, as a spread one runs on those of all. "Greedy" is the distribution of the thesis' Table 5.15.
"""

from math import prod

from gridgrad.experiments.papers import eserol2019_vgg16 as vgg16
from gridgrad.parallel.performance.protocol_cost import PROTOCOLS, case_of
from gridgrad.parallel.protocols.ownership import greedy, imbalance, loads, round_robin, single

SERVERS = 2, 4, 8, 16
MIB = 2**20
METHODS = {  # of Table 5.15: the protocol and who owns what
    "Async. DP (1PS)": ("server:asp", single),
    "Sync. DP (1PS)": ("server:bsp", single),
    "Async. DP (Dist. PS)": ("server:asp", greedy),
    "Sync. DP (Dist. PS)": ("server:bsp", greedy),
}


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


def predictions(machine, ranks, batches):
    """{(ranks, method, batch): *predicted* seconds of a batch}. ranks: those in which there are several workers."""
    net, found = vgg16.network(), {}
    for batch in batches:
        for workers in ranks:
            for method, (protocol, ownership) in METHODS.items():
                step = PROTOCOLS[protocol](case_of(net, workers, machine, batch, ownership)).seconds
                found[workers, method, batch] = step / workers  # it trains on as many batches
    return found
