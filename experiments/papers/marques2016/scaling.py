"""Section 5.4 of Marques 2016: how the master/slave algorithm scales by equation 5.1. All of it is predicted.

A step on n nodes takes the computation of the master, which nothing makes shorter; the convolutions of one node divided by the
speeds of all nodes together, since each gets kernels in proportion to its speed (section 4.1.2); and the bytes of equation 5.1
divided by the rate of the master's connection.

The curves of the paper are pictures. So the constants are derived from what its text prints (`published/marques2016.toml`):

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

from gridgrad.experiments.papers.cited import Formula, published
from gridgrad.experiments.papers.marques2016 import volumes
from gridgrad.parallel.placement.partition import Partition

KNOWN = published("marques2016")
SMALLEST, LARGEST = ("50:500", 64), ("500:1500", 1024)
MIB = 2**20  # bytes: what section 5.4 calls MB
RATE = KNOWN.values["MB a second"].value * MIB  # bytes a second
NUMBER = 8  # bytes: all values are doubles
PRINTED, SUMMED = "5.1 as printed", "5.1 for each slave"
EQUATIONS = PRINTED, SUMMED
NODES = (1, 2, 3, 4, 8, 16, 32)
RATES = (1, 5, 25, 125, 1250)  # MiB/s: section 5.5 names no numbers; 125 and 1250 are about 1 and 10 Gbit/s
FASTER = 5  # a high-end node convolves so many times as fast as the fastest node of the paper: an assumption
GPUS = (1.0, 1.0, 1.5)  # GeForce 840M, 940M, 950M by the peaks that their vendor states, about 0.8, 0.8 and 1.2 TFLOP/s
MOBILE = 1 / KNOWN.values["slowness of mobile GPUs"].value  # of the speed of a GPU


def said(table, column, *key):
    """The Cited of a table of the paper; None where it prints nothing."""
    return KNOWN.tables[table].cited(column, *key)


@dataclass(frozen=True)
class Cluster:
    """One network and batch size on nodes around a master.

    network: kernels, such as "50:500". computation, convolution: seconds of a step on the master alone. speeds: of convolution,
    of the first nodes, the master's is 1. added: of all further ones. rate: bytes a second. equation: PRINTED or SUMMED.
    number: bytes of a value. both: whether the backward pass is sent as well.
    """

    network: str
    batch_size: int
    computation: float
    convolution: float
    speeds: tuple
    added: float
    rate: float = RATE
    equation: str = PRINTED
    number: int = NUMBER
    both: bool = False

    def speeds_of(self, nodes):
        """The speed of each of so many nodes."""
        return (*self.speeds, *[self.added] * nodes)[:nodes]

    def bytes(self, nodes):
        """Bytes that the master and its slaves send each other in a step."""
        return sent(self.network, self.batch_size, self.speeds_of(nodes), self.equation, self.number, self.both)

    def seconds(self, nodes):
        """{part: seconds} of a step."""
        convolution = self.convolution / sum(self.speeds_of(nodes))
        return {
            "communication": self.bytes(nodes) / self.rate, "convolution": convolution, "computation": self.computation,
        }  # fmt: skip

    def speedup(self, nodes):
        """How many times as fast as the master alone."""
        return sum(self.seconds(1).values()) / sum(self.seconds(nodes).values())

    @property
    def limit(self):
        """The speedup if neither convolution nor communication took any time."""
        return (self.computation + self.convolution) / self.computation


def convolutions(network, speeds):
    """The Convolutions of a network on 32x32x3, kernels in proportion to the speeds of the nodes."""
    first, second = map(int, network.split(":"))
    kernels = lambda count: tuple(Partition.weighted(count, tuple(speeds)).sizes)  # noqa: E731
    return [
        volumes.MarquesConvolution((32, 32, 3), (28, 28, first), (5, 5), kernels(first)),
        volumes.MarquesConvolution((14, 14, first), (10, 10, second), (5, 5), kernels(second)),
    ]


def sent(network, batch_size, speeds, equation, number=NUMBER, both=False):
    """Bytes of a step by equation 5.1, see `Cluster`."""
    if len(speeds) == 1:
        return 0
    layers = convolutions(network, speeds)
    whole = (volumes.marques_step if both else volumes.marques_forward)(batch_size, layers, itemsize=number)
    if equation == SUMMED:
        return whole
    copies = [layer.inputs(batch_size) * number for layer in layers]
    again = sum(copies) + both * sum(copies[1:])
    return whole - again + again // max(1, sum(n > 0 for n in layers[1].kernels[1:]))


@lru_cache
def derived(equation):
    """{name: Cluster} with the constants that the text of the paper implies, see the module's text."""
    number = lambda table, column, *key: said(table, column, *key).value  # noqa: E731
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


SECOND = Formula(
    "the speed of the second CPU, the first one's is 1, with which equation 5.1 for each slave gives the speedups of 500:1500",
    lambda *_: derived(SUMMED)["CPUs, largest network"].speeds[1],
)
ONE_CPU = Formula(
    "bytes of equation 5.1 for each slave, over 5 MB/s and over the part of communication, times the speedup, on 4 CPUs",
    lambda bytes_sent, rate, percent, speedup: bytes_sent / (rate * MIB) / (percent / 100) * speedup,
)
GPU_OVER_CPU = Formula(
    "the ratio of one device of Table 5.3, times Table 5.2, over Table 5.1", lambda one, gpus, cpus: one * gpus / cpus
)


def second_speed():
    """How many times as fast as the first CPU, the master, the second one of the paper is: a Cited."""
    return SECOND(*(said("5.1", "speedup", "500:1500", nodes) for nodes in (2, 3, 4)), KNOWN.values["MB a second"])


def seconds_on_one(network):
    """Seconds of a step at batch 64 on the first CPU of the paper: a Cited, None where too little is printed of a network."""
    key = network, 64, 4
    bytes_sent = sent(network, 64, derived(SUMMED)["CPUs, largest network"].speeds, SUMMED)
    printed = said("communication of CPUs", "percent", *key), said("speedups of CPUs", "speedup", *key)
    return ONE_CPU(bytes_sent, KNOWN.values["MB a second"], *printed)


def gpu_over_cpu(network, devices):
    """What Tables 5.1 and 5.2 let one expect of Table 5.3, a Cited; None for one device."""
    one, gpus = said("5.3", "speedup", network, 1), said("5.2", "speedup", network, devices)
    return GPU_OVER_CPU(one, gpus, said("5.1", "speedup", network, devices))


def high_end(cluster):
    """The same master with nodes that are FASTER times as fast as the fastest one."""
    fast = FASTER * max(cluster.speeds)
    return replace(cluster, speeds=(1.0,), added=fast)


def mobile(cluster):
    """The same master, a desktop GPU, with mobile GPUs."""
    return replace(cluster, speeds=(1.0,), added=MOBILE)


def like_measured(network, batch_size, alone, rate):
    """A Cluster of nodes like the one that was measured, which trains in float32, forward and backward.

    alone: {part: seconds} of a step on one rank. rate: bytes a second.
    """
    return Cluster(
        network, batch_size, alone["computation"], alone["convolution"], (1.0,), 1.0, rate, SUMMED, number=4, both=True
    )


def rows(clusters, nodes=NODES):
    """A row for each Cluster and number of nodes. clusters: {name: Cluster}."""
    found = []
    for name, cluster in clusters.items():
        for count in nodes:
            parts = cluster.seconds(count)
            about = {"cluster": name, "network": cluster.network, "batch": cluster.batch_size, "equation": cluster.equation}
            about |= {"MiB/s": round(cluster.rate / MIB, 1), "nodes": count}
            about |= {f"{part}, s": value for part, value in parts.items()}
            about |= {"step, s": sum(parts.values()), "speedup": cluster.speedup(count), "limit": cluster.limit}
            found.append(about)
    return found


def of_rates(equation=PRINTED):
    """Figures 5.13 to 5.15, the speedup at other transmission rates: {figure: ({MiB/s: Cluster}, the most nodes)}."""
    found = derived(equation)
    cpus, gpus = found["CPUs, largest network"], found["GPUs, largest network"]
    kinds = {
        "5.13a low and mid range CPUs": (cpus, 32), "5.13b high-end CPUs": (high_end(cpus), 32),
        "5.14a low and mid range GPUs": (gpus, 32), "5.14b high-end GPUs": (high_end(gpus), 32),
        "5.15 mobile GPUs": (mobile(gpus), 128),
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


def constants():
    """What `derived` finds, as rows."""
    found = []
    for equation in EQUATIONS:
        for name, cluster in derived(equation).items():
            speeds = ", ".join(f"{speed:.2f}" for speed in cluster.speeds)
            found.append({
                "equation": equation, "cluster": name, "network": cluster.network, "batch": cluster.batch_size,
                "computation, s": cluster.computation, "convolution on the master, s": cluster.convolution,
                "speeds of the nodes": speeds, "of further ones": cluster.added, "limit": cluster.limit,
            })  # fmt: skip
    return found
