"""What `explain` prints about a predicted pipeline."""

from dataclasses import replace
from itertools import pairwise
from statistics import median

from gridgrad.nn.sequence import leaves
from gridgrad.parallel.pipeline.simulate import draw
from gridgrad.parallel.prediction.pipeline_cost import PipelinePrediction

COLUMNS = 28  # of the drawing of a schedule


def in_words(found: PipelinePrediction):
    """The schedule, the number of micro-batches and the cuts, as on the command line."""
    parts = f", {found.micro_batches} micro-batches" if found.micro_batches > 1 else ""
    return f"pipeline {found.pipeline}{parts}, cuts {','.join(map(str, found.cuts))}"


def of_chunks(found, net):
    """Rows of a table of the chunks, the first one being its head. net: the serial network."""
    yield "chunk", "layers", "stage", "GFLOP", "MB taken", "ms F", "ms I", "ms W"
    for number, (chunk, layers, stage) in enumerate(chunks_of(found, net)):
        seconds = (f"{chunk.seconds[op] * 1e3:.4g}" for op in "FIW")
        taken = f"{chunk.taken / 1e6:.4g}" if number else ""
        yield str(number), layers, str(stage), f"{chunk.flops / 1e9:.4g}", taken, *seconds


def chunks_of(found, net):
    """Yield (ChunkCost, the names of its first and last layer, its stage) of each chunk."""
    bounds = pairwise((0, *found.cuts, len(net.layers)))
    for number, ((stage,), (first, end)) in enumerate(zip(found.schedule.route.places, bounds, strict=True)):
        chunk, layers = found.chunks[stage, number], list(leaves(net.layers[first:end]))
        ends = dict.fromkeys(f"{layer.name} {type(layer).__name__}" for layer in (layers[:1] + layers[-1:]))
        yield chunk, " .. ".join(ends) or "none", stage


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


def of_stages(found):
    """Rows of a table of the ranks along the axis `stage`, the first one being its head."""
    yield "stage", "chunks", "ms busy", "ms idle", "idle", "GiB", "open micro-batches"
    for stage, rank in enumerate(found.ranks):
        chunks = ",".join(map(str, found.schedule.route.held(stage)))
        times = (f"{seconds * 1e3:.4g}" for seconds in (rank.busy, rank.waiting))
        share = f"{rank.waiting / found.seconds:.0%}"
        yield str(stage), chunks, *times, share, f"{rank.memory / 2**30:.3g}", str(rank.open)


def drawing(found):
    """The schedule as text, from its beginning."""
    first = tuple(events[: len(row)] for row, events in zip(found.schedule.rows, found.played.events))
    played = replace(found.played, events=first)
    passes = [event.stop - event.start for row in played.events for event in row if event.instruction.op in "FBIW"]
    return draw(played, max(min(passes), median(passes) / 3) or None, COLUMNS)
