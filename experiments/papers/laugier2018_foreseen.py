"""What the cost model says of claims of Laugier et al. 2018 on other networks, more ranks and larger models: all predicted."""

from dataclasses import replace

from gridgrad.experiments.papers import laugier2018_steps as steps
from gridgrad.experiments.papers.claims import found
from gridgrad.experiments.papers.items import PREDICTED
from gridgrad.experiments.papers.laugier2018_follows import VALUES
from gridgrad.parallel.grid.grid_description import GridDescription

LARGE = VALUES["model_model_size"]
TIMES = 10  # by which latency is raised, or bandwidth lowered


def findings(tables):
    """{claim: Finding}. tables: those of `laugier2018.tables`."""
    batch, model = effects(steps.RANKS, 1), effects(1, steps.RANKS)
    share = {ranks: sending[1] / (computing[1] + sending[1]) for ranks in (2, steps.RANKS)
             for computing, sending in [parts(LARGE, 1, ranks)]}  # fmt: skip
    apart = steps.BASE | {steps.NODE: 1}
    grown = {size: growth(size, apart) for size in (LARGE, 4 * LARGE, 16 * LARGE)}
    curve = next(line for line in tables["curves"] if (line["predicted"], line["model size"]) == ("batch", LARGE))
    values = {int(ranks): value for ranks, value in curve.items() if ranks.isdigit() and value}
    peak = max(values, key=values.get)
    cori = f"messages of size {LARGE} on {steps.RANKS} nodes of Cori take"
    effect = lambda found: (  # noqa: E731
        f"{cori} {found[1]:.3g} times as long with 1/{TIMES} of the bandwidth, {found[0]:.3g} with {TIMES} times the latency"
    )
    return {
        "batch_network": found(batch[1] > batch[0], effect(batch), "", PREDICTED),
        "model_network": found(
            model[0] > model[1], effect(model),
            "at this size bandwidth matters more than latency in model parallelism, too", PREDICTED,
        ),
        "few_nodes_costly": found(
            share[2] > share[steps.RANKS],
            "; ".join(f"{value:.0%} of a step on {ranks} nodes" for ranks, value in share.items()),
            "what messages of model parallelism take is a larger part of a step with more nodes, not with fewer", PREDICTED,
        ),
        "batch_ends": found(
            peak < max(values),
            f"{values[peak]:.3g} times on {peak} ranks, {values[max(values)]:.3g} times on {max(values)} ({curve['assumed']})",
            "", PREDICTED,
        ),
        "saturation": found(
            list(grown.values()) == sorted(grown.values()), ", ".join(f"{value:.3g} times with size {size:,}"
                                                                     for size, value in grown.items()),
            f"on {steps.RANKS} nodes, where {steps.RANKS} times is the limit: it still grows at these sizes", PREDICTED,
        ),
    }  # fmt: skip


def effects(batch, model):
    """(factor by which the messages of a grid take longer with TIMES the latency, with 1/TIMES the bandwidth), predicted."""
    machine, itemsize = steps.machine_of(1), steps.ITEMSIZE["float64"]
    group = GridDescription({"batch": batch, "model": model}, ranks_per_node=1)
    widths, base = tuple(steps.widths_of(LARGE, steps.HIDDEN)), steps.BASE

    def seconds(machine):
        return sum(
            machine.collective_seconds(name, group.group(axis), group.size, count * itemsize)
            for kind, axis, given, _ in steps.messages(widths, batch, model, base[steps.ALGORITHM])
            for name, count in steps.steps_of(kind, group.group(axis).size, given, base[steps.SUMS], base[steps.MESSAGES])
        )

    network = machine.links["network"]
    changed = [machine.links | {"network": network | {name: network[name] * TIMES}} for name in ("alpha", "beta")]
    return tuple(seconds(replace(machine, links=links)) / seconds(machine) for links in changed)


def growth(size, choice):
    """The predicted speedup of model parallelism on 32 ranks."""
    one, many = steps.seconds(((size, 1, 1), (size, 1, steps.RANKS)), choice)
    return float(one / many)


def products():
    """(seconds of the products of a step of 100 samples on one rank, of 4 samples on a rank of 32 on 32 nodes), predicted."""
    machine, itemsize, widths = steps.machine_of(1), steps.ITEMSIZE["float64"], tuple(steps.widths_of(LARGE, steps.HIDDEN))
    return [
        sum(machine.operation_seconds(work.name, work.sizes, work.scale, work.flops, work.nbytes, itemsize, ranks)
            for work in steps.operations(widths, ranks, 1) if work.name.startswith("linear."))
        for ranks in (1, steps.RANKS)
    ]  # fmt: skip


def parts(size, batch, model):
    """([seconds of computing], [seconds of messages]) of a grid: all ranks on one node, and one on each; predicted."""
    cases, base = ((size, batch, model),), steps.BASE
    layers, numbers, network = base[steps.LAYERS], base[steps.NUMBERS], base[steps.NETWORK]
    computing, sending = [], []
    for node in (steps.RANKS, 1):
        found = steps.computing(cases, layers, numbers, node, base[steps.THREADS], base[steps.PEAK], network)
        computing.append(float(found[0]))
        found = steps.sending(
            cases, layers, numbers, node, base[steps.SUMS], base[steps.MESSAGES], base[steps.ALGORITHM], network
        )
        sending.append(float(found[0]))
    return computing, sending
