"""A training that is resumed goes on as if it had not been interrupted: bit by bit on the same grid, equal on another one.

Any grids, plans, partitions and ways to sum gradients are in `tests/random_networks/resuming.py`.
"""

from functools import partial

import numpy as np
import pytest

from gridgrad.nn import LOSSES, OPTIMIZERS, SGD, Linear, Sequential, Tanh
from gridgrad.nn.device import to_host
from gridgrad.nn.kernels.window import put
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import NetworkState
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.sync import power_sgd
from gridgrad.parallel.sync.reduction import BlockingReduction
from tests.mpi import mpi
from tests.parallel.checkpoint.training import Training, folder, images, minibatches
from tests.parallel.equality import assert_same, error, on_first, serial
from tests.parallel.protocols.training import dense, samples, spread

SAVED, STEPS = 2, 4


@mpi(2)
def test_a_network_goes_on_on_another_grid(comm):
    batches = minibatches(STEPS)
    losses, state = on_first(comm, serial, images(), adam, "cross-entropy", batches)
    with folder(comm) as directory:
        with ProcessGrid(comm, batch=2) as grid:
            whole = Training(grid, images(), adam, update="sharded").train(batches[:SAVED]).save(directory).train(batches)
            again = Training(grid, images(), adam, update="sharded").resume(directory).train(batches)
            assert again.losses == whole.losses[SAVED:] and again.bits() == whole.bits()
        with ProcessGrid(comm, model=2) as grid:
            again = Training(grid, images(), adam, update="sharded").resume(directory).train(batches)
            assert_same((again.losses, again.net.state_dict(everywhere=True)), (losses[SAVED:], state), 1e-10, "model")


@mpi(2)
def test_another_network_or_optimizer_is_refused_and_nothing_is_changed(comm):
    make = lambda *widths: Sequential(list(map(Linear, widths[:-1], widths[1:])), 1, np.float64, (4,))  # noqa: E731
    sgd = partial(SGD, lr=0.05, momentum=0.9)
    with folder(comm) as directory, ProcessGrid(comm, model=2) as grid:
        Training(grid, make(4, 6, 3), sgd).save(directory)
        for widths, optimizer, words in (
            ((4, 5, 3), sgd, "has shape"),
            ((4, 6, 3, 3), sgd, "has no network/parameters of 2.weight"),
            ((4, 6, 3), partial(SGD, lr=0.05), "its optimizer differs in velocity_lr"),
        ):
            training = Training(grid, make(*widths), optimizer)
            before = training.bits()
            with pytest.raises(ValueError, match=words):
                training.resume(directory)
            assert training.bits() == before


# ----- PowerSGD


def with_error(grid):
    layers = [Linear(12, 9), Tanh(), Linear(9, 11), Tanh(), Linear(11, 3)]
    net = Sequential(layers, seed=3, dtype=np.float64, input_shape=(12,))
    return Training(grid, net, partial(SGD, lr=0.05, momentum=0.5), reduction="powersgd:2")


def error_of(training):
    """{name: what was not passed on yet, as a global array}. Collective."""
    found, grid = {}, training.grid
    for layer, p, where in training.net.reduction.places:
        whole = np.zeros(p.shape)
        put(whole, p.index, to_host(training.net.reduction.error[where]).reshape(p.block_shape))
        found[f"{layer.name}.{p.name}"] = grid.comm.allreduce(whole)
    return found


@mpi(4)
def test_what_power_sgd_has_not_passed_on_is_kept_as_a_sum(comm, monkeypatch):
    monkeypatch.setattr(power_sgd, "UNCOMPRESSED_STEPS", 1)
    batches, grids = minibatches(STEPS, (12,)), [{"batch": 2, "model": 2}, {"batch": 4}, {"model": 4}]
    with folder(comm) as directory:
        with ProcessGrid(comm, **grids[0]) as grid:
            whole = with_error(grid).train(batches[:SAVED]).save(directory)
            left = error_of(whole)
            assert max(np.abs(value).max() for value in left.values()) > 1e-3
            whole.train(batches)
        for sizes in grids:
            with ProcessGrid(comm, **sizes) as grid:
                again = with_error(grid).resume(directory)
                assert again.net.reduction.sums == SAVED
                for name, value in error_of(again).items():
                    assert np.allclose(value, left[name], rtol=1e-12, atol=1e-14), (sizes, name)
                again.train(batches)
                if sizes == grids[0]:
                    assert again.losses == whole.losses[SAVED:] and again.bits() == whole.bits()


# ----- update protocols

COUNT, BATCH, TURNS, SAVED_TURNS = 29, 8, 9, 5  # an epoch has four minibatches; the last of them has 5 samples
TEXTS = {  # of every form
    "local": "local:3", "post-local": "post-local:2:3", "slowmo": "slowmo:3:0.5", "diloco": "diloco:3:fragments=2",
    "easgd": "easgd:2:0.1", "admm": "admm:3:rho=0.3", "sgp": "sgp", "parallel-sgd": "parallel-sgd:epoch",
    "server:bsp": "server:bsp", "server:asp": "server:asp:single", "server:ssp": "server:ssp:2", "downpour": "downpour:2:3",
}  # fmt: skip
ASYNCHRONOUS = "server:asp", "server:ssp", "downpour"
WORKERS = {1: [{"batch": 1}], 2: [{"batch": 2}], 4: [{"batch": 2, "model": 2}, {"batch": 2, "stage": 2}]}


def sgd(net):
    return SGD(net, lambda step: 0.1 / (1 + step), 0.5)


def adam(net):
    return OPTIMIZERS["adam"](net, lr=0.01, eps=1e-3)  # small gradients make differences of rounding larger


class Worker:
    """The training of one worker on this rank."""

    def __init__(self, net, workers, text, make_optimizer):
        self.net, self.workers, self.losses = net, workers, []
        self.protocol = protocol_names.parse(text)(net, workers, make_optimizer)
        self.participants = {"network": NetworkState(net), "protocol": self.protocol}

    def train(self, turns=TURNS, between=lambda step: None):
        """All turns until so many steps are done, and the end."""
        trainer, (x, y) = self.net.trainer(LOSSES["cross-entropy"](), self.protocol), samples(self.net, COUNT)
        for turn in self.protocol.turns(self.protocol.shares(COUNT, BATCH, 0), turns, between):
            self.losses += trainer.step([self.net.blocks(x[turn.indices], y[turn.indices])], turn.samples)
        self.losses += trainer.flush()
        self.protocol.finish()
        return self

    def bits(self):
        """What this rank has at the end, and what a report says of it."""
        protocol = self.protocol
        arrays = [self.net.params, *(buffer.value for _, buffer in self.net.buffers), *protocol.state_arrays().values()]
        return [to_host(array).tolist() for array in arrays], protocol.taken, protocol.staleness, protocol.samples


def goes_on(comm, text, grids, make_optimizer):
    """Save on the first grid, resume on all: to the last bit on that one. Collective."""
    is_served = text.startswith(("server", "downpour"))  # servers need whole gradients; else ranks divide the optimizer's state
    options = {"reduction": partial(BlockingReduction, update="whole" if is_served else "sharded")}
    with folder(comm) as directory:
        with spread(comm, grids[0], dense(norm=True), **options) as (net, workers):
            whole = Worker(net, workers, text, make_optimizer)
            saver = Saver(comm, net, whole.participants, directory, workers, SAVED_TURNS)
            whole.train(between=saver.boundary)
            saver.close()
            assert saver.written == 1
            state, bits = net.state_dict(everywhere=True), whole.bits()
        for sizes in grids:
            with spread(comm, sizes, dense(norm=True), **options) as (net, workers):
                again = Worker(net, workers, text, make_optimizer)
                newest(comm, directory).restore(net, again.participants, workers)
                again.train()
                assert 0 < len(again.losses) < len(whole.losses)
                assert error(net.state_dict(everywhere=True), state) < 1e-10, (text, sizes)
                if sizes == grids[0]:
                    assert again.losses == whole.losses[-len(again.losses) :] and again.bits() == bits, text


@mpi(1, 2, 4)
def test_every_protocol_goes_on(comm):
    assert TEXTS.keys() == protocol_names.FORMS.keys()
    for name, text in {**TEXTS, "sync": "sync"}.items():
        if comm.size == 1 or name not in (*ASYNCHRONOUS, "sync"):
            goes_on(comm, text, WORKERS[comm.size], adam if name == "server:bsp" else sgd)  # the server has Adam's state


@mpi(2)
def test_checkpoints_of_workers_come_after_so_many_steps_and_others_are_refused(comm):
    """Between two means the workers do not ask each other anything; how many steps there are, they know."""
    with folder(comm) as directory:
        with spread(comm, {"batch": 2}, dense()) as (net, workers):
            worker = Worker(net, workers, "local:3", sgd)
            saver = Saver(comm, net, worker.participants, directory, workers, 4, every=3)
            worker.train(20, saver.boundary)
            saver.close()
            assert saver.saved == 4  # after 4, 8, 12 and 16 steps
        with spread(comm, {"model": 2}, dense()) as (net, workers):
            alone = Worker(net, workers, "local:3", sgd).participants
            with pytest.raises(ValueError, match="has 2 workers, .* batch=2"):
                newest(comm, directory).restore(net, alone, workers)
        with spread(comm, {"batch": 2}, dense()) as (net, workers):
            with pytest.raises(ValueError, match="its protocol differs in"):
                newest(comm, directory).restore(net, Worker(net, workers, "sgp", sgd).participants, workers)
            for text in (TEXTS[name] for name in ASYNCHRONOUS):  # their workers are never at the same step
                protocol = protocol_names.parse(text)(net, workers, sgd)
                with pytest.raises(ValueError, match="no checkpoints of asynchronous parameter servers"):
                    protocol.state()
                protocol.finish()
