"""The pictures of docs/schemes in which time goes to the right: schedules of a pipeline, and update protocols."""

import numpy as np
from matplotlib.patches import Rectangle

from docs.shapes import ELSEWHERE, RANKS, caption, legend, plt, save
from gridgrad.nn import MSE, SGD, Linear, Sequential
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import complete
from gridgrad.parallel.pipeline.simulate import UnitTimes, simulate
from gridgrad.parallel.protocols import protocol_names as protocol_names
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train

PASSES = {"F": "#56B4E9", "B": "#E69F00", "I": "#F0E442", "W": "#009E73"}  # of Okabe and Ito
WORDS = {
    "F": "F: forward",
    "B": "B: backward, both halves",
    "I": "I: gradient of the input",
    "W": "W: gradients of the weights",
}
SCHEDULES = "gpipe", "1f1b", "interleaved:2", "zb-h1", "zbv"
PROTOCOLS = "server:bsp", "local:4", "server:ssp:2", "server:asp"


def draw_pipeline(path, stages=4, micro_batches=8):
    """One step of several schedules, each as its simulation has it."""
    found = {}
    for name in SCHEDULES:
        schedule = complete(schedule_names.parse(name).schedule(stages, micro_batches))
        unit = stages / schedule.route.chunks  # a chunk of half a stage takes half of the time
        simulation = simulate(schedule, UnitTimes(unit, unit, unit))
        found[name] = simulation, max(simulation.peak_open) * unit
    longest = max(simulation.makespan for simulation, _ in found.values())
    figure, panels = plt.subplots(len(found), 1, figsize=(11, 1.42 * len(found) + 0.9), sharex=True)
    for panel, (name, (simulation, open_at_once)) in zip(panels, found.items(), strict=True):
        draw_schedule(panel, simulation)
        idle = 1 - simulation.use
        panel.set_title(f"{name}: {simulation.makespan:g} units of time, ranks idle for {idle:.0%} of them, activations of at "
                        f"most {open_at_once:g} micro-batches of a whole stage in memory", fontsize=9, loc="left")  # fmt: skip
        rows(panel, longest, [f"stage {rank}" for rank in range(stages)])
    panels[-1].set_xlabel("time in units: the forward pass of a micro-batch through a stage takes one", fontsize=9)
    figure.suptitle(f"A step on stage={stages} with {micro_batches} micro-batches, whose numbers are in the boxes. Paler: the "
                    "second chunk of a rank.", fontsize=10.5)  # fmt: skip
    figure.tight_layout(rect=(0, 0.035, 1, 1))
    legend(figure, {words: PASSES[op] for op, words in WORDS.items()})
    save(figure, path)


def draw_schedule(panel, simulation):
    route = simulation.schedule.route
    for rank, row in enumerate(simulation.events):
        for (op, chunk, micro_batch), start, stop in row:
            if op in PASSES:
                strength = 1.0 if chunk == route.held(rank)[0] else 0.45
                panel.add_patch(Rectangle((start, rank - 0.38), stop - start, 0.76, facecolor=(PASSES[op], strength),
                                          edgecolor="white", linewidth=0.5))  # fmt: skip
                caption(panel, (start + stop) / 2, rank, str(micro_batch), fontsize=6.5)


class Noted:
    """A protocol that stands where another one stands, and notes when each of its steps begins."""

    def __init__(self, protocol, notes):
        self.protocol, self.notes = protocol, notes

    def __getattr__(self, name):
        return getattr(self.protocol, name)

    def step(self):
        turn = self.protocol.turn
        self.notes.append((self.protocol.workers.rank, turn.step, turn.samples, self.protocol.workers.now()))
        self.protocol.step()


def history_of(name, workers, steps, straggler, seconds):
    """([(worker, step, samples, when its gradients were there)], the Simulation, [the Protocol of each worker])."""
    simulation = Simulation(workers, latency=0.02, byte_seconds=1e-5, straggler=straggler)
    make, notes = protocol_names.parse(name), []
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((64, 6)), rng.standard_normal((64, 1))
    serial = Sequential([Linear(6, 1)], input_shape=(6,), dtype=np.float64)
    task = Task(serial, lambda net: SGD(net, lr=0.01), MSE(), x, y, 16, steps)
    protocols, _ = train(simulation, task, lambda *given: Noted(make(*given), notes), lambda samples: seconds)
    return notes, simulation, protocols


def draw_protocols(path, workers=4, steps=12, slow=3, factor=2.5):
    """When the workers of several protocols compute and wait, one of them being slow."""
    seconds, straggler = 1.0, {slow: factor}
    found = {name: history_of(name, workers, steps, straggler, seconds) for name in PROTOCOLS}
    longest = max(simulation.time for _, simulation, _ in found.values())
    figure, panels = plt.subplots(len(found), 1, figsize=(11, 1.5 * len(found) + 0.9), sharex=True)
    for panel, (name, (notes, simulation, protocols)) in zip(panels, found.items(), strict=True):
        sent = sum(record.bytes for each in simulation.workers for record in each.tally.records.values())
        busy = sum(seconds * straggler.get(worker, 1) for worker, *_ in notes) / (workers * simulation.time)
        stale = max((most for protocol in protocols for most in protocol.staleness), default=0)
        panel.set_title(f"{name}: all {steps} minibatches after {simulation.time:.1f} s, workers compute {busy:.0%} of the "
                        f"time, {sent / steps:,.0f} bytes a step, staleness at most {stale}",
                        fontsize=9, loc="left")  # fmt: skip
        for worker in range(workers):
            panel.add_patch(Rectangle((0, worker - 0.38), simulation.time, 0.76, facecolor=ELSEWHERE))
        for worker, step, _, end in notes:
            length = seconds * straggler.get(worker, 1)
            panel.add_patch(Rectangle((end - length, worker - 0.38), length, 0.76, facecolor=RANKS[0 if worker != slow else 1],
                                      edgecolor="white", linewidth=0.8))  # fmt: skip
            caption(panel, end - length / 2, worker, str(step), fontsize=6.5, color="white")
        rows(panel, longest, [f"worker {worker}" for worker in range(workers)])
    panels[-1].set_xlabel("virtual time in seconds", fontsize=9)
    figure.suptitle(f"{workers} workers, worker {slow} computes {factor:g} times as slowly. In the boxes: the number of the "
                    "minibatch of which a worker has a share.", fontsize=10.5)  # fmt: skip
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    legend(figure, {"a worker computes": RANKS[0], "the slow one computes": RANKS[1], "it waits": ELSEWHERE})
    save(figure, path)


def rows(panel, longest, names):
    """Set a panel's axes: time from 0 to `longest`, and a row for each name, the first one on top."""
    panel.set(xlim=(0, longest), ylim=(len(names) - 0.45, -0.55))
    panel.set_yticks(range(len(names)), names, fontsize=8)
    bare(panel)


def bare(panel):
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)
    panel.tick_params(axis="x", labelsize=8)
