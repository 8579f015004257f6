"""What the axes of a grid do in a plan, a pipeline, and why other grids and plans lost, in words and tables."""

from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median

from gridgrad.experiments.common.tables import columns
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import MODEL
from gridgrad.parallel.pipeline.simulate import draw
from gridgrad.parallel.placement.plan import weighted
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
NAMED = 3  # layers that are called by their names
COLUMNS = 28  # of the drawing of a schedule


def axes_in_words(sizes, cost):
    """A line for each axis of a grid with several ranks. cost: the Cost of its plan."""
    for axis, size in sizes.items():
        if size > 1:
            yield f"{axis}={size}: {model_in_words(cost) if axis == MODEL else OTHERS[axis]}"


def model_in_words(cost):
    """What the axis `MODEL` does: the most frequent use first, and then in which layers it does something else."""
    layers = {}
    for layer, word in zip(weighted(cost.net), cost.placed.plan):
        layers.setdefault(PLANS[word].use, []).append(f"{layer.name} {type(layer).__name__}")
    if len(layers) == 1:
        return f"all layers with weights {next(iter(layers))}"
    total = sum(map(len, layers.values()))
    first, *others = sorted(layers.items(), key=lambda item: -len(item[1]))
    named = (", ".join(names) if len(names) <= NAMED else f"{len(names)} from {names[0]} to {names[-1]}" for _, names in others)
    parts = [f"{len(first[1])} of {total} layers with weights {first[0]}"]
    return "; only ".join([*parts, *(f"{which} {words}" for which, (words, _) in zip(named, others))])


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


def of_pipeline(found, net):
    """The lines about the step of a PipelinePrediction. net: the serial network."""
    rows = [("chunk", "layers", "stage", "GFLOP", "MB taken", "ms F", "ms I", "ms W")]
    for number, (chunk, layers, stage) in enumerate(chunks_of(found, net)):
        seconds = (f"{chunk.seconds[op] * 1e3:.4g}" for op in "FIW")
        taken = f"{chunk.taken / 1e6:.4g}" if number else ""
        rows.append((str(number), layers, str(stage), f"{chunk.flops / 1e9:.4g}", taken, *seconds))
    yield columns(rows)
    yield "FLOP, megabytes and times are those of one micro-batch, on the rank with the most work of each stage.\n"
    rows = [("stage", "chunks", "ms busy", "ms idle", "idle", "GiB", "open micro-batches")]
    for stage, rank in enumerate(found.ranks):
        held = ",".join(map(str, found.schedule.route.held(stage)))
        times = (f"{seconds * 1e3:.4g}" for seconds in (rank.busy, rank.waiting))
        idle = f"{rank.waiting / found.seconds:.0%}"
        rows.append((str(stage), held, *times, idle, f"{rank.memory / 2**30:.3g}", str(rank.open)))
    yield columns(rows)
    yield f"In a step a rank is idle for {1 - found.use:.0%} of the time in the mean."
    yield "The sums of gradients count in full. The schedule from its beginning, with time to the right:\n"
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
