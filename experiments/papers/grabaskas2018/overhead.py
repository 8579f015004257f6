"""What a synchronisation costs in Grabaskas 2018."""

from gridgrad.experiments.papers.grabaskas2018 import experiments as paper
from gridgrad.experiments.papers.grabaskas2018.derived import overhead, synchronisations
from gridgrad.experiments.papers.grabaskas2018.runs import lines
from gridgrad.experiments.papers.items import Item, ItemRow
from gridgrad.parallel.prediction.machine import read

N = 100


def of_interest():
    """The automated lines on 2 nodes and n = N."""
    return [line for line in lines().values() if line.version == "auto" and line.nodes == 2 and line.n == N]


def predicted(line):
    """Seconds of sending the gradients of a line once, on the thesis' network."""
    shape = (32, 32, 3 if line.dataset == "cifar10" else 1)
    return paper.predicted_step_seconds(line.net, shape, 10, line.batch_size, line.grid, line.plan, read(paper.MACHINE), 0.0)


def measured(line, runs):
    """The same as `overhead`, measured; None where it was not."""
    times = paper.pair(line, runs)
    return times and (times[0] - times[1] / line.nodes) / synchronisations(line)


def item(tables, why, results, model, command):
    """The item. why, results, model, command: of it."""
    rows = tuple(
        ItemRow(
            f"{line.ref} {line.dataset} {line.method}, {synchronisations(line):,} synchronisations",
            overhead(line), measured(line, tables.get("runs", {})), predicted(line),
        )
        for line in of_interest()
    )  # fmt: skip
    return Item(
        "Section 4.2.3", f"seconds lost at each synchronisation, 2 nodes, n = {N}", "section 4.2.3; Appendix C, pages 92, 93",
        rows, why, results, model, command,
        reason="The thesis prints no overhead of a synchronisation: it follows from its times.",
        compares=False,
    )  # fmt: skip
