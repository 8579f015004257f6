"""Every update protocol goes on from a checkpoint as if it had not been interrupted."""

from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn import LOSSES, OPTIMIZERS, SGD
from gridgrad.nn.device import to_host
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import NetworkState
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.workers import one_worker
from gridgrad.parallel.sync.reduction import BlockingReduction
from tests.mpi import mpi
from tests.parallel.checkpoint.training import folder
from tests.parallel.equality import assert_same
from tests.parallel.protocols.training import dense, samples, spread

COUNT, BATCH, STEPS, SAVED = 29, 8, 9, 5  # an epoch has four minibatches; the last of them has 5 samples
LOSS = LOSSES["cross-entropy"]()
TEXTS = {  # of every form of names.py
    "local": ["local:3"], "post-local": ["post-local:2:3"], "slowmo": ["slowmo:3:0.5"],
    "diloco": ["diloco:3", "diloco:4:fragments=2", "diloco:3:fragments=3"], "easgd": ["easgd:2:0.1"],
    "admm": ["admm:3", "admm:3:rho=0.3"], "sgp": ["sgp"], "parallel-sgd": ["parallel-sgd", "parallel-sgd:epoch"],
    "server:bsp": ["server:bsp", "server:bsp:single", "server:bsp:round-robin"],
    "server:asp": [], "server:ssp": [], "downpour": [],
}  # fmt: skip
ASYNCHRONOUS = "server:asp", "server:asp:single", "server:ssp:2", "downpour:2:3"


def network():
    return dense(norm=True)


def momentum(net):
    return SGD(net, lambda step: 0.1 / (1 + step), 0.5)


class Worker:
    """The training of one worker on this rank."""

    def __init__(self, net, workers, text, make_optimizer=momentum):
        self.net, self.workers = net, workers
        self.protocol = protocol_names.parse(text)(net, workers, make_optimizer)
        self.trainer = net.trainer(LOSS, self.protocol)
        self.participants = {"network": NetworkState(net), "protocol": self.protocol}
        self.losses, self.data = [], samples(net, COUNT)

    def train(self, saver=None, steps=STEPS):
        """All turns until so many steps are done."""
        (x, y), shares = self.data, self.protocol.shares(COUNT, BATCH, 0)
        for turn in self.protocol.turns(shares, steps, saver.boundary if saver else lambda step: None):
            blocks = self.net.blocks(x[turn.indices], y[turn.indices])
            self.losses += self.trainer.step([blocks], turn.samples)
        self.losses += self.trainer.flush()
        return self

    def finish(self):
        """(losses, state) at the end."""
        self.protocol.finish()
        return self.losses, self.net.state_dict(everywhere=True)

    def bits(self):
        """What this rank has at the end, and what a report says of it."""
        protocol = self.protocol
        arrays = [self.net.params, *(buffer.value for _, buffer in self.net.buffers), *protocol.state_arrays().values()]
        return [to_host(array).copy() for array in arrays], protocol.taken, protocol.staleness


def interrupted(comm, sizes, text, directory, **options):
    """What `results` returns, of a training that writes a checkpoint after SAVED steps and goes on."""
    with spread(comm, sizes, network(), reduction=reduction_for(text)) as (net, workers):
        worker = Worker(net, workers, text, **options)
        saver = Saver(comm, net, worker.participants, directory, workers, SAVED)
        worker.train(saver)
        saver.close()
        assert saver.written == 1
        return results(comm, worker)


def resumed(comm, sizes, text, directory, **options):
    """The same for one that goes on from the checkpoint."""
    with spread(comm, sizes, network(), reduction=reduction_for(text)) as (net, workers):
        worker = Worker(net, workers, text, **options)
        newest(comm, directory).restore(net, worker.participants, workers)
        return results(comm, worker.train())


def results(comm, worker):
    """(losses of all workers, the state that they end with, the turns of all workers, bits of this rank). Collective."""
    losses, state = worker.finish()
    mine = worker.workers.rank, losses, worker.protocol.taken, worker.protocol.samples
    of_workers = sorted({one[0]: one for one in comm.allgather(mine)}.values())
    return [one[1] for one in of_workers], state, [one[2:] for one in of_workers], worker.bits()


def reduction_for(text):
    """Servers need whole gradients; elsewhere the ranks of a worker divide the optimizer's state."""
    return BlockingReduction if text.startswith(("server", "downpour")) else partial(BlockingReduction, update="sharded")


def assert_goes_on(comm, text, grids, **options):
    """Save on the first grid, resume on all: to the last bit on that one."""
    with folder(comm) as directory:
        losses, state, turns, (arrays, *counted) = interrupted(comm, grids[0], text, directory, **options)
        for sizes in grids:
            found, found_state, found_turns, (found_arrays, *found_counted) = resumed(comm, sizes, text, directory, **options)
            for all_of_worker, later in zip(losses, found, strict=True):
                assert 0 < len(later) < len(all_of_worker)
                assert_same((later, found_state), (all_of_worker[-len(later) :], state), 1e-10, (text, sizes))
            assert found_turns == turns, (text, sizes)
            if sizes == grids[0]:
                assert [each[-len(later) :] for each, later in zip(losses, found, strict=True)] == found, text
                assert found_counted == counted, text
                assert all(np.array_equal(*each) for each in zip(found_arrays, arrays, strict=True)), text


def test_every_protocol_is_tested():
    assert TEXTS.keys() == protocol_names.FORMS.keys()


@mpi(3)
def test_workers_of_one_rank(comm):
    for texts in TEXTS.values():
        for text in texts:
            assert_goes_on(comm, text, [{"batch": 3}])


@mpi(4)
def test_workers_of_several_ranks_and_on_another_grid(comm):
    for texts in TEXTS.values():
        for text in texts[:1]:
            assert_goes_on(comm, text, [{"batch": 2, "model": 2}, {"batch": 2, "stage": 2}])


@mpi(4, long=(4,))
def test_so_they_do_with_the_other_forms_of_each_protocol(comm):
    for texts in TEXTS.values():
        for text in texts[1:]:
            assert_goes_on(comm, text, [{"batch": 2, "model": 2}, {"batch": 2, "stage": 2}])


@mpi(4)
def test_optimizers_of_servers_move_with_the_parameters(comm):
    for name in ("adam", "adadelta"):
        make = partial(OPTIMIZERS[name], lr=0.01, eps=1e-3)
        for grids in ([{"batch": 2, "stage": 2}, {"batch": 2, "model": 2}], [{"batch": 4}]):
            for way in ("", ":single", ":round-robin"):
                assert_goes_on(comm, f"server:bsp{way}", grids, make_optimizer=make)


@mpi(2)
def test_a_training_that_is_complete_only_ends(comm):
    for texts in TEXTS.values():
        for text in texts:
            with folder(comm) as directory, spread(comm, {"batch": 2}, network()) as (net, workers):
                worker = Worker(net, workers, text).train()
                saver = Saver(comm, net, worker.participants, directory, workers)
                saver.save(STEPS)
                saver.close()
                _, state = worker.finish()
                found, found_state, *_ = resumed(comm, {"batch": 2}, text, directory)
                assert found == [[], []] and all(np.array_equal(found_state[name], value) for name, value in state.items()), (
                    text
                )


@mpi(2)
def test_workers_that_are_never_at_the_same_step_have_no_checkpoints(comm):
    for text in ASYNCHRONOUS:
        with spread(comm, {"batch": 2}, network()) as (net, workers):
            protocol = protocol_names.parse(text)(net, workers, momentum)
            with pytest.raises(ValueError, match="no checkpoints of asynchronous parameter servers.*: use --protocol"):
                protocol.state()
            protocol.finish()


@mpi(1)
def test_one_worker_has_them_with_any_protocol(comm):
    for text in (*ASYNCHRONOUS, "server:bsp", "sgp", "sync"):
        assert_goes_on(comm, text, [{"batch": 1}])


@mpi(4)
def test_another_number_of_workers_is_refused(comm):
    with folder(comm) as directory:
        interrupted(comm, {"batch": 2, "model": 2}, "local:3", directory)
        for sizes, found in (({"batch": 4}, 4), ({"model": 4}, 1)):
            with pytest.raises(ValueError, match=f"has 2 workers, and this run {found}: name a grid with batch=2"):
                resumed(comm, sizes, "local:3", directory)
        with ProcessGrid(comm, batch=4) as grid, pytest.raises(ValueError, match="has 2 workers"):
            net = distribute(network(), grid)
            protocol = protocol_names.parse("sync")(net, one_worker(grid)[1], momentum)
            newest(comm, directory).restore(net, {"network": NetworkState(net), "protocol": protocol})
        with pytest.raises(ValueError, match="with other settings: its protocol differs in seen, weight"):
            resumed(comm, {"batch": 2, "model": 2}, "sgp", directory)


@mpi(2)
def test_checkpoints_come_after_so_many_steps_also_between_two_means(comm):
    """Between two means the workers do not ask each other anything; how many steps there are, they know."""
    with folder(comm) as directory, spread(comm, {"batch": 2}, network()) as (net, workers):
        worker = Worker(net, workers, "local:3")
        saver = Saver(comm, net, worker.participants, directory, workers, 4, every=3)
        worker.train(saver, 20)
        saver.close()
        worker.finish()
        assert saver.saved == 4  # after 4, 8, 12 and 16 steps
        assert saver.comm == MPI.COMM_NULL
