"""What the cost model says of claims of Laugier et al. 2018 on other networks, more ranks and larger models: all predicted.

What the paper leaves out can reverse the order of its speedups. So a claim is decided only where `steps.CHOICES` agree: the
cost model with all ranks on one node, with one on each, and with the settings of the paper's code.
"""

from dataclasses import replace
from functools import lru_cache

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.claims import HOLDS, found, undecided
from gridgrad.experiments.papers.items import PREDICTED
from gridgrad.experiments.papers.laugier2018 import steps
from gridgrad.experiments.papers.laugier2018.follows import VALUES
from gridgrad.experiments.papers.laugier2018.formulas import DEPTHS
from gridgrad.experiments.papers.laugier2018.speedups import of_logs
from gridgrad.parallel.grid.process_grid import GridDescription

LARGE, BATCH_SIZE = VALUES["model_model_size"], VALUES["batch_size"]
TIMES = 10  # by which latency is raised, or bandwidth lowered
MORE = (1, 2, 4, 8, 16, 32, 64, BATCH_SIZE, 2 * BATCH_SIZE)  # ranks
EQUAL = 1.1  # the largest factor between two numbers that count as equal
OPEN_ENDS = "it depends on what the paper leaves out"
APART = {name: choice for name, choice in steps.CHOICES.items() if choice[steps.NODE] == 1}  # that have a network


@lru_cache
def findings():
    """{claim: Finding}."""
    few, share = (2, steps.RANKS), {}
    for name, choice in steps.CHOICES.items():
        share[name] = [sending / (computing + sending) for computing, sending in (parts(1, ranks, choice) for ranks in few)]
    sizes = (LARGE, 4 * LARGE, 16 * LARGE)
    grown = {name: [growth(size, choice) for size in sizes] for name, choice in steps.CHOICES.items()}
    curves = {name: dict(zip(MORE, curve(choice))) for name, choice in steps.CHOICES.items()}
    networks = [
        {name: effects(*grid, choice) for name, choice in APART.items()} for grid in ((steps.RANKS, 1), (1, steps.RANKS))
    ]
    of_network = lambda one: (  # noqa: E731
        f"{one[1]:.3g} times as long with 1/{TIMES} of the bandwidth, {one[0]:.3g} with {TIMES} times the latency"
    )
    where = f"the time of the messages of size {LARGE:,} on {steps.RANKS} nodes of Cori"
    return {
        "batch_network": if_choices_agree(
            networks[0], lambda one: one[1] > one[0], of_network, f"{where}; bandwidth is to matter more",
        ),
        "model_network": if_choices_agree(
            networks[1], lambda one: one[1] < one[0], of_network, f"{where}; latency is to matter more",
        ),
        "few_nodes_costly": if_choices_agree(
            share, lambda one: None if max(one) <= EQUAL * min(one) else one[0] > one[1],
            lambda one: f"{one[0]:.0%} of a step on {few[0]} ranks, {one[1]:.0%} on {few[1]}",
            f"the part of messages in a step of model parallelism, size {LARGE:,}: with fewer ranks it is to be "
            f"larger, and up to a factor of {EQUAL} counts as equal",
        ),
        "batch_ends": if_choices_agree(
            curves, lambda one: max(one, key=one.get) < MORE[-1],
            lambda one: f"the most on {max(one, key=one.get)} ranks, {max(one.values()):.3g} times, and {one[MORE[-1]]:.3g} on "
            f"{MORE[-1]}", f"a minibatch has {BATCH_SIZE} samples: ranks beyond the {BATCH_SIZE}th have none",
        ),
        "saturation": unless_logs_differ(if_choices_agree(
            grown, lambda one: one == sorted(one), lambda one: ", ".join(
                f"{value:.3g} times with size {size:,}" for size, value in zip(sizes, one)
            ), f"model parallelism on {steps.RANKS} ranks, whose limit is {steps.RANKS} times: below saturation it still grows",
        )),
        "small_blocks": small_blocks(),
    }  # fmt: skip


def unless_logs_differ(finding):
    """A Finding that speedups of model parallelism grow with the size, undecided where they do not in the logs."""
    logged = {
        source.name: [
            max(one.median for one in source.best(size, model=True).values()) for size in source.sizes(model=True)
        ]
        for source in of_logs()
    }  # fmt: skip
    falling = {name: some for name, some in logged.items() if some != sorted(some)}
    if finding.verdict != HOLDS or not falling:
        return finding
    said = "; ".join(f"{name}: {', '.join(f'{one:.3g}' for one in some)}" for name, some in falling.items())
    reason = f"with growing sizes the speedup falls in logs of the paper's code ({said}), where it is predicted to grow"
    return undecided(reason, finding.numbers, PREDICTED)


def if_choices_agree(values, holds, words, reason):
    """The Finding of what is predicted in several cases, {case: value}.

    holds: a function of a value that returns whether the claim holds, or None where that is not clear. words: one of a value.
    """
    numbers = "; ".join(f"{name}: {words(value)}" for name, value in values.items())
    verdicts = {holds(value) for value in values.values()}
    if verdicts in ({True}, {False}):
        return found(verdicts.pop(), numbers, reason, PREDICTED)
    return undecided(f"{OPEN_ENDS}; {reason}", numbers, PREDICTED)


def compute_below_messages():
    """The Finding of that claim, for the largest model on as many ranks as the paper had."""
    return if_choices_agree(
        {name: parts(steps.RANKS, 1, choice) for name, choice in steps.CHOICES.items()}, lambda one: one[0] < one[1],
        lambda one: f"{1e3 * one[0]:.3g} ms computing and {1e3 * one[1]:.3g} ms messages",
        f"batch parallelism on {steps.RANKS} ranks, size {LARGE:,}",
    )  # fmt: skip


def small_blocks():
    """The Finding of that claim, for the products of a rank's part of a minibatch."""
    samples = -(-BATCH_SIZE // steps.RANKS)
    shares = {counted(hidden, "hidden layer"): many / one for hidden in DEPTHS for one, many in [products(hidden)]}
    return if_choices_agree(
        shares, lambda one: one > samples / BATCH_SIZE,
        lambda one: f"products of {samples} samples take {one:.0%} of the time of those of {BATCH_SIZE}",
        f"as efficient they would take {samples / BATCH_SIZE:.0%}; the model knows memory, but neither caches nor tiles",
    )  # fmt: skip


def effects(batch, model, choice):
    """(factor by which the messages of a grid take longer with TIMES the latency, with 1/TIMES the bandwidth), predicted."""
    machine, itemsize = steps.machine_of(choice[steps.NODE]), steps.ITEMSIZE[choice[steps.NUMBERS]]
    group = GridDescription({"batch": batch, "model": model}, ranks_per_node=choice[steps.NODE])
    widths = tuple(steps.widths_of(LARGE, choice[steps.LAYERS]))

    def seconds(machine):
        return sum(
            machine.collective_seconds(name, group.group(axis), group.size, count * itemsize)
            for kind, axis, given, _ in steps.messages(widths, batch, model, choice[steps.ALGORITHM])
            for name, count in steps.steps_of(
                kind, group.group(axis).size, given, choice[steps.SUMS], choice[steps.MESSAGES]
            )
        )  # fmt: skip

    network = machine.links["network"]
    changed = [machine.links | {"network": network | {name: network[name] * TIMES}} for name in ("alpha", "beta")]
    return tuple(seconds(replace(machine, links=links)) / seconds(machine) for links in changed)


def growth(size, choice):
    """The predicted speedup of model parallelism on 32 ranks."""
    one, many = steps.seconds(((size, 1, 1), (size, 1, steps.RANKS)), choice)
    return float(one / many)


def curve(choice):
    """The predicted speedups of batch parallelism on MORE ranks."""
    seconds = steps.seconds(tuple((LARGE, ranks, 1) for ranks in MORE), choice)
    return [float(value) for value in seconds[0] / seconds]


def products(hidden):
    """(seconds of the products of a whole minibatch on one rank, of 1/32 of it on one rank of 32 nodes), predicted."""
    machine, itemsize, widths = steps.machine_of(1), steps.ITEMSIZE["float64"], tuple(steps.widths_of(LARGE, hidden))
    return [
        sum(machine.operation_seconds(work.name, work.sizes, work.scale, work.flops, work.nbytes, itemsize, ranks)
            for work in steps.operations(widths, ranks, 1) if work.name.startswith("linear."))
        for ranks in (1, steps.RANKS)
    ]  # fmt: skip


def parts(batch, model, choice):
    """(seconds of computing, of messages with what packs them and hands the minibatch out) of a step of size 1,024."""
    cases = ((LARGE, batch, model),)
    names = steps.LAYERS, steps.NUMBERS, steps.NODE, steps.THREADS, steps.PEAK, steps.NETWORK
    computing = steps.computing(cases, *(choice[name] for name in names)) + steps.interpreting(choice)
    return float(computing[0]), float((steps.seconds(cases, choice) - computing)[0])
