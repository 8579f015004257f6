"""Where to cut a network into the chunks of a pipeline, by predicted times and memory.

`parallel/training/stage_map.py` has a rule that needs no machine.
"""

from itertools import accumulate
from math import inf

from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.pipeline.schedule import shortest
from gridgrad.parallel.pipeline.simulate import simulate
from gridgrad.parallel.prediction.chunk_cost import message_seconds
from gridgrad.parallel.prediction.step_prediction import gradients_kept, memory_of


def planned_cuts(layers, asked, machine, named, micro_batches, itemsize):
    """The positions in `net.layers` at which to begin the second and every later chunk: a tuple.

    The chunk that takes the longest for a micro-batch, with the messages that it waits for, is as short as possible where the
    chunks fit the memory; if they do not fit anywhere, memory does not count.

    layers: the ChunkCost of each layer of the network, see `layer_costs`. asked: a PlacementRequest with the grid; each chunk
    of a rank may take the same part of its memory. named: the schedule, a result of `parse` of
    `parallel/pipeline/schedule_names.py`. micro_batches: into how many parts a minibatch is cut. itemsize: bytes of a number.
    """
    sizes, memory = asked.grid, asked.memory or inf
    ranks = sizes[STAGE]
    route = named.route(ranks)
    open_at_most = {}
    for row in simulate(named.complete(named.schedule(ranks, micro_batches))).kept:
        open_at_most |= row.of_chunk
    places = [place for (place,) in route.places]
    seconds = [0.0, *accumulate(layer.computed for layer in layers)]
    parameters = [0, *accumulate(layer.parameters for layer in layers)]
    elements = [0, *accumulate(layer.elements for layer in layers)]
    taken = [*(layer.taken for layer in layers), layers[-1].made]  # a chunk without layers takes what others have made

    def needed(chunk, start, end):
        versions = open_at_most[chunk] if named.in_flight and named.stash else 1
        kept, gradients = elements[end] - elements[start], gradients_kept(micro_batches)
        held, shared = parameters[end] - parameters[start], map(max, zip((0, 0), *(one.shared for one in layers[start:end])))
        return sum(memory_of(itemsize, held, open_at_most[chunk] * kept, *shared, gradients, versions).values())

    def longest(chunk, start, end):
        found = seconds[end] - seconds[start]
        if chunk and places[chunk] != places[chunk - 1]:
            found += 2 * sum(message_seconds(sizes, machine, places[chunk - 1], places[chunk], taken[start]))
        return found

    def fitting(chunk, start, end):
        fits = needed(chunk, start, end) <= memory / len(route.held(places[chunk]))
        return longest(chunk, start, end) if fits else inf

    return shortest(len(layers), route.chunks, fitting) or shortest(len(layers), route.chunks, longest)
