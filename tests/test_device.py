"""One module decides which array library is in use; what runs on the stand-in for CuPy runs with host and device apart."""

import os
import shutil
import subprocess
import sys
import weakref
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from gridgrad import nn
from gridgrad.nn import device
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.graphs import Graph, Graphs
from gridgrad.nn.kernels.kernel_table import kernels, use
from gridgrad.nn.observer import Observer
from gridgrad.parallel import C, Partition, ProcessGrid, Redistribute, Replicate, Shard, distribute, use_device
from gridgrad.parallel.grid.devices import Staging, is_cuda_aware, ranks_on_cpus, staging
from gridgrad.parallel.sync.overlapped import OverlappedReduction
from tests import standin
from tests.elementwise import NEEDS_COMPILER
from tests.mpi import mpi

ROOT = Path(__file__).parent.parent
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason=NEEDS_COMPILER)


@pytest.fixture(autouse=True)
def afterwards_the_device_of_the_tests():
    yield
    device.use(standin.name())
    standin.forget()


# ----- nn/device.py


def test_xp_is_the_library_in_use_and_the_cpu_moves_nothing():
    device.use("cpu")
    array = np.ones(3)
    assert xp.add is np.add and xp.is_cpu and device.describe() == "cpu"
    assert to_device(array) is array and to_host(array) is array
    assert device.empty(5, np.float32).ctypes.data % device.ALIGNMENT == 0
    with pytest.raises(ValueError, match="--tf32"):
        device.use("cpu", tf32=True)
    device.use("stand-in")
    assert xp.add is standin.library.add and not xp.is_cpu and not hasattr(xp, "divmod")


@pytest.fixture
def cupy(monkeypatch):
    """An object that agrees to everything, in the place of CuPy."""
    found = MagicMock()
    monkeypatch.setitem(sys.modules, "cupy", found)
    monkeypatch.setitem(sys.modules, "cupyx", MagicMock())
    return found


def test_a_missing_cupy_or_gpu_is_said_in_one_line(cupy, monkeypatch):
    cupy.cuda.runtime.getDeviceCount.side_effect = RuntimeError("cudaErrorNoDevice:\nno CUDA-capable device")
    for words in ("NoDevice: no CUDA", "CuPy is not installed"):
        with pytest.raises(ValueError, match=f"^--device gpu: .*{words}.*--device cpu$"):
            device.use("gpu")
        assert device.gpus() == []
        monkeypatch.setitem(sys.modules, "cupy", None)
    device.use("auto", tf32=True)
    assert device.describe() == "cpu" and xp.add is np.add


def test_ranks_take_the_gpus_in_turn(cupy, monkeypatch):
    cupy.cuda.runtime.getDeviceCount.return_value = 3
    monkeypatch.setenv("CUPY_TF32", "0")
    device.use("gpu", number=4, tf32=True)
    cupy.cuda.Device.assert_called_once_with(1)
    assert os.environ["CUPY_TF32"] == "1"
    host, array = np.ones(3), MagicMock()
    assert to_device(host) is cupy.asarray.return_value and to_host(array) is cupy.asnumpy.return_value
    to_device(host, array)
    array.set.assert_called_once_with(host)
    to_host(array, host)
    array.get.assert_called_once_with(out=host)


@mpi(2)
def test_every_rank_gets_a_device(comm):
    use_device(comm, "stand-in", tf32=True)
    assert device._device.number == comm.rank and device._device.tf32
    for wrong in ("tpu", "cpu,tpu", "hybrid,cpu", "cpu,cpu,stand-in"):
        with pytest.raises(ValueError, match=f"device.*{wrong}"):
            use_device(comm, wrong)


@mpi(3)
def test_a_list_names_the_devices_by_rank(comm):
    """It is repeated. The ranks on devices take those of their machine in turn, and rounding factors is for them alone."""
    use_device(comm, "stand-in,cpu", tf32=True)
    assert comm.allgather(device.describe()) == ["stand-in", "cpu", "stand-in"] and ranks_on_cpus(comm) == [1]
    assert xp.is_cpu or (device._device.number, device._device.tf32) == (comm.rank // 2, True)
    use_device(comm, "cpu")
    assert ranks_on_cpus(comm) == [0, 1, 2]


@mpi(3)
def test_a_hybrid_job_uses_each_gpu_once_and_one_without_its_gpu_is_refused_on_all(comm, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ValueError, match="^--device gpu: CuPy is not installed"):
        use_device(comm, "cpu,gpu")
    monkeypatch.setitem(device.KINDS, "gpu", standin.Device)
    cases = [  # (the GPUs that each rank sees, the number of the one among them that it gets)
        ([["a", "b"]] * 3, [0, 1, None]),
        ([["b"], ["a", "b"], ["a", "b", "c"]], [0, 0, 2]),
        ([[], ["a"], ["a"]], [None, 0, None]),
    ]
    for seen, numbers in cases:
        monkeypatch.setattr(device, "gpus", lambda seen=seen: seen[comm.rank])
        use_device(comm, "hybrid", tf32=True)
        assert (None if xp.is_cpu else device._device.number) == numbers[comm.rank], seen


# ----- the stand-in


@pytest.mark.parametrize(
    "mix",
    [
        lambda host, array: xp.add(array, host),
        lambda host, array: array + host,
        lambda host, array: array.__setitem__(0, host),
        lambda host, array: array[np.array([0, 1])],
        lambda host, array: host.__setitem__(slice(None), array),
        lambda host, array: np.asarray(array),
    ],
)
def test_the_stand_in_keeps_host_and_device_apart(mix):
    device.use("stand-in")
    host = np.arange(3.0)
    with pytest.raises((TypeError, ValueError)):
        mix(host, to_device(host))
    assert np.array_equal(host, np.arange(3.0))


@needs_compiler
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((np.ones(3), np.ones(3), 1, np.zeros(3)), None),
        ((np.ones(3, np.float32), np.ones(3), 1, np.zeros(3)), TypeError),
        ((np.ones(3), np.ones(1), 1, np.zeros(3)), IndexError),
        ((np.ones(3), np.ones(3), 1, np.zeros(1)), ValueError),
        ((np.ones(3), np.ones(3), np.ones(1), np.zeros(3)), TypeError),
    ],
)
def test_kernels_of_the_stand_in_refuse_what_cupy_refuses(arguments, error):
    device.use("stand-in")
    kernel = xp.ElementwiseKernel("T x, raw T y, int32 z", "T out", "out = x + y[i] + z")
    arguments = [to_device(one) if isinstance(one, np.ndarray) else one for one in arguments]
    with pytest.raises(error) if error else nullcontext():
        assert kernel(*arguments).tolist() == kernel(*arguments[:3]).tolist() == [3, 3, 3]


@needs_compiler
@pytest.mark.parametrize(
    "layers",
    [
        lambda: [nn.BatchNorm(8), nn.ReLU()],
        lambda: [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d((2, 3), 1), nn.AvgPool2d((11, 10))],
        lambda: [nn.MaxPool2d((17, 18), 1)],  # whose pixels take more than a byte to number
        lambda: [nn.Dropout(0.5), nn.GELU(), nn.BatchNorm(8), nn.Tanh(), nn.Sigmoid()],
    ],
)
def test_layers_compute_on_a_device_what_they_do_on_a_cpu(layers):
    """With equal values in windows, and values that are no numbers."""
    use(replace(kernels(), piece=640))  # less than the input
    found = []
    for name in "cpu", "stand-in":
        device.use(name)
        standin.forget()
        net, random = nn.Sequential(layers(), seed=1, dtype=np.float64), np.random.default_rng(0)
        x = random.integers(-3, 4, (32, 24, 24, 8)).astype(np.float64)
        net.allocate()
        context = nn.Context()
        y = net.forward(to_device(x), context)
        dx = net.backward(to_device(random.standard_normal(y.shape)), context, input_gradient=True)
        x[0, 5, 5] = np.nan
        found.append([*map(to_host, (y, dx, net.grads)), net.predict(x), *net.state_dict().values()])
    for on_cpu, on_device in zip(*found, strict=True):
        assert np.allclose(on_cpu, on_device, rtol=1e-12, atol=1e-12, equal_nan=True)


# ----- parallel/grid/devices.py


@pytest.mark.parametrize(("kinds", "aware"), [(None, False), ("mpi,cuda", True), ("cuda:host", False)])
def test_what_the_user_says_of_the_mpi_library_counts_else_what_it_says_itself(monkeypatch, kinds, aware):
    library = MagicMock()
    library.COMM_WORLD.Get_info.return_value.Get.return_value = kinds
    monkeypatch.setattr("gridgrad.parallel.grid.devices.MPI", library)
    assert is_cuda_aware({}) == aware
    assert is_cuda_aware({"GRIDGRAD_CUDA_AWARE": "1"}) and not is_cuda_aware({"GRIDGRAD_CUDA_AWARE": "0"})
    with pytest.raises(ValueError, match="GRIDGRAD_CUDA_AWARE must be 0 or 1"):
        is_cuda_aware({"GRIDGRAD_CUDA_AWARE": "yes"})


@pytest.mark.parametrize("direct", [True, False])
def test_device_arrays_pass_through_only_where_mpi_takes_them(monkeypatch, direct):
    monkeypatch.setattr("gridgrad.parallel.grid.devices.is_cuda_aware", lambda: direct)
    device.use("stand-in")
    array, stage = to_device(np.arange(6.0).reshape(2, 3)), Staging()
    sent, received = stage.outgoing(array), stage.incoming(array)
    assert (sent is array) == (received is array) == direct
    if not direct:
        assert sent.tolist() == [[0, 1, 2], [3, 4, 5]]
        received[...] = 9
        stage.arrived(received, array)
        assert to_host(array).tolist() == [[9, 9, 9], [9, 9, 9]]


@mpi(3)
def test_collectives_of_device_arrays_give_what_those_of_host_arrays_do(comm):
    """Each once on the host and twice on the device: one copy each way, the device at rest, no third buffer."""
    device.use("stand-in")
    rank, counts = comm.rank, [2, 0, 3]
    rng = np.random.default_rng(rank)
    own, whole, block = (rng.standard_normal(n) for n in (counts[rank], 5, counts[rank]))
    squares = [[1, 2, 0], [1, 0, 1], [3, 1, 1]]  # elements from rank to rank
    columns = [row[rank] for row in squares]
    parts = rng.standard_normal(sum(squares[rank]))
    with ProcessGrid(comm, model=3) as grid:
        group = grid.group("model")
        first = rank == 0
        cases = [  # (collective, what it reads, what it writes, how they are copied)
            (lambda x, out: group.all_gather(x, out, counts, "test"), own, np.zeros(5), (1, 1)),
            (lambda x, out: group.reduce_scatter(x, out, counts, "test"), whole, block, (1, 1)),
            (lambda x, out: group.all_to_all(x, squares[rank], out, columns, "test"), parts, np.zeros(sum(columns)), (1, 1)),
            (lambda x, out: group.all_reduce(out, "test"), own, whole, (1, 1)),
            (lambda x, out: group.broadcast(out, "test"), own, whole, (1, 1)),
            (lambda x, out: group.scatter(x if first else None, counts, out, "test"), whole, block, (first, 1)),
            (lambda x, out: group.gather(x, out if first else None, counts, "test"), own, np.zeros(5), (1, first)),
        ]
        for collective, x, out, copies in cases:
            expected = out.copy()
            collective(x, expected)
            for _ in range(2):
                on_device = to_device(x), to_device(out)
                standin.Device.calls.clear()
                collective(*on_device)
                calls = standin.Device.calls
                assert (calls["to host"], calls["to device"], calls["synchronised"]) == (*copies, 1), collective
                assert np.array_equal(to_host(on_device[1]), expected), collective
    assert len(staging._buffers) == 2


@mpi(3)
def test_arrays_that_travel_together_have_buffers_of_their_own(comm, monkeypatch):
    """Of what several ranks get there is one copy, of what stays at its rank none."""
    monkeypatch.setenv("GRIDGRAD_CUDA_AWARE", "0")
    device.use("stand-in")
    with ProcessGrid(comm, model=3) as grid:
        sent, received = to_device(np.full(2, 1.0 + comm.rank)), [to_device(np.zeros(2)) for _ in range(3)]
        standin.Device.calls.clear()
        grid.group("model").start_point_to_point([sent] * 3, received, "test", "hand out").wait()
        assert (standin.Device.calls["to host"], standin.Device.calls["to device"]) == (1, 2)
        assert [to_host(one)[1] for one in received] == [rank + 1 if rank != comm.rank else 0 for rank in range(3)]


# ----- graphs


def layers():
    return [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(128, 9),
        nn.ReLU(),
        nn.Linear(9, 5),
    ]


def trained(comm, monkeypatch, graphs, grid, make_optimizer, **options):
    """(losses, weights, what was counted of communication, replays) of ten steps, every fourth with a smaller minibatch, on the
    stand-in, or on the GPU that runs the tests."""
    monkeypatch.setenv("GRIDGRAD_GRAPH", graphs)
    use_device(comm, "gpu" if standin.name() == "gpu" else "stand-in")
    replays, replay = [], Graph.replay
    monkeypatch.setattr(Graph, "replay", lambda graph, inputs: (replays.append(graph), replay(graph, inputs))[1])
    with ProcessGrid(comm, **grid) as made:
        net = distribute(nn.Sequential(layers(), seed=1, input_shape=(8, 8, 3)), made, **options)
        net.allocate()
        loss, optimizer, random, losses = nn.SoftmaxCrossEntropy(), make_optimizer(net), np.random.default_rng(0), []
        trainer = net.trainer(loss, optimizer)
        for step in range(10):
            count = 5 if step % 4 == 3 else 11
            x, y = random.standard_normal((count, 8, 8, 3)), random.integers(0, 5, count)
            if net.steps_under_way > 1:
                losses += trainer.step([net.blocks(x, y)], count)
            else:
                losses.append(net.learn(x, y, loss, optimizer))
        losses += trainer.flush()
        counted = {key: (record.calls, record.bytes) for key, record in made.tally.records.items()}
        return losses, net.state_dict(everywhere=True), counted, len(replays)


@mpi(1, 2, 3, 5, 8)
def test_steps_as_graphs_give_the_same_bits_and_messages(comm, monkeypatch):
    """A graph may not read back, nor compute while it is recorded; what changes from step to step lies in device memory."""
    sgd = lambda net: nn.SGD(net, lr=lambda step: 0.1 / (1 + step), momentum=0.9, l2=0.01)  # noqa: E731
    adamw = lambda net: nn.AdamW(net, 0.01, l1=0.01)  # noqa: E731
    cases = [({axis: comm.size}, optimizer, {}) for axis in ("batch", "model", "height") for optimizer in (sgd, adamw)]
    overlap = lambda net: OverlappedReduction(net, "sharded", "same", 1)  # noqa: E731
    cases += [({"batch": comm.size}, sgd, {"reduction": overlap, "micro_batches": count}) for count in (1, 3)]
    if comm.size > 1:
        names = "1f1b", "zb-h1", "zbv", "async:3", "async:2:nostash"
        cases += [({"stage": comm.size}, sgd, {"pipeline": name, "micro_batches": 3 - 2 * ("async" in name)}) for name in names]
    for case in cases:
        plain, graphs = (trained(comm, monkeypatch, wanted, *case[:2], **case[2]) for wanted in ("0", "1"))
        assert plain[0] == graphs[0] and plain[2] == graphs[2], case
        assert all(np.array_equal(plain[1][name], graphs[1][name]) for name in plain[1]), case
        assert plain[3] == 0 < graphs[3], case


@mpi(2)
def test_ranks_with_and_without_graphs_train_together(comm, monkeypatch):
    """On all of them the sum of the loss begins between the passes, here beside gathers that do not block either."""
    monkeypatch.setattr("gridgrad.parallel.grid.group.LONG_GATHER", 0)
    losses = []
    for devices in "stand-in,cpu", "cpu":
        standin.forget()
        use_device(comm, devices)
        with ProcessGrid(comm, model=2) as grid:
            net = distribute(nn.Sequential([nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)], seed=1, dtype=np.float64), grid)
            loss, optimizer, x = nn.MSE(), nn.SGD(net, lr=0.1), np.random.default_rng(0).standard_normal((7, 6))
            losses.append([net.learn(x, x[:, :5], loss, optimizer) for _ in range(5)])
    assert np.allclose(*losses, rtol=1e-12)


@mpi(2)
def test_a_graph_keeps_what_its_moves_index_with(comm, monkeypatch):
    monkeypatch.setenv("GRIDGRAD_GRAPH", "1")
    monkeypatch.setattr("gridgrad.nn.graphs.PLAIN_RUNS", 2)  # as the indices come to the device when they are first used
    use_device(comm, "stand-in")
    with ProcessGrid(comm, model=2) as grid:
        channels = Partition.of(5, [np.array([0, 3]), np.array([1, 2, 4])])
        layer = Redistribute(grid.group("model"), Shard(C, channels), Replicate(), (5,))
        context, x = nn.Context(batch_size=3), to_device(np.arange(15.0).reshape(3, 5)[:, channels.part(comm.rank)])
        for _ in range(4):
            found = context.as_graph(partial(layer.forward, context=context), layer, x)
        moves = [weakref.ref(move) for move in layer._steps.values()]
        layer._steps.clear()  # as a layer does that has had arrays of many shapes
        assert moves and all(move() for move in moves)
        assert np.array_equal(to_host(found), np.arange(15.0).reshape(3, 5))


def test_a_function_that_reads_back_or_depends_on_the_host_is_no_graph(monkeypatch):
    monkeypatch.setenv("GRIDGRAD_GRAPH", "1")
    device.use("stand-in")
    cases = {
        "reads": lambda x: xp.add(x, float(x[0])),
        "copies": lambda x: xp.add(x, to_device(to_host(x))),
        "fits": lambda x: x + x,
    }
    for name, function in cases.items():
        graphs, x = Graphs(), to_device(np.arange(3.0))
        results = [to_host(graphs.run(function, name, x)).tolist() for _ in range(4)]
        assert results == [to_host(function(x)).tolist()] * 4
        assert [type(found) for found in graphs._known.values()] == [Graph if name == "fits" else type(None)]
    monkeypatch.setenv("GRIDGRAD_GRAPH", "yes")
    with pytest.raises(ValueError, match="GRIDGRAD_GRAPH must be 0 or 1"):
        device.use("stand-in")


@pytest.mark.parametrize("reads", ["first", "second", "second, by to_host", "neither"])
def test_a_function_that_follows_finds_what_the_newest_one_left(monkeypatch, reads):
    """Whether they are graphs or not, with inputs of two sizes and two keys in turn, also after a vain recording."""
    monkeypatch.setenv("GRIDGRAD_GRAPH", "1")
    device.use("stand-in")
    left = {}
    graphs = Graphs(attributes=lambda: [left])

    def first(x):
        left["doubled"], left["size"] = x + x, len(x)
        return xp.add(x, float(x[0])) if reads == "first" else x

    def second(y):
        read = {"second": lambda: float(y[0]), "second, by to_host": lambda: to_host(y)[0].item()}.get(reads, lambda: y)
        doubled, left["doubled"] = left["doubled"], None
        return doubled + read()

    for step in range(20):
        size = 2 + step % 2
        x, y = (to_device(np.arange(float(size)) + step * number) for number in (1, 10))
        graphs.run(first, f"first {step % 4 // 2}", x)
        found, host = graphs.run(second, "second", y, follows=True), [*map(to_host, (x, y))]
        assert np.array_equal(to_host(found), 2 * host[0] + (host[1][0] if "second" in reads else host[1]))
        assert left == {"doubled": None, "size": size}
    assert {type(found) for found in graphs._known.values()} == {Graph if reads in ("second", "neither") else type(None)}


class Timed(Observer):
    """Hears of every pass, so that it runs as it is."""

    def begin(self, thing, phase, context):
        pass


class Written(Observer):
    def __init__(self):
        self.layers = []

    def written(self, layer):
        self.layers.append(layer.name)


def small_network(monkeypatch, graphs):
    """(a network on the stand-in, a loss)."""
    monkeypatch.setenv("GRIDGRAD_GRAPH", graphs)
    device.use("stand-in")
    net = nn.Sequential([nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)])
    net.allocate()
    return net, nn.MSE()


def test_an_observer_of_passes_may_come_or_go_between_two_graphs(monkeypatch):
    """As in asynchronous pipelines, where a backward pass may be steps after its forward pass."""
    gradients = {"0": [], "1": []}
    for graphs, found in gradients.items():
        (net, loss), context, random = small_network(monkeypatch, graphs), nn.Context(), np.random.default_rng(0)
        forward, backward = partial(net.passes.loss, loss, context=context), partial(net.passes.backward_from, loss, context)
        for step in range(9):
            x, y = (to_device(random.standard_normal((5, width), np.float32)) for width in (3, 2))
            context.begin(seed=0, step=step, batch_size=5)
            context.attach(Timed() if step == 4 else None)
            context.as_graph(forward, (net.passes, loss), x, y)
            context.attach(Timed() if step == 6 else None)
            context.as_graph(backward, (), follows=True)
            found.append(to_host(net.grads).copy())
    assert np.array_equal(gradients["0"], gradients["1"])


def test_who_hears_of_written_gradients_does_so_while_it_is_registered(monkeypatch):
    """Not those observers that were registered when a graph was recorded."""
    net, loss = small_network(monkeypatch, "1")
    optimizer, x, y = nn.SGD(net, 0.1), np.ones((5, 3), np.float32), np.zeros((5, 2), np.float32)
    for observer in None, Written(), Written():
        if observer:
            net.observe(observer)
        for _ in range(4):
            net.learn(x, y, loss, optimizer)
        if observer:
            net.forget(observer)
            assert observer.layers == ["2", "0"] * 4


# ----- everything, on the stand-in


LARGE = "vgg16 or alexnet or resnet18 or googlenet or test_kernels or test_gemm or tensors_of_pytorch"
RANDOM = "tests/random_networks"
PLACED = "tests/parallel/placement", RANDOM, "-m", "mpi and not long", "-k"


@needs_compiler
@pytest.mark.skipif(standin.name() != "cpu", reason="the suite runs on a device already")
@pytest.mark.parametrize(
    ("devices", "tests"),
    [
        ("stand-in", ["tests/nn", "-k", f"not ({LARGE})"]),
        ("stand-in", [*PLACED, "[2]"]),
        ("stand-in,cpu", [RANDOM, "-m", "mpi and not long", "-k", "[2]"]),
    ],
    ids=["nn", "parallel", "hybrid"],
)
def test_the_suite_passes_on_the_stand_in(devices, tests):
    """In the hybrid jobs every axis has ranks on different devices."""
    environment = os.environ | {"GRIDGRAD_TEST_DEVICE": devices}
    arguments = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    finished = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-1000:]
