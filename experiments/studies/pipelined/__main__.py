"""Time pipelines beside the serial network and other grids, and compare each with the simulation of its schedule.

    mpiexec -n 2 gridgrad study pipelined --batch-size 64

Every way trains the same network on the same minibatch: serially on one rank, on the grid batch=RANKS, as layers on the stages
of a pipeline in the order of several schedules, and as a hypergraph partition. The ways are timed in turns, so that a drift of
the machine's speed affects all of them alike. A turn is several steps without a barrier between them. Chunks are made about
equal by the seconds of each layer, which are measured at the start. How long each instruction takes is measured in turns of its
own, one beside each that is timed; the simulation plays the schedule with the means, and is compared with the mean of those
turns. A message takes the time that one of its size takes between two ranks that do nothing else. With --machine, the cost
model, which knows none of these steps, predicts each way as well, and the planner's choice is timed beside them. Writes the
results to a JSON file, and a table beside it.
"""

import os
import time
from dataclasses import dataclass, field, replace
from statistics import fmean, median

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.kept_results import earlier_results, write_results
from gridgrad.experiments.common.made_up_data import minibatch
from gridgrad.experiments.common.options import Parser, position_list, user_input, whole, whole_list
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import lines, table
from gridgrad.experiments.studies.pipelined.instruction_times import InstructionTimes
from gridgrad.experiments.studies.pipelined.measured_layers import layer_seconds
from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose.parallelize import of_first
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.job.run import on_root, run
from gridgrad.parallel.job.waiting import meet
from gridgrad.parallel.partitioning.good_partition import is_partition, partition
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import repeat
from gridgrad.parallel.pipeline.simulate import Memory, TableTimes, simulate
from gridgrad.parallel.placement.partition import Partition, size
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import step_time
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, partition_step_time, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import Planner
from gridgrad.parallel.training.distribute import cuts_of

NET = "vgg-style:32,64,128,256"
KEYS = "net", "shape", "batch_size", "micro_batches", "ranks", "link"  # what names a problem in the results
SECONDS = 0.7  # the least length of a turn
OF_RANKS = " a rank", " simulated"  # how the headings of columns end that the terminal has no room for
TRIPS = 7  # round trips by which a message is timed


@dataclass
class PipelineWay:
    """One way to train. sizes: of the grid's axes; empty for the serial network. The others are as `parallelize` takes them."""

    name: str
    sizes: dict
    plan: str | None = None
    pipeline: str | None = None
    micro_batches: int | None = None
    cuts: tuple | None = None
    rounds: list = field(default_factory=list)


def ways(ranks, micro_batches, schedules, hypergraph):
    """The PipelineWays to compare. schedules: names of those of the stages."""
    stages, model = {"stage": ranks}, {"model": ranks}
    found = [PipelineWay("serial", {}), PipelineWay(f"batch={ranks}", {"batch": ranks}), PipelineWay(f"model={ranks}", model)]
    for name in schedules:
        whole_minibatch = name.startswith("async") or name == "sequential"
        found.append(PipelineWay(f"stage={ranks}, {name}", stages, None, name, 1 if whole_minibatch else micro_batches))
    if hypergraph:
        found.append(PipelineWay(f"model={ranks}, hypergraph", model, "hypergraph"))
        found.append(PipelineWay(f"model={ranks}, hypergraph, async:{2 * ranks}", model, "hypergraph", f"async:{2 * ranks}"))
    return found


def planned(net, comm, batch_size, described):
    """The PipelineWay that the planner chooses among all grids. Collective."""

    def decide():
        chosen, _ = Planner(net, comm.size, batch_size, described, PlacementSpec(pipelines=Pipelines())).best()
        return chosen.grid, chosen.sizes, chosen.plan, chosen.pipelining

    grid, sizes, plan, pipelining = of_first(comm, decide)
    return PipelineWay(f"the planner's choice: {grid}", sizes, plan, pipelining.get("pipeline"),
               pipelining.get("micro_batches"), pipelining.get("cuts"))  # fmt: skip


class TimedWay:
    """A PipelineWay on the ranks here. problem: the serial network, as a function. x, y: the global minibatch. seconds: of each
    of its layers, by which chunks are made about equal. cuts: given ones, for the schedules that have as many chunks."""

    def __init__(self, way, problem, comm, x, y, seconds, cuts):
        self.way, self.problem, self.comm, self.batch_size = way, problem, comm, len(x)
        self.active = bool(way.sizes) or comm.rank == 0
        self.grid = ProcessGrid(comm if way.sizes else MPI.COMM_SELF, **way.sizes)
        options = {"pipeline": way.pipeline} if way.pipeline else {}
        if way.sizes.get("stage", 1) > 1:
            chunks = schedule_names.parse(way.pipeline).route(way.sizes["stage"]).chunks
            options["cuts"] = way.cuts or (cuts if cuts and len(cuts) == chunks - 1 else cuts_of(seconds, chunks))
        self.owners = None
        if way.plan and is_partition(way.plan):
            options["owners"] = self.owners = of_first(comm, lambda: partition(problem(), comm.size))
        self.net = parallelize(problem(), self.grid, way.plan, "plain", micro_batches=way.micro_batches, **options)
        optimizer = SGD(self.net, lr=1e-4, momentum=0.9)
        self.trainer = self.net.trainer(SoftmaxCrossEntropy(), optimizer)
        rows = Partition.even(self.batch_size, self.net.micro_batches).parts
        self.parts = [self.net.blocks(x[part], y[part]) for part in rows if size(part)]
        self.steps = 2
        self.turn()
        self.turn()
        self.steps = max(4, round(SECONDS / comm.bcast(way.rounds[-1])))
        self.times, self.watched = InstructionTimes(self.net), []
        way.rounds.clear()
        if way.pipeline:
            self.net.executor.clear()

    def watch(self):
        """A turn in which the instructions of a pipeline are timed."""
        if self.way.pipeline:
            with self.net.observed_by(self.times):
                self.turn()
            self.watched.append(self.way.rounds.pop())

    def turn(self):
        """Time some steps without a barrier between them, and append the seconds of a step to the rounds."""
        self.comm.Barrier()
        start = time.perf_counter()
        if self.active:
            for _ in range(self.steps):
                self.trainer.step(self.parts, self.batch_size)
            self.trainer.flush()
        seconds = time.perf_counter() - start
        meet(self.comm)
        self.way.rounds.append(self.comm.allreduce(seconds, MPI.MAX) / self.steps)

    def predict(self):
        """A dict of what the simulation says of a turn, and of what was measured; None without a pipeline. Collective."""
        if not self.way.pipeline:
            return None
        net, comm = self.net, self.comm
        table, waited = self.times.table(comm), comm.allgather(self.times.waited / (self.steps * len(self.watched)))
        flights = self.flights()
        if net.named.in_flight:
            schedule = net.stage_map.schedule(self.steps)
        else:
            schedule = repeat(net.stage_map.schedule(net.micro_batches), self.steps)
        executor, place = net.executor, net.place
        contexts = {(place, chunk): nbytes for chunk, nbytes in executor.context_bytes.items()}
        weights = {(place, chunk): one.size * net.dtype.itemsize for chunk, one in net.chunks.items()}
        kept = comm.allgather((contexts, weights, executor.peak_bytes(net.params.nbytes)))
        contexts, weights = ({key: value for of in kept for key, value in of[i].items()} for i in (0, 1))
        memory = Memory(contexts, {}, weights, stash=executor.versions is not None)
        played = simulate(schedule, TableTimes(table, flights), memory)
        return {
            "predicted": played.makespan / self.steps,
            "watched": fmean(self.watched),
            "idle_predicted": [idle / self.steps for idle in played.idle],
            "idle_measured": waited,
            "peak_predicted": list(played.peak_memory),
            "peak_measured": [peak for *_, peak in kept],
            "open": list(played.peak_open),
        }

    def modelled(self, described):
        """Seconds of a step by the cost model, for a Machine."""
        net, way = self.net, self.way
        plan, count = ",".join(net.plan), net.micro_batches
        if not way.sizes:
            return step_time(self.problem(), PlacementSpec({}, plan), self.batch_size, described).seconds
        asked = PlacementSpec(self.grid.sizes, plan, owners=self.owners, pipelines=Pipelines(way.pipeline))
        if way.sizes.get("stage", 1) > 1:
            asked = replace(asked, pipelines=Pipelines(way.pipeline, count, net.stage_map.cuts))
            return pipeline_step_time(self.problem(), asked, self.batch_size, described).seconds
        predicted = partition_step_time if way.pipeline else step_time
        return predicted(self.problem(), asked, self.batch_size, described).seconds

    def flights(self):
        """{(sender, receiver, op, chunk): (latency, occupied)} of all messages, as timed between two ranks. Collective."""
        net, found = self.net, {}
        for chunk, boundary in net.stage_map.boundaries.items():
            for way, op, of in (("forward", "SEND_F", chunk - 1), ("backward", "SEND_B", chunk)):
                for sender, receiver, nbytes in sum(self.comm.allgather(self._messages(boundary, way)), []):
                    found[sender, receiver, op, of] = message_seconds(self.comm, sender, receiver, nbytes)
        return found

    def _messages(self, boundary, way):
        """(sender, receiver, bytes) of what this rank sends for one micro-batch."""
        samples = max(part[2] for part in self.parts)
        return [(self.net.place, to, count * self.net.dtype.itemsize) for to, count in boundary.counts(way, samples).items()]


def message_seconds(comm, sender, receiver, nbytes):
    """(latency, seconds that it occupies the link besides) of a message, from round trips between two ranks. Collective."""
    found = []
    for length in (0, nbytes):
        array, seconds = np.empty(length, np.uint8), []
        comm.Barrier()
        for _ in range(TRIPS):
            start = time.perf_counter()
            if comm.rank == sender:
                comm.Send(array, receiver)
                comm.Recv(array, receiver)
            elif comm.rank == receiver:
                comm.Recv(array, sender)
                comm.Send(array, sender)
            seconds.append((time.perf_counter() - start) / 2)
        found.append(comm.bcast(median(seconds), sender))
    return found[0], max(0.0, found[1] - found[0])


def row(side, predicted, described):
    """A row of the results, a dict. described: a Machine or None."""
    rounds = side.way.rounds
    found = {"way": side.way.name, "grid": str(side.grid) if side.way.sizes else "", "micro_batches": side.net.micro_batches,
             "measured": median(rounds), "fastest": min(rounds), "slowest": max(rounds), "steps": side.steps}  # fmt: skip
    if described:
        found["modelled"] = side.modelled(described)
    return found | ({"error": predicted["predicted"] / predicted["watched"] - 1, **predicted} if predicted else {})


def measure(sides, rounds, described):
    """The rows of all ways. Collective."""
    for _ in progress(range(rounds), "rounds", sides[0].comm.rank == 0):
        for side in sides:
            side.turn()
            side.watch()
    predictions = [side.predict() for side in sides]
    return [row(side, predicted, described) for side, predicted in zip(sides, predictions)]


def milliseconds(seconds):
    """Some seconds as a text, in milliseconds."""
    return ", ".join(f"{1e3 * value:.3g}" for value in seconds)


def cells(rows):
    """The rows as dicts of texts, as they are printed and written."""
    serial = rows[0]["measured"]
    for one in rows:
        predicted = "predicted" in one
        same = predicted and one["peak_predicted"] == one["peak_measured"]
        yield {
            "way": one["way"], "micro-batches": str(one["micro_batches"]),
            "measured ms": f"{1e3 * one['measured']:.4g}",
            "from - to": f"{1e3 * one['fastest']:.4g} - {1e3 * one['slowest']:.4g}",
            "times serial": f"{serial / one['measured']:.2f}",
            **({"cost model ms": f"{1e3 * one['modelled']:.4g}"} if "modelled" in one else {}),
            "simulated ms": f"{1e3 * one['predicted']:.4g}" if predicted else "",
            "of": f"{1e3 * one['watched']:.4g}" if predicted else "",
            "error": f"{100 * one['error']:+.1f} %" if predicted else "",
            "waiting ms a rank": milliseconds(one["idle_measured"]) if predicted else "",
            "simulated ms a rank": milliseconds(one["idle_predicted"]) if predicted else "",
            "peak MB a rank": ", ".join(f"{peak / 1e6:.4g}" for peak in one["peak_measured"]) if predicted else "",
            "peak as simulated": ("exactly" if same else "no") if predicted else "",
        }  # fmt: skip


def document(results):
    """All results as Markdown."""
    yield "# Training steps of pipelines\n"
    yield "A step of each way: the median of several turns, and their range. The simulation plays the schedule with the mean"
    yield "times of its instructions, and is compared with the mean of the turns in which these were measured (`of`). Waiting"
    yield "includes what a rank waits at the end of a turn for the others. Where a rank has several asynchronous chunks, it"
    yield "keeps versions of all its weights, the simulation those of each chunk. Written by `gridgrad study pipelined`."
    for one in results:
        shape = "x".join(map(str, one["shape"]))
        where = f"{one['ranks']} ranks on {one['versions']['processor']}" + (f" ({one['link']})" if one["link"] else "")
        yield f"\n{one['net']}, samples of {shape}, global batch {one['batch_size']}, {where}:\n"
        yield lines(list(cells(one["rows"])))


def options():
    parser = Parser(prog="study pipelined", description="Do pipelines take as long as the simulation of their schedules says?")
    add = parser.add_argument
    add("--net", default=NET, help=network_names.HELP)
    add("--shape", type=whole_list, default=[32, 32, 3], metavar="SHAPE", help="shape of a sample")
    add("--outputs", type=whole(1), default=10, help="number of classes")
    add("--batch-size", type=whole(1), default=64, metavar="B", help="samples in the global minibatch")
    add("--micro-batches", type=whole(1), default=8, metavar="M", help="micro-batches of the synchronous schedules")
    add(
        "--schedules",
        default="",
        metavar="NAME,NAME,..",
        help="schedules of the stages (default: sequential,gpipe,1f1b,zb-h1,interleaved:2,zbv,async:P,async:2P on P ranks)",
    )
    add("--machine", metavar="FILE.json", help="machine file that calibrate wrote on as many ranks, by which the "
        "cost model predicts and the planner chooses")  # fmt: skip
    add("--cuts", type=position_list, metavar="N,N,..", help="where the chunks of schedules with one chunk a rank begin")
    add("--no-hypergraph", action="store_true", help="leave out the hypergraph partition")
    add("--rounds", type=whole(1), default=7, help="rounds, in each of which every way is timed once")
    add("--out", default="results/pipelined.json", metavar="FILE.json", help="file of the results, to which these are added")
    return parser


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    before = on_root(comm, lambda: earlier_results(args.out, (*KEYS, "rows"), "pipelined", document))
    default = f"sequential,gpipe,1f1b,zb-h1,interleaved:2,zbv,async:{comm.size},async:{2 * comm.size}"
    with user_input():
        shape, cuts = tuple(args.shape), args.cuts and tuple(args.cuts)
        problem = lambda: network_names.build(args.net, shape, args.outputs)  # noqa: E731
        x, y = minibatch(problem().input_shape, args.outputs, args.batch_size)
        chosen = ways(comm.size, args.micro_batches, (args.schedules or default).split(","), not args.no_hypergraph)
        described = machine.read(args.machine) if args.machine else None
        if described:
            chosen.append(planned(problem(), comm, args.batch_size, described))
        seconds = of_first(comm, lambda: layer_seconds(problem(), x, y, MPI.COMM_SELF))
        shown = progress(chosen, "setting up", comm.rank == 0)
        sides = [TimedWay(way, problem, comm, x, y, seconds, cuts) for way in shown]
    rows = measure(sides, args.rounds, described)
    result = {"net": args.net, "shape": list(shape), "batch_size": args.batch_size, "micro_batches": args.micro_batches,
              "ranks": comm.size, "link": os.environ.get(LINK, ""), "rows": rows, "versions": report.versions()}  # fmt: skip
    if comm.rank == 0:
        print(table([{head: text for head, text in one.items() if not head.endswith(OF_RANKS)} for one in cells(rows)]))
        print(f"results added to {args.out}, and the table with waiting and memory of each rank beside it")
    on_root(comm, lambda: write_results(args.out, before, result, KEYS, document))


if __name__ == "__main__":
    run(main)
