"""Made-up data: the same numbers whoever asks for them, which can be learnt."""

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.nn import LOSSES, SGD, Linear, Sequential, Tanh


@pytest.mark.parametrize("name", ["random:6x4x3,10,500", "random:20,3,500", "random:8,1,500"])
def test_a_sample_is_a_function_of_its_index(name):
    datasets.prepare(name)
    data = datasets.load(name, dtype=np.float64)
    assert (len(data.train), len(data.test), data.synthetic) == (500, 100, True)
    assert data.classes == ([str(i) for i in range(data.outputs)] if data.outputs > 1 else None)
    whole, every = tuple(slice(0, size) for size in data.sample_shape), np.arange(500)
    x, y = data.train.inputs(every, whole), data.train.targets(every)
    some = np.array([7, 499, 7])
    assert np.array_equal(data.train.inputs(some, whole), x[some]) and np.array_equal(data.train.targets(some), y[some])
    block = tuple(slice(1, size - 1) for size in data.sample_shape)
    assert np.array_equal(data.train.inputs(some, block), x[some][(slice(None), *block)])
    flat = data.reshaped((data.features,)).train
    assert np.array_equal(flat.inputs(some, (slice(2, 5),)), x.reshape(500, -1)[some, 2:5])
    assert abs(x.mean()) < 0.2 and abs(x.std() - 1) < 0.1 and not np.array_equal(x[0], x[1])
    assert data.outputs > 1 or abs(y.std() - 1) < 0.1
    assert np.array_equal(np.asarray(data.test.y), data.test.y[np.arange(100)])


@pytest.mark.parametrize("name", ["random:8,4,400", "random:8,1,400"])
def test_it_can_be_learnt(name):
    data = datasets.load(name)
    net = Sequential([Linear(8, 16), Tanh(), Linear(16, data.outputs)])
    loss, optimizer = LOSSES[data.loss](), SGD(net, lr=0.1)
    x, y = data.train.inputs(np.arange(400), (slice(0, 8),)), data.train.targets(np.arange(400))
    found = [net.learn(x, y, loss, optimizer) for _ in range(200)]
    assert found[-1] < found[0] / 2


@pytest.mark.parametrize(
    "name", ["random:", "random:8", "random:0,1", "random:8x8,3", "random:8,1,0", "random:8,1,2,3", "random:²,1"]
)
def test_bad_names_are_refused(name):
    with pytest.raises(ValueError, match=f"data set '{name}': use random:SHAPE,OUTPUTS.*such as random:32x32x3,10"):
        datasets.prepare(name)
    with pytest.raises(ValueError, match="use random:SHAPE"):
        datasets.load("random:2000000x2000000x2000000,3")
