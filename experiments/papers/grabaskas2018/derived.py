"""What follows from the numbers that Grabaskas 2018 prints: its own equations, and what else is compared with them."""

from math import log2
from statistics import mean

from gridgrad.experiments.papers.cited import RATIO, Formula, published
from gridgrad.experiments.papers.grabaskas2018.runs import PAPER, lines

SPEEDUP = Formula("T_1 / T_P", lambda one, several: one / several, "Equation 3.2, section 3.3.2")
EFFICIENCY = Formula(
    "100 T_1 / (P T_P)", lambda one, several, nodes: 100 * one / several / nodes, "Equation 3.3, section 3.3.2"
)
LOSS = Formula("accuracy_1 - accuracy_P", lambda one, several: one - several, "Equation 3.4, section 3.3.2")
COMPLEXITY = Formula(
    "lines of code x function calls x operands, of which each counts at least 1",
    lambda *factors: max(1, factors[0]) * max(1, factors[1]) * max(1, factors[2]),
    "Equation 3.1, section 3.3.1",
)
EFFORT = Formula(
    "(N1 + N2) log2(n1 + n2) x n1/2 x N2/n2",
    lambda n1, n2, N1, N2: (N1 + N2) * log2(n1 + n2) * n1 / 2 * N2 / n2,
    "Table 3.7, page 38",
)
FEWER = Formula("100 (1 - the second over the first)", lambda many, few: 100 * (1 - few / many))
MEAN = Formula("the mean", lambda *values: mean(values))
LOST = Formula("T_P - T_1 / P", lambda several, one, nodes: several - one / nodes)
OVERHEAD = Formula(
    "(T_P - T_1 / P) over the synchronisations of a node",
    lambda several, one, nodes, times: (several - one / nodes) / times,
)


def value(name):
    """A number of the text of the thesis, by its name in `published/grabaskas2018.toml`."""
    return published(PAPER).values[name].value


def synchronisations(line):
    """How often a node synchronises in all passes over the data."""
    return line.samples * line.passes // (line.nodes * line.n)


def overhead(line):
    """The seconds that each synchronisation of a line of data parallelism costs, a Cited."""
    return OVERHEAD(line.cited("seconds"), line.single.cited("seconds"), line.nodes, synchronisations(line))


def lost(line):
    """The seconds that a line on several nodes takes beyond a perfect division of the work, a Cited."""
    return LOST(line.cited("seconds"), line.single.cited("seconds"), line.nodes)


def twins():
    """[(automated line, manual line)] of the lines of Appendix C that differ in nothing else."""
    of = lambda line: (line.dataset, line.method, line.nodes, line.n)  # noqa: E731
    manual = {of(line): line for line in lines().values() if line.version == "manual"}
    return [(line, manual[of(line)]) for line in lines().values() if line.version == "auto" and of(line) in manual]


def as_manual(auto, manual):
    """The seconds of an automated line over those of its manual twin, a Cited."""
    return RATIO(auto.cited("seconds"), manual.cited("seconds"))
