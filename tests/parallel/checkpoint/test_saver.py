"""What a checkpoint holds: each element once. Any placement goes on from it."""

import threading
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gridgrad.nn import SGD, Linear, Sequential, Sigmoid, SparseLinear, Tanh, TiedAutoencoder
from gridgrad.nn.device import to_host
from gridgrad.nn.kernels.window import put, take
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.checkpoint import saver as saver_module
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.checkpoint.pieces import pieces_of, written_slices
from gridgrad.parallel.checkpoint.restore import newest, whole_array
from gridgrad.parallel.checkpoint.saver import Agreement, Saver
from gridgrad.parallel.checkpoint.shard_file import Shard, write_shard
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.protocols.protocol import SentParameters
from gridgrad.parallel.sync.overlapped import OverlappedReduction
from gridgrad.parallel.sync.reduction import BlockingReduction
from gridgrad.parallel.sync.shared_memory import SharedMemoryReduction
from tests.mpi import mpi
from tests.parallel.checkpoint.training import GRIDS, Training, folder, images, minibatches, part_of
from tests.parallel.equality import assert_same, grids, on_cpus, on_first, serial
from tests.parallel.placement.test_hypergraph import SHAPE, branching, narrow, net_of, random_owners

SAVED, STEPS = 1, 3
sgd = partial(SGD, lr=0.05, momentum=0.9)


def counts_of(shards, path):
    """{array: how often each element of it is in some files}."""
    found = {}
    for shard in shards:
        for piece in (piece for (kind, _), parts in shard.parts.items() if kind == path for piece, _ in parts):
            count = found.setdefault(piece.array, np.zeros(piece.shape, int))
            for block, _ in piece.blocks():
                put(count, block, take(count, block) + 1)
    return found


def examine(training, directory):
    """Fail unless each element is in one file and the files have the global arrays. Collective."""
    pairs = training.net.parameters + training.net.buffers
    arrays = {f"{layer.name}.{p.name}": training.net.global_value(p, everywhere=True) for layer, p in pairs}
    if training.grid.rank:
        return
    folder = found_in(directory)[0][0].folder
    shards = [Shard(path) for path in sorted(folder.glob("rank-*.h5"))]
    assert len(shards) == training.grid.size
    for kind, of in (("parameters", training.net.parameters), ("buffers", training.net.buffers)):
        path, names = f"network/{kind}", [f"{layer.name}.{p.name}" for layer, p in of]
        counts = counts_of(shards, path)
        assert counts.keys() == set(names)
        for name in names:
            expected = to_host(arrays[name])
            assert np.array_equal(whole_array(shards, path, name), expected)
            assert counts[name].max(initial=0) <= 1 and not expected[counts[name] == 0].any()
    for name in training.optimizer.state_names:
        counts = counts_of(shards, f"optimizer/{name}")
        parameters = counts_of(shards, "network/parameters")
        assert counts.keys() == parameters.keys()
        assert all(np.array_equal(counts[array], count) for array, count in parameters.items())


def check(comm, save, resume, batches, expected, words, micro_batches=1):
    """Save in one way and go on in others. save, resume: functions of a communicator that make a Training and free nothing."""
    with folder(comm) as directory:
        with save(comm) as training:
            training.train(batches[:SAVED]).save(directory)
            examine(training, directory)
        for one in resume:
            with one(comm) as training:
                training.resume(directory).train(batches)
                assert_same((training.losses, training.state()), (expected[0][SAVED:], expected[1]), 1e-10, words)


class On:
    """A Training on a grid, as a context manager: On(sizes, function that makes the Training of a grid)(comm)."""

    def __init__(self, sizes, make):
        self.sizes, self.make = sizes, make

    def __call__(self, comm):
        self.grid = ProcessGrid(comm, **self.sizes)
        return self

    def __enter__(self):
        return self.make(self.grid)

    def __exit__(self, *exception):
        self.grid.free()


@mpi(8)
def test_each_element_is_in_one_file_on_all_grids(comm):
    batches = minibatches(SAVED)
    for number, sizes in enumerate(GRIDS):
        with folder(comm) as directory, part_of(comm, sizes) as grid:
            if grid:
                training = Training(grid, images(), sgd, reduction="overlap:1", update=("whole", "sharded")[number % 2])
                training.train(batches).save(directory)
                examine(training, directory)


@mpi(2, 3, 4, long=(3,))
def test_ranks_agree_on_what_each_writes_of_arrays_that_not_all_have(comm, monkeypatch):
    """Also where one rank has the same of two arrays, and another one does not."""
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "2")
    make = lambda: Sequential([Linear(1, 1, bias=False), Tanh(), Linear(1, 3)], 1, np.float64, (1,))  # noqa: E731
    ways = [
        partial(way, update=update) for way in (BlockingReduction, SharedMemoryReduction) for update in ("whole", "sharded")
    ]
    ways = [way for way in ways if on_cpus(comm) or way.func is BlockingReduction]
    ways.append(lambda net: OverlappedReduction(net, "sharded", "same", 1))
    for sizes, plan in product(grids(comm.size), ("fewest-bytes", "out,redundant")):
        for way in ways:
            with ProcessGrid(comm, **sizes) as grid:
                net = distribute(make(), grid, plan, reduction=way)
                net.allocate()
                slices = {"all": [slice(0, net.size)], "owned": net.reduction.owned, "counted": SentParameters(net).slices}
                slices["last"] = slices["owned"] if comm.rank == comm.size - 1 else []
                written = written_slices(net, slices)
                for path, mine in slices.items():
                    inside = [any(a.start <= b.start and b.stop <= a.stop for a in mine) for b in written[path]]
                    assert all(inside), (sizes, plan, path)
                    if path == "last":
                        continue
                    total = {f"{layer.name}.{p.name}": np.zeros(p.shape, int) for layer, p in net.parameters}
                    for piece in pieces_of(net, written[path]):
                        for block, _ in piece.blocks():
                            put(total[piece.array], block, take(total[piece.array], block) + 1)
                    assert all((comm.allreduce(count) == 1).all() for count in total.values()), (sizes, plan, path)


@mpi(2, 3, long=(3,))
def test_hypergraph_partitions_of_both_grains(comm):
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((4, *SHAPE)), rng.integers(0, 4, 4)) for _ in range(STEPS)]
    for number, layers in enumerate((branching, narrow)):
        expected = on_first(comm, serial, net_of(layers), sgd, "cross-entropy", batches)
        ways = [
            On({"model": comm.size}, lambda grid, seed=seed: Training(
                grid, net_of(layers), sgd, "hypergraph", owners=random_owners(layers, comm.size, seed, fine)))  # noqa: B023
            for seed, fine in ((number, 1.0), (number + 10, 0.5), (number + 20, 0.0))
        ]  # fmt: skip
        ways.append(On({"batch": comm.size}, lambda grid: Training(grid, net_of(layers), sgd)))  # noqa: B023
        for first, save in enumerate(ways):
            check(comm, save, [save, ways[first - 1]], batches, expected, (layers.__name__, first))


@mpi(2, 3)
def test_sparse_weights_and_autoencoders(comm):
    rng = np.random.default_rng(1)
    pattern = rng.random((9, 14)) < 0.3
    sparse = lambda: Sequential([SparseLinear(pattern), Tanh(), Linear(14, 3)], 2, np.float64, (9,))  # noqa: E731
    tied = lambda: Sequential([TiedAutoencoder(9, 5), Sigmoid()], 2, np.float64, (9,))  # noqa: E731
    x = rng.random((STEPS, 6, 9))
    for make, loss, batches in (
        (sparse, "cross-entropy", [(one, np.arange(6) % 3) for one in x]), (tied, "mse", [(one, one) for one in x])
    ):  # fmt: skip
        expected = on_first(comm, serial, make(), sgd, loss, batches)
        ways = [
            On({axis: comm.size}, lambda grid: Training(grid, make(), sgd, loss=loss))  # noqa: B023
            for axis in ("model", "batch")
        ]
        for save in ways:
            check(comm, save, ways, batches, expected, make)


@mpi(2)
def test_another_network_is_refused_and_nothing_is_changed(comm):
    make = lambda *widths: Sequential(list(map(Linear, widths[:-1], widths[1:])), 1, np.float64, (4,))  # noqa: E731
    with folder(comm) as directory, ProcessGrid(comm, model=2) as grid:
        Training(grid, make(4, 6, 3), sgd).save(directory)
        for other, words in ((make(4, 5, 3), "has shape"), (make(4, 6, 3, 3), "has no network/parameters of 2.weight")):
            training = Training(grid, other, sgd)
            before = training.bits()[0]
            with pytest.raises(ValueError, match=words):
                training.resume(directory)
            assert all(np.array_equal(*pair) for pair in zip(before, training.bits()[0], strict=True))
        training = Training(grid, make(4, 6, 3), partial(SGD, lr=0.05))
        with pytest.raises(ValueError, match="with other settings: its optimizer differs in velocity_lr"):
            training.resume(directory)


@mpi(2, 5)
def test_ranks_agree_one_call_later(comm):
    agreement, own = Agreement(comm), np.array([comm.rank, -comm.rank, 7])
    assert agreement.next(own).tolist() == [0, 0, 0]
    assert agreement.next(own * 2).tolist() == [comm.size - 1, 0, 7]
    assert agreement.next(own * 0).tolist() == [2 * (comm.size - 1), 0, 14]
    assert agreement.close().tolist() == [0, 0, 0] and agreement.close() is None


@mpi(1)
def test_one_rank_agrees_with_itself_at_once(comm):
    agreement = Agreement(comm)
    assert agreement.next([1, 0]).tolist() == [1, 0] and agreement.close() is None


@mpi(1, 3)
def test_checkpoints_come_every_so_many_steps_and_the_best_stays(comm):
    values = iter([0.5, 0.1, 0.4, 0.3, 0.2, 0.6])
    with folder(comm) as directory, ProcessGrid(comm, batch=comm.size) as grid:
        training = Training(grid, images(), sgd)
        options = {"steps": 2, "keep": 2, "value": lambda: next(values)}
        saver = Saver(comm, training.net, training.participants, directory, **options)
        for x, y in minibatches(6) * 2:
            saver.boundary(training.net.step)
            training.net.learn(x, y, training.loss, training.optimizer)
        saver.save(12)
        saver.save(12)  # it has been
        saver.close()
        assert (saver.saved, saver.written) == (6, 6) and saver.seconds > 0
        comm.Barrier()
        found, passed_over = found_in(directory)
        assert [(one.step, one.value) for one in found] == [(12, 0.6), (10, 0.2), (4, 0.1)] and not passed_over
        assert sorted(path.name for path in Path(directory).glob("step-*")) == [one.folder.name for one in reversed(found)]


@mpi(1, 2, 3)
def test_a_checkpoint_that_is_due_by_time_is_made_once_and_nobody_waits_for_the_disk(comm, monkeypatch):
    """The clock of the first rank counts. The last rank's disk is slow: training goes on until it is done."""
    now, disk = [0.0], threading.Event()

    def slowly(*arguments):
        if comm.rank == comm.size - 1:
            assert disk.wait(60)
        return write_shard(*arguments)

    monkeypatch.setattr(saver_module, "write_shard", slowly)
    with folder(comm) as directory, ProcessGrid(comm, batch=comm.size) as grid:
        training = Training(grid, images(), sgd)
        monkeypatch.setattr(saver_module.time, "monotonic", lambda: now[0] if comm.rank == 0 else 0.0)
        saver = Saver(comm, training.net, training.participants, directory, minutes=2)
        late = int(comm.size > 1)
        for step in range(12):
            now[0] = 60.0 * min(step, 3)
            saver.boundary(step)
            assert saver.saved == (step >= 2 + late), step
            if step < 9:
                assert saver.written == 0, step
            elif step == 9:
                disk.set()
                saver._writing.thread.join()
        assert saver.written == 1 and saver._writing is None
        saver.close()
        comm.Barrier()
        assert [one.step for one in found_in(directory)[0]] == [2 + late]


@mpi(2)
def test_trouble_with_older_checkpoints_does_not_cost_the_new_one(comm, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", "others")

    with folder(comm) as directory, ProcessGrid(comm, batch=2) as grid:
        training, heard = Training(grid, images(), sgd), []
        monkeypatch.setattr(saver_module.manifest, "prune", refuse)
        training.save(directory, say=heard.append, value=lambda: float("inf"))
        assert heard == ["warning: older checkpoints can not be deleted: others: Permission denied"] * (comm.rank == 0)
        (found,), _ = found_in(directory)
        assert found.step == 0 and found.value is None


@mpi(2)
def test_whatever_goes_wrong_while_a_file_is_written_is_told(comm, monkeypatch):
    def fail(*arguments):
        raise MemoryError("no room")

    with folder(comm) as directory, ProcessGrid(comm, batch=2) as grid:
        training = Training(grid, images(), sgd)
        if comm.rank == 1:
            monkeypatch.setattr(saver_module, "write_shard", fail)
        with pytest.raises(UserError, match="the checkpoint after step 0 can not be written: .*no room"):
            training.save(directory)
        assert found_in(directory) == ([], {})


@mpi(3)
def test_a_damaged_checkpoint_is_passed_over_by_all_ranks(comm):
    with folder(comm) as directory, ProcessGrid(comm, batch=3) as grid:
        training, heard = Training(grid, images(), sgd), []
        batches = minibatches(3)
        for steps in (1, 2, 3):
            training.train(batches[:steps]).save(directory)
        comm.Barrier()
        found = found_in(directory)[0]
        comm.Barrier()
        if comm.rank == 0:
            path = found[0].folder / "rank-0002.h5"
            path.write_bytes(path.read_bytes()[:-1])
            (found[1].folder / "manifest.json").write_text("{}")
        comm.Barrier()
        checkpoint = newest(comm, directory, heard.append)
        assert checkpoint.manifest == found[2]
        size_of = (found[0].folder / "rank-0002.h5").stat().st_size
        assert heard == [
            f"passed over: {found[1].folder / 'manifest.json'}: damaged",
            f"passed over, since damaged: {found[0].folder / 'rank-0002.h5'} has {size_of} bytes instead of {size_of + 1}",
        ]
        assert checkpoint._shards[0].parts
