"""What `explain` prints of a plan: what its axes do, its step layer by layer, a pipeline, and why others lost."""

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise
from math import prod, sqrt
from statistics import median

from gridgrad.experiments.common.tables import cell, table
from gridgrad.nn import Conv2d, Linear
from gridgrad.nn.sequence import leaves, shapes
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.process_grid import MODEL
from gridgrad.parallel.pipeline.simulate import draw
from gridgrad.parallel.placement.plan import weighted_in
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.plans.plans import PLANS

OTHERS = {"batch": "all layers split the samples; the ranks sum their gradients",
          "height": "convolutions split the rows of each image, other layers the samples",
          "stage": "the ranks of a stage hold some of the layers, one stage after another"}  # fmt: skip
PARTS = {"compute": "computing", "update": "the update", "gradients": "sums of gradients", "activations": "moving activations",
         "waiting": "waiting for other ranks"}  # fmt: skip
COLUMNS = 28  # of the drawing of a schedule
STEPS = 100  # of the bisection of `least_sum`


def axes_in_words(sizes, cost):
    """A line for each axis with several ranks of a grid, {axis: size}. cost: the Cost of its plan."""
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
    return f"{cell(1e3 * seconds)} ms"


def plan_in_words(candidate):
    """The plan and the pipeline of a Candidate, in which words that repeat are counted."""
    runs = ((word, len(list(same))) for word, same in groupby(candidate.plan.split(",")))
    words = ", ".join(f"{count} {word}" if count > 1 else word for word, count in runs)
    return f"{words}; {pipeline_in_words(candidate.pipelined)}" if candidate.pipelined else words


def pipeline_in_words(found):
    """The schedule, the number of micro-batches and the cuts of a PipelinePrediction, as on the command line."""
    parts = f", {found.micro_batches} micro-batches" if found.micro_batches > 1 else ""
    return f"pipeline {found.pipeline}{parts}, cuts {','.join(map(str, found.cuts))}"


# ----- a step layer by layer


def layer_rows(cost):
    """A dict for each layer with weights and what follows up to the next one, then one for what belongs to no layer.
    bytes: those sent, with the sums of gradients, whose seconds are in the row "gradients". bound_bytes: the least, or 0.0."""
    net, several = cost.net, cost.grid.sizes[MODEL] > 1
    layers, shape = checked(net)
    words = dict(zip((layer.name for layer in layers), cost.placed.plan))
    take_inputs = {layer.name for layer in leaves([next(layer for layer in net.layers if weighted_in([layer]))])}
    rows, row_of = [], {}
    empty = {"placement": "", "flops": 0.0, "bytes": 0.0, "bound_bytes": 0.0, "seconds": 0.0}
    for layer, before, after in shapes(net.layers, shape):
        if not rows or layer.name in words and rows[-1]["layer"] in words:
            rows.append({"layer": layer.name, "kinds": []} | empty)
        row = row_of[layer.name] = rows[-1]
        row["kinds"].append(type(layer).__name__)
        if layer.name in words:
            row |= {"layer": layer.name, "placement": words[layer.name] if several else ""}
            if cost.is_even and cost.grid.size > 1 and PLANS[words[layer.name]].shares_work:  # the bound is of shared work
                is_first = layer.name in take_inputs
                row["bound_bytes"] = least_bytes(layer, before, after, cost.batch_size, cost.grid.size, cost.itemsize, is_first)
    row_of["output"] = rows[-1]  # what brings the outputs to the loss
    for work in cost.works:
        if work.layer not in row_of:
            rows.append({"layer": work.layer, "kinds": []} | empty)
            row_of[work.layer] = rows[-1]
        row = row_of[work.layer]
        row["flops"] += work.flops
        row["bytes"] += work.nbytes if work.group is not None and work.layer != "gradients" else 0.0
        row["seconds"] += cost.seconds_of(work)
    for layer in leaves(cost.placed.layers):
        for parameter in layer.parameters:
            group = cost.grid.group(*parameter.layout.summed)
            if group.size > 1:
                row_of[layer.name]["bytes"] += all_reduce_elements(parameter.size, group.size, group.rank) * cost.itemsize
    return rows


def of_layers(chosen, rows):
    """The lines about the step of a Candidate, layer by layer. rows: those of `layer_rows`."""
    known = chosen.cost.is_even
    shown = [{"layer": row["layer"], "": ", ".join(dict.fromkeys(row["kinds"])), "placement": row["placement"],
              "GFLOP": row["flops"] / 1e9, "MB sent": row["bytes"] / 1e6,
              "MB at least": row["bound_bytes"] / 1e6 if known else None, "ms": row["seconds"] * 1e3}
             for row in rows]  # fmt: skip
    sums = {name: sum(row[name] for row in shown) for name in ("GFLOP", "MB sent", *["MB at least"] * known)}
    total = {"layer": "a step", "": "", "placement": ""} | sums | {"ms": chosen.seconds * 1e3}
    yield table([*shown, dict.fromkeys(shown[0]) | total])
    yield "A layer stands for those that follow it, and its MB sent for the sums of its gradients, whose time stands in row"
    yield "gradients, in full. MB at least: of any placement with even shares. All is that of the rank with the most work."
    if chosen.played:
        yield ""
        yield table([{"rank along model": place, "ms computing": rank.busy * 1e3, "ms waiting": rank.waiting * 1e3,
                      "ms communicating": rank.communicating * 1e3, "MB sent": rank.bytes / 1e6, "messages": rank.messages}
                     for place, rank in enumerate(chosen.step.ranks)])  # fmt: skip


# ----- the least that ranks have to send for a layer
#
# The gradient of the weights is the product of inputs and gradients of the outputs: m k n multiplications, each of which takes
# one of m k inputs and one of m n gradients, and adds to one of k n sums. A rank that does a P-th of them needs a inputs and b
# gradients, and adds to c sums, where a b c >= (m k n / P)^2 (Loomis and Whitney 1949; for ranks: Irony, Toledo and Tiskin
# 2004). It may hold a P-th of each array. What it needs beyond that it receives, and what it adds beyond that it sends: the
# least a + b + c, less these parts, is the bound (in closed form: Al Daas et al. 2022, Theorem 3). It is for ranks with equally
# large parts of the work and of the arrays. A convolution multiplies each element of its images with all places of the kernel:
# it needs as many elements as a kernel has places fewer. Every rank reads the inputs of the first layers from a file.


def least_bytes(layer, before, after, samples, ranks, itemsize, is_first):
    """The bytes that a rank sends at least in a training step for a layer; 0.0 for layers of which no bound is known. before,
    after: shapes of an input and an output sample. is_first: whether its inputs are those of the network."""
    if type(layer) not in (Conv2d, Linear):
        return 0.0
    places = prod(layer.window.kernel) if type(layer) is Conv2d else 1
    m, k, n = samples * prod(after[:-1]), places * layer.inputs, after[-1]
    whole, price = (m * k, m * n, k * n), (0.0 if is_first else 1 / places, 1.0, 1.0)
    held = (0.0 if is_first else samples * prod(before)) + m * n + k * n
    return itemsize * max(0.0, least_sum(price, whole, ranks) - held / ranks)


def least_sum(price, whole, ranks):
    """The least sum of price[i] s[i] with s[0] s[1] s[2] >= (m k n / ranks)^2 and whole[i] / ranks <= s[i] <= whole[i].
    (m k n)^2 is the product of `whole`. At the least sum, price[i] s[i] is the same for all that are within their limits."""
    wanted = sqrt(prod(whole)) / ranks

    def parts(level):
        return [min(max(level / one, most / ranks), most) if one else most for one, most in zip(price, whole)]

    low, high = 0.0, max(one * most for one, most in zip(price, whole))
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if sqrt(prod(parts(middle))) >= wanted else (middle, high)
    return sum(one * part for one, part in zip(price, parts(high)))


# ----- a pipeline


def of_pipeline(found, net):
    """The lines about the step of a PipelinePrediction. net: the serial network."""
    yield table([{"chunk": number, "layers": layers, "stage": stage, "GFLOP": chunk.flops / 1e9,
                  "MB taken": chunk.taken / 1e6 if number else None, **{f"ms {op}": chunk.seconds[op] * 1e3 for op in "FIW"}}
                 for number, (chunk, layers, stage) in enumerate(chunks_of(found, net))])  # fmt: skip
    yield "These are of one micro-batch, on the rank with the most work of each stage.\n"
    yield table([{"stage": stage, "chunks": ",".join(map(str, found.schedule.route.held(stage))), "ms busy": rank.busy * 1e3,
                  "ms idle": rank.waiting * 1e3, "idle": f"{rank.waiting / found.seconds:.0%}",
                  "GiB": f"{rank.memory / 2**30:.3g}", "open micro-batches": rank.open}
                 for stage, rank in enumerate(found.ranks)])  # fmt: skip
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
        yield found.work.chunks[stage, number], " .. ".join(ends) or "none", stage


def chunk_rows(found, net):
    """A dict for each chunk, with the work and the bytes of a whole step, as `layer_rows` has them of layers. bytes: those of
    the rank's collectives, and those that cross the boundary in front of the chunk, forward and backward."""
    parts = found.micro_batches
    return [{"layer": layers, "stage": stage, "flops": parts * chunk.flops, "bound_bytes": 0.0,
             "bytes": parts * (chunk.sent[0] + 2 * chunk.taken * (number > 0)) + chunk.sent[1],
             "seconds": parts * chunk.computed + chunk.seconds["U"]}
            for number, (chunk, layers, stage) in enumerate(chunks_of(found, net))]  # fmt: skip
