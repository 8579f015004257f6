"""Trainings of one network with update protocols in virtual time, and what is recorded of each.

The numbers are trained in earnest, by workers that a `Simulation` lets take turns. The time that they are said to need is made
of a few measured seconds: see `Problem.measure`.
"""

from collections import Counter
from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad.datasets.views import Subset
from gridgrad.experiments.common import train_setup
from gridgrad.experiments.common.timing import times_in_turns
from gridgrad.experiments.studies.protocols.synchronous_workers import maker
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.optimizers import parse_schedule
from gridgrad.nn.random import permutation
from gridgrad.parallel import READERS, ProcessGrid, evaluate
from gridgrad.parallel.protocols.protocol import spread
from gridgrad.parallel.protocols.server import ParameterServer
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from gridgrad.parallel.training import steps_per_epoch
from gridgrad.parallel.training.distribute import distribute
from gridgrad.parallel.training.steps import Diverged

ROUNDS = 15  # timings of a minibatch and of an update
LAST, ROSE = 10, 2  # a training has diverged if the mean loss of so many last steps is so many times the first one
SCORES = {"cross-entropy": "accuracy", "mse": "mse"}  # which result of an evaluation, for each loss


def rates(args, text):
    """{"lr", "momentum"} of the SGD of a protocol: those of the options, but for Downpour.

    Its workers take plain steps between two fetches. So its servers have no momentum either, and both have the learning rate
    lr / (1 - momentum), with which steps are as long on average.
    """
    if text.startswith("downpour"):
        return {"lr": args.lr / (1 - args.momentum), "momentum": 0.0}
    return {"lr": args.lr, "momentum": args.momentum}


class ProtocolProblem:
    """What all protocols train. serial: the network. data: its Dataset. args: the options of the program `protocols`."""

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
        """A new optimizer for a protocol, of a network or of what a server keeps."""
        chosen = rates(self.args, text)
        return SGD(updated, parse_schedule(self.args.schedule, chosen["lr"], self.steps), chosen["momentum"])

    def measure(self):
        """{"compute": seconds of a worker's minibatch with its update, "update": of an update alone} on this machine.

        A minibatch is forward and backward of an even share of the samples. Both are medians of several timings.
        """
        with ProcessGrid(MPI.COMM_SELF) as alone:
            net = distribute(self.serial, alone)
            net.allocate()
            loss, optimizer, part = LOSSES[self.data.loss](), SGD(net, 1e-9, momentum=0.5), slice(0, self.share)
            trainer = net.trainer(loss, optimizer)
            micro_batches = [net.blocks(self.x[part], self.y[part])]
            actions = {"compute": lambda: trainer.step(micro_batches, self.share), "update": optimizer.step}
            return {name: float(np.median(seconds)) for name, seconds in times_in_turns(actions, ROUNDS).items()}

    def simulation(self, seconds, straggler):
        """The Simulation of the workers. seconds: what `measure` returned. straggler: the factor of the last worker, or 1."""
        args = self.args
        return Simulation(
            args.workers, latency=1e-6 * args.delay, byte_seconds=8e-6 / args.rate, straggler={args.workers - 1: straggler},
            serve_seconds=seconds["update"] / (self.serial.size * self.serial.dtype.itemsize), seed=args.seed,
        )  # fmt: skip


class Probe:
    """A network of its own, with which the state of a training is evaluated. Use it as a context manager."""

    def __init__(self, problem):
        self.problem, self.grid = problem, ProcessGrid(MPI.COMM_SELF)
        self.net = distribute(problem.serial, self.grid)
        self.net.allocate()
        self.batch = train_setup.evaluation_batch(problem.args, problem.serial)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.grid.free()

    def score(self, part):
        """The accuracy in percent, or the mean squared error, for the samples of a Part. Raises Diverged."""
        reader = READERS["each"](self.net, part)
        return evaluate(self.net, part, self.problem.data.loss, reader, self.batch)[self.problem.score]

    def take(self, protocols, nets):
        """Take the parameters that stand for all workers: those that servers serve, else the mean of the workers."""
        if isinstance(protocols[0], ParameterServer):
            first = protocols[0].counted
            packed = first.pack(self.net.params)
            for server in protocols[0].parts:
                spread(protocols[server].shard.params, protocols[0].parts[server], packed)
            first.unpack(packed, self.net.params)
        else:
            self.net.params[...] = sum(net.params for net in nets) / len(nets)
        for buffer, *others in zip(*([b.value for _, b in net.buffers] for net in (self.net, *nets))):
            buffer[...] = sum(others) / len(others)


def trained(problem, text, seconds, straggler):
    """Train with a protocol; returns what is recorded of it: a dict.

    text: names the protocol. seconds, straggler: as in `Problem.simulation`.
    history: rows of {"seconds": virtual, "samples" so far, "epoch", "score", "training_loss": the mean since the row before}.
    The scores are of the subset of the test samples; the last one is after the protocol's `finish`.
    score: of all test samples, then.
    """
    args, history, protocols, optimizer = problem.args, [], [None] * problem.args.workers, partial(problem.optimizer, text)
    turns, trained_on = [], 0  # (samples, loss) of the turns that have ended
    simulation, make = problem.simulation(seconds, straggler), maker(text)

    def noted(net, workers, make_optimizer):
        protocols[workers.rank] = protocol = make(net, workers, make_optimizer)
        return protocol

    def evaluate_at(now, samples):
        score = probe.score(problem.seen)
        history.append({"seconds": now, "samples": samples, "epoch": samples / args.samples, "score": score})

    def note(workers, turn, loss, nets):
        nonlocal trained_on
        turns.append((turn.samples, loss))
        before, trained_on = trained_on, trained_on + turn.samples
        if trained_on // apart > before // apart:
            probe.take(protocols, nets)
            evaluate_at(workers.now(), trained_on)

    apart = max(1, round(args.every * args.samples / args.batch_size)) * args.batch_size
    loss, computing = LOSSES[problem.data.loss](), lambda samples: seconds["compute"] * samples / problem.share
    task = Task(problem.serial, optimizer, loss, problem.x, problem.y, args.batch_size, problem.steps, args.seed)
    run = {"protocol": text, "straggler": straggler, "diverged": None, "history": history}
    with Probe(problem) as probe:
        try:
            _, states = train(simulation, task, noted, computing, note)
            probe.net.load_state_dict(states[0])
            evaluate_at(simulation.time, trained_on)
            score = probe.score(problem.data.test)
        except Diverged as error:
            return run | {"diverged": f"after {simulation.time:.3g} s: {error}"}
    add_losses(history, turns)
    if message := rose([loss for _, loss in turns]):
        return run | {"diverged": message}
    return run | communication(simulation, problem.steps) | {
        "score": score, "seconds": simulation.time,
        "staleness": staleness(sum((protocol.staleness for protocol in protocols), Counter())),
        "turns": [len(protocol.taken) for protocol in protocols], "interval": protocols[0].interval,
        "effective_batch": protocols[0].effective_batch(args.batch_size),
    }  # fmt: skip


def add_losses(history, turns):
    """Add to each row the mean loss of the samples since the row before. turns: (samples, loss) of each, in their order."""
    turns = iter(turns)
    samples = 0
    for row in history:
        loss = weight = 0.0
        while samples < row["samples"]:
            more, mean = next(turns)
            samples += more
            loss, weight = loss + mean * more, weight + more
        row["training_loss"] = loss / weight if weight else None


def rose(losses):
    """Why a training has diverged although all its losses are finite: a message; None if it has not."""
    first, last = losses[0], float(np.mean(losses[-LAST:]))
    return f"the loss rose from {first:.3g} to {last:.3g}" if last > ROSE * first else None


def communication(simulation, steps):
    """{"bytes": sent by all workers a step, "messages": the same}. An all-reduce of W workers is 2 (W - 1) messages of each."""
    total = Counter()
    for workers in simulation.workers:
        for (_, kind), record in workers.tally.records.items():
            total["bytes"] += record.bytes
            total["messages"] += 2 * (workers.size - 1) * record.calls if kind == "all-reduce" else record.messages
    return {name: total[name] / steps for name in ("bytes", "messages")}


def staleness(counter):
    """{"mean", "max"} of a Counter of gradients by staleness; None if it is empty."""
    if not counter:
        return None
    return {"mean": sum(k * n for k, n in counter.items()) / sum(counter.values()), "max": max(counter)}


def reached(history, target, score):
    """The first row of a history whose score is as good as the target, or None. score: a value of SCORES."""
    good = (lambda row: row["score"] <= target) if score == "mse" else (lambda row: row["score"] >= target)
    return next(filter(good, history), None)
