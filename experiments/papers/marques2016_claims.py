"""What the text of Marques 2016 claims, one by one, beside what we measured, predicted or computed."""

from functools import partial
from statistics import median

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers import marques2016_scaling as scaling
from gridgrad.experiments.papers.marques2016_runs import WITH_MASTER
from gridgrad.experiments.plots.marques2016 import rounds_of

SMALL, LARGE = "50:500", "500:1500"
ALIKE = 0.25  # numbers that differ by less, relative, count as equal
STABLE = 0.25  # what 32 nodes may gain over 8 where the paper calls the speedup stable


def claims(rows):
    """Rows: claim, published, ours, how ours was found, and whether it holds (None where nothing is to be compared).

    rows: of the table "split"; without any, only what follows from the text is computed.
    """
    return [dict(zip(("claim", "published", "ours", "how", "holds"), row)) for row in (*of_runs(rows), *of_text(), *of_nodes())]


def of_runs(rows):
    """Claims about steps, against the measured ones."""
    where = partial(select, rows)
    two = where(ranks=2, form=WITH_MASTER)
    if two:
        speedups = [r["speedup"] for r in two]
        yield ("5.1.1: there is a speedup for every network and batch size", "1.20 or more on 2 CPUs",
               span(speedups), measured(two), min(speedups) > 1)  # fmt: skip
        best = {r["network"]: max(s["speedup"] for s in two if s["network"] == r["network"]) for r in two}
        values = list(best.values())
        yield ("Table 5.1: the more kernels, the larger the best speedup on 2 CPUs", "1.40, 1.68, 1.69, 1.98",
               ", ".join(f"{value:.2f}" for value in values), measured(two), values == sorted(values))  # fmt: skip
        one = {(r["network"], r["batch"]): r["computation, s"] for r in where(ranks=1)}
        changes = [r["computation, s"] / one[r["network"], r["batch"]] for r in two]
        yield ("5.1.1: the computation of other layers takes as long on any number of devices", "constant",
               f"on 2 ranks {span(changes)} times that on one", measured(two), 0.75 < median(changes) < 1.33)  # fmt: skip
        small = [r for r in two if r["network"] == SMALL]
        if len(small) > 1:
            speedups = [r["speedup"] for r in small]
            yield ("5.1.3: the batch size hardly changes the speedup of the smallest network", "1.27 to 1.33 on 2 CPUs",
                   span(speedups), measured(small), max(speedups) / min(speedups) < 1 + ALIKE)  # fmt: skip
    four = where(ranks=4, form=WITH_MASTER, batch=64)
    if len(four) > 1:
        shares = [r["communication, s"] / r["step, s"] for r in four]
        yield ("5.1.2: with more kernels communication is a smaller part of the step (4 CPUs, batch 64)",
               "47 %, 30 %, .., 19 %", ", ".join(f"{share:.1%}" for share in shares), four[0]["how"] + ", 4 ranks",
               shares == sorted(shares, reverse=True))  # fmt: skip
    largest = where(ranks=1, network=LARGE)
    if len(largest) > 1:
        first, *_, last = (r["computation, s"] / r["step, s"] for r in largest)
        yield ("5.1.3: computation is a smaller part of the step of the largest network at larger batches", "25 % to 13 %",
               f"{first:.1%} to {last:.1%}", measured(largest), first / last > 1 + ALIKE)  # fmt: skip
        yield ("5.1.3: the theoretical maximum of the largest network (one over that part)", "4 to 7.76",
               f"{1 / first:.1f} to {1 / last:.1f}", measured(largest), None)  # fmt: skip
    alone = where(ranks=1)
    if alone:
        shares = [r["convolution, s"] / r["step, s"] for r in alone]
        yield ("4: convolutions take 60 to 90 % of the time", "60 % to 90 %", f"{min(shares):.0%} to {max(shares):.0%}",
               measured(alone), min(shares) >= 0.6)  # fmt: skip


def select(rows, **values):
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def measured(rows):
    """How these rows, which have the same number of ranks, were measured."""
    ranks = rows[0]["ranks"]
    return f"measured, {counted(ranks, 'rank')}, {rounds_of(rows)}"


def span(values):
    return f"{min(values):.2f} to {max(values):.2f}"


def near(a, b):
    """Whether two numbers differ by no more than a tenth."""
    return abs(a / b - 1) < 0.1


def of_text():
    """Whether the numbers of the text agree with each other."""
    yield ("5.1.1: the speedup of 50:500 on 2 CPUs (batch 64)", "1.20",
           "1.27 to 1.33 in section 5.1.3 (all batch sizes), 1.40 in Table 5.1 (the best one)", "the text", False)  # fmt: skip
    yield ("5.1.3: the speedup of 500:1500 on 3 CPUs (batch 1024)", "2.73", "2.74 in Table 5.1", "the text", False)
    yield ("5.1.2: computation is 25 % on 1 CPU and 56 % on 4, where the speedup is 2.27", "56 %", f"{0.25 * 2.27:.0%}",
           "computed", near(0.25 * 2.27, 0.56))  # fmt: skip
    slower = 2.27 / (1 + 4 * 0.19)
    yield ("5.1.2: with a network 5 times as slow that speedup is still 1.27", "1.27", f"{slower:.2f}", "computed",
           near(slower, 1.27))  # fmt: skip
    yield ("5.1.3: the maximum is 7.76 where computation is 13 % (batch 1024)", "7.76", f"{1 / 0.13:.2f}", "computed",
           near(1 / 0.13, 7.76))  # fmt: skip
    yield ("5.4: the maximum of the CPUs, in the same case", "6.70", "7.76 in section 5.1.3", "the text", near(6.70, 7.76))
    clusters = scaling.derived(scaling.SUMMED)
    small = clusters["CPUs, smallest network"].speedup(4)
    yield ("5.1.1: 50:500 at batch 64 is 1.35 times as fast on 4 CPUs (not used for the constants)", "1.35", f"{small:.2f}",
           "predicted, equation 5.1 for each slave", near(small, 1.35))  # fmt: skip
    gpus = scaling.derived(scaling.PRINTED)["GPUs, largest network"]
    yield ("Table 5.2: 500:1500 on 3 GPUs, where the maximum is 2.15 (batch 1024)", "2.00", f"{gpus.speedup(3):.2f}",
           "predicted, equation 5.1 as printed", near(gpus.speedup(3), 2.0))  # fmt: skip


def of_nodes():
    """The claims of sections 5.4 and 5.5."""
    for equation in scaling.EQUATIONS:
        for name, cluster in scaling.derived(equation).items():
            speedups = {nodes: cluster.speedup(nodes) for nodes in range(1, 33)}
            best = max(speedups, key=speedups.get)
            yield (f"5.4: up to 32 nodes nothing is lost ({name})", "scalable",
                   f"best {speedups[best]:.2f} on {best} nodes, {speedups[32]:.2f} on 32", f"predicted, {equation}",
                   speedups[32] > 0.99 * speedups[best])  # fmt: skip
            yield (f"5.4: the speedup is stable from 8 nodes ({name})", "8 nodes",
                   f"{speedups[8]:.2f} on 8, {speedups[32]:.2f} on 32", f"predicted, {equation}",
                   abs(speedups[32] / speedups[8] - 1) < STABLE)  # fmt: skip
    by_rate = {name: clusters for name, (clusters, _) in scaling.of_rates().items()}
    low, high = by_rate["5.13a low and mid range CPUs"], by_rate["5.13b high-end CPUs"]
    at_32 = [low[5].speedup(32), high[5].speedup(32)]
    yield ("5.5: low and high-end devices hardly differ at 32 nodes (5 MiB/s)", "almost no difference",
           f"{at_32[0]:.2f} and {at_32[1]:.2f}", "predicted, 5.1 as printed", at_32[1] / at_32[0] < 1 + ALIKE)  # fmt: skip
    slow = by_rate["5.14a low and mid range GPUs"][1].speedup(32)
    yield ("5.5: on a slower network GPUs may train more slowly than one alone", "below 1",
           f"{slow:.2f} at 1 MiB/s on 32 nodes", "predicted, 5.1 as printed", slow < 1)  # fmt: skip
    mobile, desktop = by_rate["5.15 mobile GPUs"][125], by_rate["5.14a low and mid range GPUs"][125]
    few, many, goal = mobile.speedup(32), mobile.speedup(128), desktop.speedup(32)
    yield ("5.5.1: 31 mobile GPUs do not reach 31 desktop GPUs (125 MiB/s)", "not with 31; of 127 there is a figure alone",
           f"{few:.2f} of {goal:.2f}, {many:.2f} with 127", "predicted, 5.1 as printed", few < 0.9 * goal)  # fmt: skip
