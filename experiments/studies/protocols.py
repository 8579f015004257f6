"""Train one network with every update protocol, with and without a straggler, and compare time, samples, bytes and accuracy.

    gridgrad study protocols --dataset mnist --net mnist-cnn --samples 12000
    gridgrad plot lines results/protocols.json --x seconds --y score --series protocol --panel straggler

All protocols begin with the same weights and get equally many samples, with the same learning rate and momentum. Their workers
train in virtual time (`parallel/protocols/simulated_workers.py`): what a protocol makes of the network is computed, and how
long it takes follows from measured seconds of a minibatch and of an update, and from links of a chosen rate and delay. So one
core is enough for any number of workers. `gridgrad sweep --vary "protocol=sync;server:asp"` times jobs.
"""

from collections import Counter
from functools import partial
from itertools import product

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.datasets.views import Subset
from gridgrad.experiments.common import report, train_setup
from gridgrad.experiments.common.options import Parser, add_data, number, number_list, user_input, whole
from gridgrad.experiments.common.tables import lines, terminal
from gridgrad.experiments.plots.style import measured_on
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.device import xp
from gridgrad.nn.learning_rates import SCHEDULES, parse_schedule
from gridgrad.nn.random import permutation
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import READERS, ProcessGrid, distribute, evaluate
from gridgrad.parallel.calibration.timing import times_in_turns
from gridgrad.parallel.job.run import run, run_launcher
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import Protocol, spread
from gridgrad.parallel.protocols.server import ParameterServer
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from gridgrad.parallel.sync.power_sgd import UNCOMPRESSED_STEPS, CompressedSum
from gridgrad.parallel.training import steps_per_epoch
from gridgrad.parallel.training.steps import Diverged

PROTOCOLS = (
    "sync", "powersgd:4", "local:8", "post-local:100:8", "slowmo:8:0.5", "diloco:50:lr=0.7:momentum=0.5", "easgd:4:0.2",
    "admm:8:rho=0.1", "parallel-sgd:epoch", "sgp", "server:bsp", "server:ssp:4", "server:asp", "downpour:4:4",
)  # fmt: skip
PROBLEM = (  # what names a problem in the results
    "time", "dataset", "net", "workers", "batch_size", "samples", "epochs", "lr", "momentum", "schedule", "sorted", "straggler",
)  # fmt: skip
POWER_SGD = "powersgd:"  # the reduction of this name stands among the protocols
ROUNDS = 15  # timings of a minibatch and of an update
LAST, ROSE = 10, 2  # a training has diverged if the mean loss of so many last steps is so many times the first one
SCORES, UNITS = {"cross-entropy": "accuracy", "mse": "mse"}, {"accuracy": " %", "mse": ""}
TEXT = """# Update protocols

Written by `gridgrad study protocols`. `sync` trains synchronously, with an all-reduce of the gradients in each step, and so
does `powersgd:R`, which compresses them. As Downpour's workers take plain steps, it has no momentum, and a learning rate of
lr / (1 - momentum), with which steps are as long on average. Bytes and messages are those of all workers; an all-reduce of W
workers is 2 (W - 1) messages of each. Staleness is the number of gradients of other workers that were applied between the
parameters of which a gradient was computed and itself, and the effective batch the samples whose gradients make one update of
the parameters that workers agree on.

In *virtual time* the network is trained in earnest, but how long that takes follows from the seconds of a worker's minibatch
and of an update, both measured on one core with one BLAS thread, and from the rate and the delay of the links between workers.
There the all-reduce of `sync` goes around a ring when backward is complete, and the small products of PowerSGD take no time.
The network that is tested on the way to a target has the mean of the workers' parameters or, with servers, those that they
serve, and is tested on some of the test samples; the test at the end is on all of them.
"""


# ----- synchronous SGD as a protocol of simulated workers


def maker(text):
    """The function (net, workers, make_optimizer) -> Protocol that a text names. ValueError if there is none."""
    if text == protocol_names.SYNC:
        return AllReduced
    if text.startswith(POWER_SGD):
        rank = text.removeprefix(POWER_SGD)
        if not rank.isdecimal() or not int(rank):
            raise ValueError(f"protocol {text}: write powersgd:R with a whole number of at least 1")
        return partial(LowRank, rank=int(rank))
    return protocol_names.parse(text)


class AllReduced(Protocol):
    """The gradients are summed over the workers by an all-reduce, when backward is complete; then all take the same step."""

    def step(self):
        gradient = self.net.grads
        gradient *= gradient.dtype.type(self.turn.weight)
        if self.workers.size > 1:
            self.sum()
        super().step()

    def without_samples(self):
        self.net.grads.fill(0)
        self.step()
        super().without_samples()

    def sum(self):
        """Replace the gradients by their sums. Collective."""
        gradient = self.counted.pack(self.net.grads)
        self.workers.all_reduce(gradient)
        self.counted.unpack(gradient, self.net.grads)


class LowRank(AllReduced):
    """The same with PowerSGD: see `parallel/sync/power_sgd.py`. rank: the columns of its matrices."""

    kept = ("error",)

    def __init__(self, net, workers, make_optimizer, rank):
        super().__init__(net, workers, make_optimizer)
        self.error, shapes = xp.zeros_like(net.grads), {f"{layer.name}.{p.name}": p.block_shape for layer, p in net.parameters}
        gradients = [(name, *(flat[where].reshape(shapes[name]) for flat in (net.grads, self.error)))
                     for name, _, where in self.counted.parameters()]  # fmt: skip
        self.compressed, self._sums = CompressedSum(workers, rank, net.seed - workers.rank, gradients), 0

    def sum(self):
        super().sum() if self._sums < UNCOMPRESSED_STEPS else self.compressed.reduce()
        self._sums += 1


# ----- trainings in virtual time


class ProtocolProblem:
    """What all protocols train. serial: the network. data: its Dataset. args: the options."""

    def __init__(self, args, serial, data):
        self.args, self.serial, self.data = args, serial, data
        part, everything = Subset(data.train, np.arange(args.samples)), np.arange(args.samples)
        part = train_setup.sorted_by_label(part) if args.sorted else part
        self.x = part.inputs(everything, tuple(slice(0, length) for length in part.sample_shape))
        self.y = part.targets(everything)
        seen = np.sort(permutation(args.seed, 0, len(data.test), "evaluated")[: args.evaluated])
        self.seen, self.score = Subset(data.test, seen), SCORES[data.loss]
        self.steps = args.epochs * steps_per_epoch(args.samples, args.batch_size)
        self.share = -(-args.batch_size // args.workers)

    def optimizer(self, text, updated):
        """A new SGD for a protocol, of a network or of what a server keeps; Downpour's is plain, see TEXT."""
        lr, momentum = self.args.lr, self.args.momentum
        if text.startswith("downpour"):
            lr, momentum = lr / (1 - momentum), 0.0
        return SGD(updated, parse_schedule(self.args.schedule, lr, self.steps), momentum)

    def measure(self):
        """{"compute": seconds of an even share of a minibatch with its update, "update": of an update alone}, medians."""
        with ProcessGrid(MPI.COMM_SELF) as alone:
            net = distribute(self.serial, alone)
            net.allocate()
            loss, optimizer, part = LOSSES[self.data.loss](), SGD(net, 1e-9, momentum=0.5), slice(0, self.share)
            trainer = net.trainer(loss, optimizer)
            micro_batches = [net.blocks(self.x[part], self.y[part])]
            actions = {"compute": lambda: trainer.step(micro_batches, self.share), "update": optimizer.step}
            return {name: float(np.median(seconds)) for name, seconds in times_in_turns(actions, ROUNDS).items()}


def take(net, protocols, nets):
    """Give a network the parameters that stand for all workers: those that servers serve, else the mean of the workers."""
    if isinstance(protocols[0], ParameterServer):
        first = protocols[0].counted
        packed = first.pack(net.params)
        for server, part in protocols[0].parts.items():
            spread(protocols[server].shard.params, part, packed)
        first.unpack(packed, net.params)
    else:
        net.params[...] = sum(worker.params for worker in nets) / len(nets)
    for buffer, *others in zip(*([b.value for _, b in one.buffers] for one in (net, *nets))):
        buffer[...] = sum(others) / len(others)


def trained(problem, text, seconds, straggler):
    """What is recorded of a training with the protocol of this name, a dict. straggler: the factor of the last worker. The last
    row of the history is after the protocol's `finish`."""
    args, data, history, protocols = problem.args, problem.data, [], [None] * problem.args.workers
    turns, trained_on, make = [], 0, maker(text)  # turns: (samples, loss) of those that have ended
    server_byte = seconds["update"] / (problem.serial.size * problem.serial.dtype.itemsize)
    simulation = Simulation(args.workers, latency=1e-6 * args.delay, byte_seconds=8e-6 / args.rate,
                            straggler={args.workers - 1: straggler}, serve_seconds=server_byte)  # fmt: skip
    apart = max(1, round(args.every * args.samples / args.batch_size)) * args.batch_size

    def noted(net, workers, make_optimizer):
        protocols[workers.rank] = protocol = make(net, workers, make_optimizer)
        return protocol

    def score(part):
        batch = train_setup.evaluation_batch(args, problem.serial)
        return evaluate(tested, part, data.loss, READERS["each"](tested, part), batch)[problem.score]

    def add_row(now):
        epoch = trained_on / args.samples
        history.append({"seconds": now, "samples": trained_on, "epoch": epoch, "score": score(problem.seen)})

    def note(workers, turn, loss, nets):
        nonlocal trained_on
        turns.append((turn.samples, loss))
        before, trained_on = trained_on, trained_on + turn.samples
        if trained_on // apart > before // apart:
            take(tested, protocols, nets)
            add_row(workers.now())

    task = Task(problem.serial, partial(problem.optimizer, text), LOSSES[data.loss](), problem.x, problem.y, args.batch_size,
                problem.steps, args.seed)  # fmt: skip
    found = {"protocol": text, "straggler": straggler, "diverged": None, "history": history}
    with ProcessGrid(MPI.COMM_SELF) as grid:
        tested = distribute(problem.serial, grid)
        tested.allocate()
        try:
            _, states = train(simulation, task, noted, lambda samples: seconds["compute"] * samples / problem.share, note)
            tested.load_state_dict(states[0])
            add_row(simulation.time)
            final = score(data.test)
        except Diverged as error:
            return found | {"diverged": f"after {simulation.time:.3g} s: {error}"}
    ended, samples = iter(turns), 0
    for row in history:
        loss = weight = 0.0
        while samples < row["samples"]:
            more, mean = next(ended)
            samples, loss, weight = samples + more, loss + mean * more, weight + more
        row["training_loss"] = loss / weight if weight else None
    first, last = turns[0][1], float(np.mean([loss for _, loss in turns[-LAST:]]))
    if last > ROSE * first:
        return found | {"diverged": f"the loss rose from {first:.3g} to {last:.3g}"}
    stale = sum((protocol.staleness for protocol in protocols), Counter())
    mean = sum(updates * count for updates, count in stale.items()) / max(1, stale.total())
    return found | communication(simulation, problem.steps) | {
        "score": final, "seconds": simulation.time, "staleness": {"mean": mean, "max": max(stale)} if stale else None,
        "turns": [len(protocol.taken) for protocol in protocols], "interval": protocols[0].interval,
        "effective_batch": protocols[0].effective_batch(args.batch_size),
    }  # fmt: skip


def reached(history, target, score):
    """The first row of a history whose score is as good as the target, or None. score: a value of SCORES."""
    return next((row for row in history if (row["score"] <= target if score == "mse" else row["score"] >= target)), None)


def communication(simulation, steps):
    """{"bytes": sent by all workers a step, "messages": the same}. An all-reduce of W workers is 2 (W - 1) messages of each."""
    total = Counter()
    for workers in simulation.workers:
        for (_, kind), record in workers.tally.records.items():
            total["bytes"] += record.bytes
            total["messages"] += 2 * (workers.size - 1) * record.calls if kind == "all-reduce" else record.messages
    return {name: total[name] / steps for name in ("bytes", "messages")}


def document(results):
    """Those results of a file that are in virtual time, as Markdown. Jobs were measured by a former version."""
    yield TEXT
    for one in results:
        if one["time"] == "virtual":
            yield from tables(one)


def tables(result):
    """A result as Markdown, without the words that all results have in common."""
    settings, seconds = result["settings"], result["seconds"]
    made_up, order = " (made up)" * bool(result["synthetic"]), ", sorted by label" * bool(result["sorted"])
    yield (f"## {result['net']}, {result['epochs']} epochs of {result['samples']} samples of {result['dataset']}{made_up}"
           f"{order}, {result['workers']} workers in virtual time\n")  # fmt: skip
    yield (f"Global batch {result['batch_size']}, learning rate {result['lr']:g} ({result['schedule']}), momentum "
           f"{result['momentum']:g}; {measured_on(result['versions'])}. "
           f"Virtual time: {1e3 * seconds['compute']:.3g} ms for a minibatch of {result['share']} samples, "
           f"{1e6 * seconds['update']:.3g} us for an update of {result['parameters']} parameters, {settings['rate']:g} "
           f"Mbit/s and {settings['delay']:g} us. {settings['evaluated']} samples are tested on the way.\n")  # fmt: skip
    for factor in dict.fromkeys(one["straggler"] for one in result["runs"]):
        yield f"The last worker computes {factor:g} times as slowly:\n" if factor > 1 else "All workers are equally fast:\n"
        of_factor = [one for one in result["runs"] if one["straggler"] == factor]
        yield lines([row(one, result) for one in of_factor]) + "\n"
        yield from (f"`{one['protocol']}` diverged: {one['diverged']}\n" for one in of_factor if one["diverged"])


def row(run, result):
    """A training as a dict of what is in the cells of its row."""
    target, score, done, stale = result["settings"]["target"], result["score"], not run["diverged"], run.get("staleness")
    cells = {"protocol": f"`{run['protocol']}`" + " (diverged)" * (not done)}
    if target is not None:
        at, goal = reached(run["history"], target, score), f"{target:g}{UNITS[score]}"
        cells |= {f"epochs to {goal}": at and f"{at['epoch']:.2f}", f"seconds to {goal}": at and f"{at['seconds']:.3g}"}
    sync = next((one for one in result["runs"] if (one["protocol"], one["straggler"]) == ("sync", run["straggler"])), {})
    cells |= {
        "seconds": done and f"{run['seconds']:.3g}",
        f"test {score}": done and (f"{run['score']:.2f} %" if score == "accuracy" else f"{run['score']:.4f}"),
        "sync by it": done and sync.get("seconds") and f"{sync['seconds'] / run['seconds']:.2f}",
        "messages a step": done and f"{run['messages']:.3g}",
        "effective batch": done and f"{run['effective_batch']:g}",
        "kB a step": done and f"{run['bytes'] / 1e3:.4g}",
        "staleness": stale and f"{stale['mean']:.2f}, at most {stale['max']}",
        "minibatches of each worker": done and ", ".join(map(str, run["turns"])),
    }
    return {head: text or None for head, text in cells.items()}


def options():
    parser = Parser(prog="study protocols", description="What does each update protocol cost and reach, also with a straggler?")
    add_data(parser, "mnist", "mnist-cnn", 64)
    add = parser.add_argument
    add("--protocols", default=",".join(PROTOCOLS), metavar="NAME,NAME,..", help="update protocols, see gridgrad help protocol"
        "; or powersgd:R, which is sync with that reduction")  # fmt: skip
    add("--straggler", type=number(least=1), default=4.0, metavar="FACTOR", help="in a second training with each protocol the "
        "last worker computes so many times as slowly")  # fmt: skip
    add("--lr", type=number(above=0), default=0.02, help="learning rate; of Downpour LR / (1 - MOMENTUM)")
    add("--momentum", type=number(least=0, below=1), default=0.9, help="momentum; Downpour has none")
    add("--schedule", default="cosine", help=f"schedule of the learning rate: {SCHEDULES}")
    add("--sorted", action="store_true", help="sort the training samples by their label, or by their first target")
    add("--workers", type=whole(1), default=4, metavar="W", help="number of workers")
    add("--samples", type=whole(1), metavar="S", help="use only so many training samples, the first ones (default: all)")
    add("--epochs", type=whole(1), default=3, help="passes over the training samples")
    add("--target", type=number(above=0), metavar="SCORE", help="accuracy on the test samples in percent, or mean squared "
        "error of a regression, to which time and epochs are counted")  # fmt: skip
    add("--every", type=number(above=0), default=0.25, metavar="EPOCHS", help="how often the network is tested")
    add("--evaluated", type=whole(1), default=1000, metavar="S", help="test samples on which it is tested before the end")
    add("--rate", type=number(above=0), default=1000.0, metavar="MBIT", help="Mbit/s of a worker's link")
    add("--delay", type=number(least=0), default=50.0, metavar="US", help="microseconds from worker to worker, one way")
    add("--seconds", type=number_list, metavar="S,S", help="seconds of a worker's minibatch and of an update, as an earlier "
        "result has them (default: measured at first)")  # fmt: skip
    add("--out", default="results/protocols.json", metavar="FILE.json", help="file of the results, to which these are added")
    return parser


def simulate(args):
    """Train with all protocols in virtual time, and write the result, with the settings, beside the earlier ones."""
    np.seterr(all="ignore")  # a loss that is not finite is found and named
    with user_input():
        args.protocols = list(dict.fromkeys(args.protocols.split(",")))
        for text in args.protocols:
            maker(text)
        parse_schedule(args.schedule, args.lr, 1)
        if args.seconds is not None and len(args.seconds) != 2:
            raise ValueError("--seconds takes two numbers, the seconds of a worker's minibatch and of an update")
        before = report.earlier_results(args.out, (*PROBLEM, "runs"), "protocols", document)
        datasets.prepare(args.dataset, args.data_dir)
        data = datasets.load(args.dataset, args.data_dir)
        train_setup.complete_samples(args, data)
        args.evaluated = min(args.evaluated, len(data.test))
        serial = network_names.build(args.net, data.sample_shape, data.outputs, args.seed)
        problem = ProtocolProblem(args, serial, data.reshaped(serial.input_shape))
    seconds = dict(zip(("compute", "update"), args.seconds)) if args.seconds else problem.measure()
    runs = []
    for text, factor in product(args.protocols, dict.fromkeys((1.0, args.straggler))):
        with user_input():
            runs.append(trained(problem, text, seconds, factor))
        said = "diverged" if runs[-1]["diverged"] else f"{runs[-1]['seconds']:.3g} s, test {runs[-1]['score']:.4g}"
        print(f"{text}, straggler {factor:g}: {said}", flush=True)
    names = "net", "batch_size", "lr", "momentum", "schedule", "sorted", "straggler"
    result = {name: getattr(args, name) for name in names} | {
        "time": "virtual", "dataset": data.name, "synthetic": data.synthetic, "workers": args.workers, "samples": args.samples,
        "epochs": args.epochs, "score": problem.score, "seconds": seconds, "share": problem.share,
        "parameters": problem.serial.size, "versions": report.versions(), "runs": runs, "settings": vars(args),
    }  # fmt: skip
    report.write_results(args.out, before, result, PROBLEM, document)
    print(terminal("\n".join(tables(result))))
    print(f"results added to {args.out}, and the tables beside it")


def main():
    args = options().parse_args()
    run(lambda: simulate(args))  # grids of one rank need MPI, too


if __name__ == "__main__":
    run_launcher(main)
