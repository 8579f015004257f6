"""What `explain` prints of a plan and of a pipeline, and why other grids and plans lost."""

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median

from gridgrad.experiments.common.tables import table
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import MODEL
from gridgrad.parallel.pipeline.simulate import draw
from gridgrad.parallel.plans.plans import PLANS

OTHERS = {
    "batch": "all layers split the samples; the ranks sum their gradients",
    "height": "convolutions split the rows of each image, other layers the samples",
    "stage": "the ranks of a stage hold some of the layers, one stage after another",
}
PARTS = {
    "compute": "computing", "update": "the update", "gradients": "sums of gradients", "activations": "moving activations",
    "waiting": "waiting for other ranks",
}  # fmt: skip
COLUMNS = 28  # of the drawing of a schedule


def axes_in_words(sizes, cost):
    """A line for each axis of a grid with several ranks. cost: the Cost of its plan."""
    uses = Counter(PLANS[word].use for word in cost.placed.plan).most_common()
    words = OTHERS | {MODEL: f"of the layers with weights, {'; '.join(f'{count} {use}' for use, count in uses)}"}
    return [f"{axis}={size}: {words[axis]}" for axis, size in sizes.items() if size > 1]


def why_lost(other, chosen):
    """In words, what makes one Candidate slower than another."""
    if other.reason:
        return other.reason
    if other.seconds < chosen.seconds:
        more, fewer = (candidate.step.bounding.collectives for candidate in (other, chosen))
        why = f"{more} collectives instead of {fewer}"
        if other.pipelined and not chosen.pipelined:
            why = "a pipeline, whose prediction leaves out more"
        elif more == fewer:
            why = "as many collectives, and later in the order of grids and plans"
        return f"{why}, for {milliseconds(chosen.seconds - other.seconds)} that the model may be wrong about"
    mine, theirs = other.step.parts, chosen.step.parts
    more = sorted(((mine.get(part, 0.0) - theirs.get(part, 0.0), name) for part, name in PARTS.items()), reverse=True)
    worse = [f"{milliseconds(value)} more for {name}" for value, name in more if value > 0.05 * abs(more[0][0])][:2]
    better = [f"{milliseconds(-value)} less for {name}" for value, name in more[::-1] if -value > 0.05 * abs(more[0][0])][:1]
    return ", ".join(worse + better) or "no difference that counts"


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms"


def plan_in_words(candidate):
    """The plan and the pipeline of a Candidate, in which words that repeat are counted."""
    runs = ((word, len(list(same))) for word, same in groupby(candidate.plan.split(",")))
    words = ", ".join(f"{count} {word}" if count > 1 else word for word, count in runs)
    return f"{words}; {pipeline_in_words(candidate.pipelined)}" if candidate.pipelined else words


def pipeline_in_words(found):
    """The schedule, the number of micro-batches and the cuts of a PipelinePrediction, as on the command line."""
    parts = f", {found.micro_batches} micro-batches" if found.micro_batches > 1 else ""
    return f"pipeline {found.pipeline}{parts}, cuts {','.join(map(str, found.cuts))}"


def of_layers(chosen, rows):
    """The lines about the step of a Candidate, layer by layer. rows: those of `layer_rows`."""
    known = chosen.cost.is_even
    shown = [
        {
            "layer": row["layer"], "": ", ".join(dict.fromkeys(row["kinds"])), "placement": row["placement"],
            "GFLOP": row["flops"] / 1e9, "MB sent": row["bytes"] / 1e6,
            "MB at least": row["bound_bytes"] / 1e6 if known else None, "ms": row["seconds"] * 1e3,
        }
        for row in rows
    ]  # fmt: skip
    sums = {name: sum(row[name] for row in shown) for name in ("GFLOP", "MB sent", *["MB at least"] * known)}
    total = {"layer": "a step", "": "", "placement": ""} | sums | {"ms": chosen.seconds * 1e3}
    yield table([*shown, dict.fromkeys(shown[0]) | total])
    yield "A layer stands for those that follow it, and its MB sent for the sums of its gradients, whose time stands in row"
    yield "gradients, in full. MB at least: of any placement with even shares. All is that of the rank with the most work."
    if chosen.played:
        yield ""
        yield table([
            {"rank along model": place, "ms computing": rank.busy * 1e3, "ms waiting": rank.waiting * 1e3,
             "ms communicating": rank.communicating * 1e3, "MB sent": rank.bytes / 1e6, "messages": rank.messages}
            for place, rank in enumerate(chosen.step.ranks)
        ])  # fmt: skip


def of_pipeline(found, net):
    """The lines about the step of a PipelinePrediction. net: the serial network."""
    yield table([
        {"chunk": number, "layers": layers, "stage": stage, "GFLOP": chunk.flops / 1e9,
         "MB taken": chunk.taken / 1e6 if number else None, **{f"ms {op}": chunk.seconds[op] * 1e3 for op in "FIW"}}
        for number, (chunk, layers, stage) in enumerate(chunks_of(found, net))
    ])  # fmt: skip
    yield "These are of one micro-batch, on the rank with the most work of each stage.\n"
    yield table([
        {"stage": stage, "chunks": ",".join(map(str, found.schedule.route.held(stage))), "ms busy": rank.busy * 1e3,
         "ms idle": rank.waiting * 1e3, "idle": f"{rank.waiting / found.seconds:.0%}", "GiB": f"{rank.memory / 2**30:.3g}",
         "open micro-batches": rank.open}
        for stage, rank in enumerate(found.ranks)
    ])  # fmt: skip
    yield f"A rank is idle for {1 - found.use:.0%} of a step in the mean. The schedule from its beginning, time to the right:\n"
    first = tuple(events[: len(row)] for row, events in zip(found.schedule.rows, found.played.events))
    passes = [event.stop - event.start for row in first for event in row if event.instruction.op in "FBIW"]
    yield draw(replace(found.played, events=first), max(min(passes), median(passes) / 3) or None, COLUMNS)


def chunks_of(found, net):
    """Yield (ChunkCost, the names of its first and last layer, its stage) of each chunk."""
    bounds = pairwise((0, *found.cuts, len(net.layers)))
    for number, ((stage,), (first, end)) in enumerate(zip(found.schedule.route.places, bounds, strict=True)):
        layers = list(leaves(net.layers[first:end]))
        ends = dict.fromkeys(f"{layer.name} {type(layer).__name__}" for layer in (layers[:1] + layers[-1:]))
        yield found.chunks[stage, number], " .. ".join(ends) or "none", stage


def chunk_rows(found, net):
    """A dict for each chunk, with the work and the bytes of a whole step, as `layer_rows` has them of layers.

    bytes: those of the rank's collectives, and those that cross the boundary in front of the chunk, forward and backward.
    """
    parts = found.micro_batches
    return [
        {
            "layer": layers, "stage": stage, "flops": parts * chunk.flops, "bound_bytes": 0.0,
            "bytes": parts * (chunk.sent[0] + 2 * chunk.taken * (number > 0)) + chunk.sent[1],
            "seconds": parts * chunk.computed + chunk.seconds["U"],
        }
        for number, (chunk, layers, stage) in enumerate(chunks_of(found, net))
    ]  # fmt: skip
