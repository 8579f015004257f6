"""The predicted time of a training step of a hypergraph partition in a pipeline.

The network is cut into chunks where ranks exchange channels, and every rank has its part of each chunk. The order of the
schedule is that of training: it is chosen by work alone (`times_of_work`). Then it is played through in virtual time:

| what                  | how long it takes                                                                        |
|-----------------------|------------------------------------------------------------------------------------------|
| F, I, W, and B = I + W | the passes of the rank's part of a chunk for a micro-batch                              |
| U                     | the sums of gradients along other axes, and the update of all that the rank holds        |
| SEND, RECV            | the copies into messages and out of them                                                 |
| a message             | an exchange between two ranks of the machine file                                        |

Along the axes other than `model` the ranks are those with the most work. Messages travel as in `critical_path`, but no sender
waits for one: the executor sends without blocking.
"""

from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import BATCH, MODEL
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.pipeline.simulate import TableTimes
from gridgrad.parallel.plans.hypergraph import between_exchanges
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.prediction.chunk_cost import OPS, cost_of
from gridgrad.parallel.prediction.cost import local_shape
from gridgrad.parallel.prediction.critical_path import grids_of_ranks
from gridgrad.parallel.prediction.pipeline_cost import PipelineWork
from gridgrad.parallel.prediction.workload import Workload


def partition_step_time(net, asked, batch_size, machine):
    """The PipelinePrediction of a network whose parts have owners.

    net: a serial Sequential; if it takes images, it must have an `input_shape`. asked: a PlacementRequest with grid, plan,
    owners, and pipelines: a schedule that is for partitions, gpipe, 1f1b or async:K, and micro-batches as for
    `pipeline_step_time`. batch_size: of the global minibatch. machine: a Machine. ValueError if they do not fit each other, or
    if the branches of a network exchange channels.
    """
    named, ranks = schedule_names.parse(asked.pipelines.pipeline), asked.grid.get(MODEL, 1)
    micro_batches = named.micro_batches(ranks, asked.pipelines.micro_batches)
    if micro_batches > (1 if named.in_flight else batch_size):
        raise ValueError(f"pipeline {named.name} has no {micro_batches} micro-batches of a minibatch of {batch_size}")
    samples = -(-batch_size // micro_batches)
    work, route, works = partition_work(net, asked, samples, machine, grids_of_ranks(net, asked, machine))
    order = times_of_work(works)
    others = (named.in_flight or 1) - 1  # gradients of several minibatches at a time
    return work.step(named, lambda count: named.schedule_on(route, count, order), micro_batches, gradients=others)


def partition_work(net, asked, samples, machine, grids):
    """(the PipelineWork of a network whose parts have owners, the Route of its chunks, for each rank the works of its chunks).

    samples: of a global micro-batch. grids: the GridDescription of each rank along the axis `model`. The others: see
    `partition_step_time`.
    """
    parts, senders, copies, sent, works = {}, {}, {}, {}, []
    for rank, grid in enumerate(grids):
        work, costs, exchanged = _of_rank(net, grid, asked, samples, machine)
        works.append(work)
        parts |= {(rank, number): cost for number, cost in enumerate(costs)}
        for number, (messages, seconds) in enumerate(exchanged, 1):
            chunks = {"SEND_F": number - 1, "RECV_F": number, "SEND_B": number, "RECV_B": number - 1}
            copies |= {(rank, op, chunks[op]): taken for op, taken in seconds.items()}
            for op, other, nbytes in messages:
                sent[rank, other, op, chunks[op]] = nbytes
                if op == "SEND_F":
                    senders.setdefault(number, {}).setdefault(other, []).append(rank)
    route = Route.everywhere(len(grids), [senders.get(number, {}) for number in range(len(works[0]))])
    return PipelineWork(parts, sent, asked.grid, MODEL, machine, net.dtype.itemsize, copies), route, works


def _of_rank(net, grid, asked, samples, machine):
    """(the works of a rank's chunks, their ChunkCosts, for each exchange what `_exchanged` says of it)."""
    placed, itemsize = place(net, grid, asked.plan, None, asked.owners), net.dtype.itemsize
    chunks, exchanges = between_exchanges(placed.layers)
    shape, first, costs, exchanged = local_shape(placed.input, samples, grid), True, [], []
    for number, chunk in enumerate(chunks):
        if number:
            shape, *found = _exchanged(exchanges[number - 1], shape, samples, itemsize, machine, grid)
            exchanged.append(found)
        workload = Workload(shape, samples, itemsize)
        workload.first = first
        costs.append(cost_of(workload, chunk, grid, machine, number == len(chunks) - 1))
        shape, first = workload.shape, workload.first
    return chunk_works(placed, chunks, grid), costs, exchanged


def _exchanged(exchange, shape, samples, itemsize, machine, grid):
    """(shape of a rank's array behind an exchange, its messages, {SEND_F, RECV_F, SEND_B or RECV_B: seconds of its copies}).

    Messages are (SEND_F or SEND_B, receiver, bytes). shape: of its array before the exchange, samples first.
    """
    workload = Workload(shape, samples, itemsize)
    workload.first = False  # gradients always travel back
    workload.go([exchange])
    messages, seconds, gone = [], dict.fromkeys(("SEND_F", "RECV_F", "SEND_B", "RECV_B"), 0.0), set()
    for work in workload.works:
        way = OPS[work.phase].replace("I", "B")
        if work.group:
            gone.add(way)
            messages += [(f"SEND_{way}", other, nbytes) for other, nbytes in work.messages(itemsize).items()]
        else:  # copies into messages come before the exchange, those out of them behind it
            seconds[f"{'RECV' if way in gone else 'SEND'}_{way}"] += work.seconds(machine, grid.size, itemsize)
    return workload.shape, messages, seconds


def chunk_works(placed, chunks, grid):
    """The floating-point operations of the forward pass of each chunk on this rank, for a minibatch of one sample a rank."""
    samples = grid.sizes[BATCH]
    workload = Workload(local_shape(placed.input, samples, grid), samples)
    workload.go(placed.layers)
    found = []
    for chunk in chunks:
        inside = {layer.name for layer in leaves(chunk)}
        found.append(sum(work.flops for work in workload.works if work.phase == "forward" and work.layer in inside))
    return found


def times_of_work(works):
    """The TableTimes by which the ranks of a partition choose an order. works: for each rank, those of its chunks."""
    passes = {"F": 1.0, "B": 2.0}
    parts = [(rank, chunk, work) for rank, of in enumerate(works) for chunk, work in enumerate(of)]
    return TableTimes({(rank, op, chunk): passes[op] * work for rank, chunk, work in parts for op in passes})
