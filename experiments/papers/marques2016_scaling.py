"""Section 5.4 of Marques 2016: how the master/slave algorithm scales by equation 5.1. All of it is predicted.

A step on n nodes takes the computation of the master, which nothing makes shorter; the convolutions of one node divided by the
speeds of all nodes together, since each gets kernels in proportion to its speed (section 4.1.2); and the bytes of equation 5.1
divided by the rate of the master's connection.

The curves of the paper are pictures. So the constants are derived from what its text prints (`marques2016.toml`):

- communication of 500:1500 at batch 64 on 4 CPUs is 19 % of a step that is 2.27 times as fast as on one CPU. With the bytes of
  equation 5.1 at 5 MB/s, of 2^20 bytes, that is the time of a step in seconds;
- computation is 25 % of the step on one CPU at batch 64, 1/7.76 at batch 1024; convolutions take 16 times as long there;
- 1.98, 2.74 and 3.28 times the speed on 2, 3 and 4 CPUs at batch 1024 give the speeds of the four CPUs;
- 50:500 at batch 64 on 4 CPUs: communication is 47 % of the step, and 4.51 times the convolutions;
- one GPU takes 1/2.96 of one CPU's time for 500:1500 at batch 1024 (Table 5.3), of which computation is 1/2.15.

Equation 5.1 as it is printed counts the input of a layer once, however many slaves there are. By Algorithm 4.1 the master
writes it to each slave. Both are computed.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from gridgrad.experiments.papers.cited import derived as derived_from
from gridgrad.experiments.papers.paper import printed
from gridgrad.parallel.placement.partition import Partition

KNOWN = printed("marques2016")
SMALLEST, LARGEST = ("50:500", 64), ("500:1500", 1024)
MIB = 2**20  # bytes: what section 5.4 calls MB
RATE = KNOWN.values["MB a second"].value * MIB  # bytes a second
NUMBER = 8  # bytes: all values are doubles
PRINTED, SUMMED = "5.1 as printed", "5.1 for each slave"
EQUATIONS = PRINTED, SUMMED
CPUS = ["CPUs, smallest network", "CPUs, largest network"]  # Clusters of `derived`
NODES = (1, 2, 3, 4, 8, 16, 32)
RATES = (1, 5, 25, 125, 1250)  # MiB/s: section 5.5 names no numbers; 125 and 1250 are about 1 and 10 Gbit/s
FASTER = 5  # a high-end node convolves so many times as fast as the fastest node of the paper: an assumption
GPUS = (1.0, 1.0, 1.5)  # GeForce 840M, 940M, 950M by the peaks that their vendor states, about 0.8, 0.8 and 1.2 TFLOP/s
MOBILE = 1 / KNOWN.values["slowness of mobile GPUs"].value  # of the speed of a GPU


@dataclass(frozen=True)
class Cluster:
    """One network and batch size on nodes around a master. network: kernels, such as "50:500". computation, convolution:
    seconds of a step on the master alone. speeds: of convolution, of the first nodes, the master's is 1. added: of all further
    ones. rate: bytes a second. equation: PRINTED or SUMMED."""

    network: str
    batch_size: int
    computation: float
    convolution: float
    speeds: tuple
    added: float
    rate: float = RATE
    equation: str = PRINTED

    def speeds_of(self, nodes):
        """The speed of each of so many nodes."""
        return (*self.speeds, *[self.added] * nodes)[:nodes]

    def seconds(self, nodes):
        """{part: seconds} of a step."""
        sending = sent(self.network, self.batch_size, self.speeds_of(nodes), self.equation) / self.rate
        convolution = self.convolution / sum(self.speeds_of(nodes))
        return {"communication": sending, "convolution": convolution, "computation": self.computation}

    def speedup(self, nodes):
        """How many times as fast as the master alone."""
        return sum(self.seconds(1).values()) / sum(self.seconds(nodes).values())

    @property
    def limit(self):
        """The speedup if neither convolution nor communication took any time."""
        return (self.computation + self.convolution) / self.computation


@dataclass(frozen=True)
class MarquesConvolution:
    """A convolution in the plan "marques". By equation 5.1 a slave receives and sends in the forward pass, in elements,

        upload = sum_i (in_i^2 inCh_i batch + k_i^2 numK_i inCh_i + out_i^2 numK_i batch)

    where numK_i is the number of *its* kernels. before, after: the shapes of an input and of an output sample, (rows, columns,
    channels). window: the rows and columns of a kernel. kernels: how many each rank has, the master's first.
    """

    before: tuple
    after: tuple
    window: tuple
    kernels: tuple

    def inputs(self, batch_size):
        """Elements of the input that the master sends."""
        return sum(n > 0 for n in self.kernels[1:]) * batch_size * prod(self.before)

    def upload(self, batch_size, masters=1):
        """Equation 5.1 for this layer, the sum over the slaves. masters: how many share the minibatch, each with its slaves."""
        kernels, pixels = prod(self.window) * self.before[-1], prod(self.after[:-1])
        return self.inputs(batch_size) + sum(self.kernels[1:]) * (masters * kernels + batch_size * pixels)


def marques_forward(batch_size, convolutions, masters=1, itemsize=4):
    """Bytes that all ranks together send in a forward pass for the MarquesConvolutions of a network: equation 5.1."""
    return itemsize * sum(layer.upload(batch_size, masters) for layer in convolutions)


def marques_step(batch_size, convolutions, masters=1, itemsize=4):
    """The same in a training step, if the first convolution is the first layer with parameters."""
    unneeded = itemsize * convolutions[0].inputs(batch_size)
    return 2 * marques_forward(batch_size, convolutions, masters, itemsize) - unneeded


def convolutions(network, speeds):
    """The Convolutions of a network on 32x32x3, kernels in proportion to the speeds of the nodes."""
    first, second = map(int, network.split(":"))
    kernels = lambda count: tuple(Partition.weighted(count, tuple(speeds)).sizes)  # noqa: E731
    return [
        MarquesConvolution((32, 32, 3), (28, 28, first), (5, 5), kernels(first)),
        MarquesConvolution((14, 14, first), (10, 10, second), (5, 5), kernels(second)),
    ]


def sent(network, batch_size, speeds, equation):
    """Bytes of a step by equation 5.1, which is of the forward pass, see `Cluster`."""
    if len(speeds) == 1:
        return 0
    layers = convolutions(network, speeds)
    whole = marques_forward(batch_size, layers, itemsize=NUMBER)
    if equation == SUMMED:
        return whole
    again = NUMBER * sum(layer.inputs(batch_size) for layer in layers)
    return whole - again + again // max(1, sum(n > 0 for n in layers[1].kernels[1:]))


@lru_cache
def derived(equation):
    """{name: Cluster} with the constants that the text of the paper implies, see the module's text."""
    number = KNOWN.number
    share = number("communication of CPUs", "percent", "500:1500", 64, 4) / 100
    part = number("computation of CPUs", "percent", 64, 1) / 100
    limit = number("greatest speedup of CPUs", "speedup", 1024)
    speeds = (1.0, 1.6, 2.4, 3.6)
    for _ in range(60):  # the shares of the kernels depend on the speeds, which the iteration finds
        step = number("speedups of CPUs", "speedup", "500:1500", 64, 4) * sent("500:1500", 64, speeds, equation) / RATE / share
        convolution = LARGEST[1] / 64 * (1 - part) * step
        computation = convolution / (limit - 1)
        whole, sums = convolution + computation, [1.0]
        for nodes in (2, 3, 4):
            speedup = number("5.1", "speedup", "500:1500", nodes)
            left = whole / speedup - computation - sent(*LARGEST, speeds[:nodes], equation) / RATE
            sums.append(convolution / left)
        found = (1.0, *(b - a for a, b in zip(sums, sums[1:])))
        speeds = tuple((a + b) / 2 for a, b in zip(speeds, found))
    added = (min(speeds) + max(speeds)) / 2
    communication = sent(*SMALLEST, speeds, equation) / RATE
    ratio = KNOWN.values["communication over convolution"].value
    other = 100 / number("communication of CPUs", "percent", *SMALLEST, 4) - 1 - 1 / ratio
    small = communication * other, communication / ratio * sum(speeds)
    gpu, most = whole / number("5.3", "speedup", "500:1500", 1), KNOWN.values["greatest speedup of GPUs"].value
    gpus = gpu / most, gpu - gpu / most, GPUS, (min(GPUS) + max(GPUS)) / 2
    return {
        "CPUs, smallest network": Cluster(*SMALLEST, *small, speeds, added, equation=equation),
        "CPUs, largest network": Cluster(*LARGEST, computation, convolution, speeds, added, equation=equation),
        "GPUs, largest network": Cluster(*LARGEST, *gpus, equation=equation),
    }


def gpu_over_cpu(network, devices):
    """What Tables 5.1 and 5.2 let one expect of Table 5.3, a Cited; None for one device."""
    one, gpus = KNOWN.cited("5.3", "speedup", network, 1), KNOWN.cited("5.2", "speedup", network, devices)
    words = "the ratio of one device of Table 5.3, times Table 5.2, over Table 5.1"
    return derived_from(
        words, lambda one, gpus, cpus: one * gpus / cpus, one, gpus, KNOWN.cited("5.1", "speedup", network, devices)
    )


def rows(clusters):
    """A row for each Cluster and number of nodes. clusters: {name: Cluster}."""
    found = []
    for name, cluster in clusters.items():
        for count in NODES:
            parts = cluster.seconds(count)
            found.append({
                "cluster": name, "network": cluster.network, "batch": cluster.batch_size, "equation": cluster.equation,
                "MiB/s": round(cluster.rate / MIB, 1), "nodes": count, **{f"{part}, s": value for part, value in parts.items()},
                "step, s": sum(parts.values()), "speedup": cluster.speedup(count), "limit": cluster.limit,
            })  # fmt: skip
    return found


def of_rates(equation=PRINTED):
    """Figures 5.13 to 5.15, the speedup at other transmission rates: {figure: ({MiB/s: Cluster}, the most nodes)}."""
    cpus, gpus = (derived(equation)[f"{devices}, largest network"] for devices in ("CPUs", "GPUs"))
    with_nodes = lambda cluster, speed: replace(cluster, speeds=(1.0,), added=speed)  # noqa: E731 # the master stays the same
    kinds = {
        "5.13a low and mid range CPUs": (cpus, 32), "5.13b high-end CPUs": (with_nodes(cpus, FASTER * max(cpus.speeds)), 32),
        "5.14a low and mid range GPUs": (gpus, 32), "5.14b high-end GPUs": (with_nodes(gpus, FASTER * max(gpus.speeds)), 32),
        "5.15 mobile GPUs": (with_nodes(gpus, MOBILE), 128),
    }  # fmt: skip
    return {
        name: ({rate: replace(cluster, rate=rate * MIB) for rate in RATES}, most) for name, (cluster, most) in kinds.items()
    }


def rate_rows():
    """The same as a table."""
    found = []
    for name, (by_rate, most) in of_rates().items():
        for nodes in (4, 8, 32, *((128,) if most > 32 else ())):
            speedups = {f"{rate} MiB/s": cluster.speedup(nodes) for rate, cluster in by_rate.items()}
            limit = next(iter(by_rate.values())).limit
            found.append({"figure": name, "nodes": nodes} | speedups | {"limit": limit})
    return found
