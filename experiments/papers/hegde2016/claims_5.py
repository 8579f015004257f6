"""What Hegde and Usmani 2016 claim in section 5, on what algorithms send and compute, and what is found of it here.

An order of magnitude holds if what was counted, over the paper's terms, stays about the same where the workers k are doubled
for the last time: constants such as 2 (k - 1)/k settle, and an error of sqrt(k) would already show. Where nothing was counted
yet, what is predicted stands for it.
"""

import heapq
from functools import total_ordering
from math import ceil, log, log2

from gridgrad.experiments.common.tables import cell
from gridgrad.experiments.papers.claims import FOLLOWS, found, undecided
from gridgrad.experiments.papers.hegde2016 import costs
from gridgrad.experiments.papers.hegde2016.costs import ADMM, DOWNPOUR, EXCHANGE, MIB, PARALLEL, SHUFFLE
from gridgrad.experiments.papers.items import MEASURED, PREDICTED
from gridgrad.nn.random import permutation
from gridgrad.parallel.protocols.parallel_sgd import DRAWS

SAME = 1.3  # the most by which a ratio may grow from the last number of workers but one to the last
SIMILAR = 2  # the most by which costs that are similar may differ
SMALL = 0.01  # the most that is negligible
AIRFOIL = 1503 * 6 * 4  # bytes of a small data set: samples of five features and a target


def findings(tables):
    """{name of a claim: Finding}. tables: those of `hegde2016.tables`."""
    counted = CountedAlgorithms(tables["costs"], tables["computations"])
    return orders(counted) | comparisons_of_algorithms(counted) | from_the_text()


class CountedAlgorithms:
    """What was counted of each algorithm on k workers, by k; what was predicted, where an algorithm was not counted.

    kind: MEASURED, or PREDICTED if anything that was asked for was not counted.
    """

    def __init__(self, sent, computed):
        self.lines = {(line["algorithm"], line["k"]): line for line in sent}
        for line in computed:
            self.lines[line["algorithm"], line["k"]] = line | self.lines[line["algorithm"], line["k"]]
        self.kinds = {}

    def of(self, algorithm, counted, predicted):
        """{k: a number}. counted, predicted: the columns."""
        lines = {k: line for (name, k), line in self.lines.items() if name == algorithm}
        is_counted = all(line[counted] is not None for line in lines.values())
        self.kinds[algorithm] = MEASURED if is_counted else PREDICTED
        return {k: line[counted if is_counted else predicted] for k, line in lines.items()}

    def sent(self, algorithm):
        """MiB of all workers."""
        return self.of(algorithm, "counted MiB", "all workers, *predicted* MiB")

    def busiest(self, algorithm):
        """MiB of the worker that sends most."""
        return self.of(algorithm, "busiest, counted MiB", "busiest, *predicted* MiB")

    def computed(self, algorithm):
        """Millions of operations of the rank with the most."""
        return self.of(algorithm, "counted millions", "operations, *predicted* millions")

    def kind(self, *algorithms):
        """That of the numbers of these algorithms."""
        return PREDICTED if any(self.kinds[name] == PREDICTED for name in algorithms) else MEASURED


def each(numbers, text=cell):
    """Numbers by k, in words. text: a function of a number."""
    return ", ".join(f"{text(number)} (k = {k})" for k, number in numbers.items())


def span(numbers, text="{:.3g}".format):
    """The range of some numbers in words, or the one that they round to. text: a function of a number."""
    return " to ".join(dict.fromkeys(text(number) for number in (min(numbers), max(numbers))))


def is_same(ratios):
    """Whether ratios, by k, stay about the same or fall: then what is above is of no higher order than what is below."""
    *_, before, last = ratios.values()
    return last <= SAME * before


def criterion():
    """The words for what counts as no higher order."""
    *_, before, last = costs.WORKERS
    return f"up to {SAME} times as much on {last} workers as on {before} counts as no higher order"


def order(counted, algorithm, ours, terms, what, reason):
    """The Finding of an order of magnitude. ours, terms: {k: number}. what: ours, in words."""
    ratios = {k: ours[k] / terms[k] for k in ours}
    words = f"{what} over the paper's terms: {each(ratios)}"
    return found(is_same(ratios), words, f"{criterion()}; {reason}", counted.kind(algorithm))


def orders(counted):
    """The claims that say of which order something is."""
    sent = lambda name: order(counted, name, counted.sent(name), terms(costs.terms, name), "bytes sent", why[name])  # noqa: E731
    work = lambda name: order(  # noqa: E731
        counted, name, counted.computed(name), terms(costs.work, name), "operations",
        "an update is four for each parameter. Those of the gradients, whose number the paper takes to be O(p) too, are not "
        "counted",
    )  # fmt: skip
    twice = "the terms leave out a factor of 2 (k - 1)/k, which is below 2: what is summed is sent, and so is the sum"
    why = {
        SHUFFLE: "one sample in k stays where it is", PARALLEL: twice, ADMM: twice,
        DOWNPOUR: "parameters come back for each gradient, which the paper does not count; all pass through one server",
    }  # fmt: skip
    setting = {k: costs.setting(k) for k in costs.WORKERS}
    rounds = {k: s["p"] * log2(k) / MIB for k, s in setting.items()}
    steps = {k: rounds[k] * s["steps"] for k, s in setting.items()}
    time = lambda name, terms: order(  # noqa: E731
        counted, name, counted.busiest(name), terms, "bytes of the worker that sends most",
        "an all-reduce in two halves sends less than 2p, however many workers there are: it is faster than the tree of the "
        "paper",
    )  # fmt: skip
    return {
        "shuffle_bytes": sent(SHUFFLE), "parallel_sgd_bytes": sent(PARALLEL), "admm_bytes": sent(ADMM),
        "downpour_bytes": sent(DOWNPOUR), "parallel_sgd_computation": work(PARALLEL), "admm_computation": work(ADMM),
        "parallel_sgd_time": time(PARALLEL, rounds), "admm_time": time(ADMM, steps), "exchange": exchange(counted, setting),
        "parallel_sgd_total": total(counted),
    }  # fmt: skip


def terms(of, algorithm):
    """{k: what the paper's terms are}. of: `costs.terms` or `costs.work`."""
    return {k: of(algorithm, k) for k in costs.WORKERS}


def exchange(counted, setting):
    """Both orders of an exchange of halves: of all workers, and of one."""
    total, most = counted.sent(EXCHANGE), counted.busiest(EXCHANGE)
    of_all = {k: total[k] / (s["D"] / MIB) for k, s in setting.items()}
    of_one = {k: most[k] / (s["D"] / k / MIB) for k, s in setting.items()}
    *_, before, last = costs.WORKERS
    return found(
        is_same(of_all) and is_same(of_one),
        f"{span(of_all.values())} of kN by all workers, {span(of_one.values())} of N by the busiest",
        f"half of the samples move; up to {SAME} times as much for {last} workers as for {before} counts as no higher order",
        counted.kind(EXCHANGE),
    )  # fmt: skip


def total(counted):
    """The order of all that ParallelSGD sends, with its shuffle."""
    shuffle, mean, both = terms(costs.terms, EXCHANGE), terms(costs.terms, PARALLEL), with_shuffle(counted)
    whole = {k: shuffle[k] + mean[k] for k in both}
    ratios = {k: both[k] / whole[k] for k in both}
    last = costs.WORKERS[-1]
    return found(
        is_same(ratios),
        f"bytes sent over Nk + pk: {each(ratios)}; {both[last]:.3g} MiB of {whole[last]:.3g} (k = {last})",
        f"{criterion()}. Nk is the shuffle, though the introduction of this section says that it is left out; without it there "
        f"are {counted.sent(PARALLEL)[last]:.3g} MiB", counted.kind(PARALLEL, SHUFFLE),
    )  # fmt: skip


def with_shuffle(counted):
    """{k: MiB that all workers send in ParallelSGD, its shuffle included}."""
    shuffle, mean = counted.sent(SHUFFLE), counted.sent(PARALLEL)
    return {k: shuffle[k] + mean[k] for k in mean}


def comparisons_of_algorithms(counted):
    """The claims that set one algorithm beside another, or one part beside another."""
    admm, both, k = counted.sent(ADMM), with_shuffle(counted), costs.WORKERS[-1]
    more = {k: counted.computed(DOWNPOUR)[k] / counted.computed(ADMM)[k] for k in costs.WORKERS}
    steps = [{name: one.steps for name, one in costs.algorithms(costs.SAMPLES, k).items()} for k in costs.WORKERS]
    small = {k: costs.distribution(k) / costs.setting(k)["D"] for k in costs.WORKERS}
    beside = {k: admm[k] * MIB - costs.predicted(ADMM, k)[0] for k in admm}  # what is predicted are the parameters alone
    return {
        "admm_avoids": found(
            max(beside.values()) < costs.SAMPLE,
            f"{span(beside.values(), '{:.0f}'.format)} bytes in an epoch that are not parameters; a sample has {costs.SAMPLE}",
            f"no sample moves, but it sends {span([admm[k] / both[k] for k in both])} times as much in an epoch as ParallelSGD",
            counted.kind(ADMM, SHUFFLE, PARALLEL),
        ),
        "downpour_computation": computation_of_downpour(more, counted.kind(DOWNPOUR, ADMM)),
        "same_gradients": found(
            all(one[PARALLEL] == one[ADMM] for one in steps),
            f"steps of a worker in an epoch, with both: "
            f"{each({k: one[ADMM] for k, one in zip(costs.WORKERS, steps, strict=True)})}",
            "an epoch is one, whatever is sent in between", FOLLOWS,
        ),
        "distribution_is_cheap": found(
            max(small.values()) <= SMALL,
            f"bytes sent beside the samples of MNIST, in percent of these: {each({k: 100 * one for k, one in small.items()})}",
            f"up to {100 * SMALL:g} % is negligible. It does not hold for small data: for the {AIRFOIL:,} bytes of airfoil and "
            f"{k} workers they would be {costs.distribution(k) / AIRFOIL:.2g} times the data", PREDICTED,
        ),
    }  # fmt: skip


def computation_of_downpour(more, kind):
    """The Finding of the operations beside gradients over those of ADMM SGD, by k: too many of them decide nothing."""
    numbers, similar = f"operations beside gradients over those of ADMM SGD: {each(more)}", f"up to {SIMILAR} times as many"
    if max(more.values()) <= SIMILAR:
        return found(True, numbers, f"{similar} count as similar", kind)
    return undecided(
        f"{similar} would be similar, but the gradients, most of the computation, are equally many and were not counted; "
        "beside them the one server applies the gradients of all workers, where ADMM SGD takes one mean", numbers, kind,
    )  # fmt: skip


def from_the_text():
    """The claims that the paper's own formulas, or counting, decide."""
    k, p = costs.WORKERS[-1], costs.setting(2)["elements"]
    merged = {k: comparisons(k, DRAWS) / (k * DRAWS) for k in costs.WORKERS}
    first, second = both_lines(k)
    iterations = {eps: (1 / (2 * eps), log(1 / eps)) for eps in (1e-2, 1e-4)}
    (few, short), (many, long) = iterations.values()
    depth = {q: ceil(p / q) for q in (1, 8, p)}  # of independent sums on q processors
    return {
        "merge_work": found(
            is_same(merged), f"comparisons for each of k x {DRAWS} drawn samples in a merge with a heap: {each(merged)}",
            f"{criterion()}. Each sample passes log k comparisons, so it is O(kd log k); only labels that are few and known "
            "can be counted in O(kd)", FOLLOWS,
        ),
        "aggregate": found(
            first == second, f"for k = {k} the sum on the left has {first:g} d/B, that on the right {second:g} d/B",
            "each round sends dk/2 in all, so that log k of them are dk/(2B) log k, as the next line of the paper has it",
            FOLLOWS,
        ),
        "sgd_iterations": found(
            many / few <= long / short,
            f"for the loss (w - x)^2/2 of samples of variance 1 the best that is known after t samples, their mean, has an "
            f"expected error of 1/(2t): {few:g} samples for 0.01, {many:g} for 0.0001; log 1/eps is {short:.1f} and {long:.1f}",
            "the logarithm is that of gradient descent with the gradients of all samples in each step", FOLLOWS,
        ),
        "depth_of_sums": found(
            all(deep <= p / q + log2(p) for q, deep in depth.items()),
            "; ".join(f"{deep:,} deep on q = {q:,}, where p/q + log p is {p / q + log2(p):,.1f}" for q, deep in depth.items()),
            "log p is not needed: the p sums are independent, so they are O(p/q + 1) deep, and log k rounds of them are of the "
            "order p/q log k, with which the paper goes on", FOLLOWS,
        ),
        "server_formula": found(
            False, "k workers that take T + tau for an update bring k/(T + tau) a second, which is 1/tau for k = T/tau + 1: 3 "
            "workers for T = 2 tau, where the paper has 2",
            "T/k leaves out the tau that each worker waits for its own update", FOLLOWS,
        ),
        "downpour_time": found(
            False, "with k = T/tau workers O(theta p/k), by T for p, is theta tau, and beyond it O(tau) would be one update, "
            "not theta",
            "theta is left out: a server that is busy takes theta tau for theta updates", FOLLOWS,
        ),
    }  # fmt: skip


def both_lines(k):
    """The samples' part of the cost of gathering them, in d/B: by the first and by the second line of section 5.1.1."""
    rounds = range(1, int(log2(k)) + 1)
    return sum(k / 2**i * 2 ** (i - 1) for i in rounds), sum(k / 2**i for i in rounds)


def comparisons(k, draws):
    """How many comparisons a merge of k sorted lists of so many different numbers takes, with a heap."""
    count = 0

    @total_ordering
    class Label:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            return self.value == other.value

        def __lt__(self, other):
            nonlocal count
            count += 1
            return self.value < other.value

    order = permutation(0, 0, k * draws, "labels")
    lists = [[Label(value) for value in sorted(order[start::k].tolist())] for start in range(k)]
    for _ in heapq.merge(*lists):
        pass
    return count
