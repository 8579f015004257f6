"""The autoencoder with tied weights: its gradients, and its weights in a Linear layer."""

import numpy as np
import pytest

from gridgrad.nn import Context, Linear, Sequential, Sigmoid, TiedAutoencoder, network_summary
from gridgrad.nn.device import to_device, to_host, xp
from tests.nn.test_layers import assert_gradients_equal_finite_differences

LAYERS = [
    lambda: [TiedAutoencoder(7, 4)],
    lambda: [TiedAutoencoder(7, 11), Sigmoid()],
    lambda: [Linear(7, 5), TiedAutoencoder(5, 3), Sigmoid(), TiedAutoencoder(5, 2)],
]


def values(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("layers", LAYERS)
def test_gradients_equal_finite_differences(layers):
    net, x = Sequential(layers(), seed=1, dtype=np.float64), to_device(values((6, 7)))
    net.params[:] += to_device(0.1 * values(net.params.size, 1))  # so that the decoder's bias is not 0
    assert_gradients_equal_finite_differences(net, x, to_device(values(net.forward(x).shape, 2)))


@pytest.mark.parametrize("layers", LAYERS)
def test_the_halves_of_backward_may_run_apart(layers):
    net, x = Sequential(layers(), seed=1), to_device(values((6, 7)).astype(np.float32))
    context, other = Context(), Context()
    dy = to_device(values(net.forward(x, context).shape, 2).astype(np.float32))
    whole = to_host(net.backward(dy.copy(), context, input_gradient=True)).copy(), to_host(net.grads).copy()
    net.grads[:] = 0
    net.forward(x, other)
    dx = to_host(net.input_gradients(dy.copy(), other, input_gradient=True)).copy()
    net.parameter_gradients(other)
    assert np.array_equal(dx, whole[0]) and np.array_equal(to_host(net.grads), whole[1])


def test_minibatches_may_change_their_size_and_be_empty():
    net, context = Sequential([TiedAutoencoder(3, 4), Sigmoid()]), Context()
    for n in (5, 2, 0, 9):
        assert net.forward(xp.ones((n, 3), np.float32), context).shape == (n, 3)
        net.backward(xp.ones((n, 3), np.float32), context)
        assert xp.isfinite(net.grads).all() and bool(net.grads.any()) == (n > 0)


def test_the_encoder_moves_into_a_linear_layer():
    net, encoder = Sequential([TiedAutoencoder(7, 4)], seed=3), Sequential([Linear(7, 4), Sigmoid()], seed=3)
    state = net.state_dict()
    assert {name: value.shape for name, value in state.items()} == {
        "0.weight": (4, 7), "0.bias": (4,), "0.decoder_bias": (7,),
    }  # fmt: skip
    assert all(np.array_equal(value, state[name]) for name, value in encoder.state_dict().items())  # from the same seed
    state = {name: value + 1 for name, value in state.items()}
    net.load_state_dict(state)
    encoder.load_state_dict({name: state[name] for name in encoder.state_dict()})
    x = values((5, 7)).astype(np.float32)
    decoded = encoder.predict(x) @ state["0.weight"] + state["0.decoder_bias"]
    assert np.allclose(net.predict(x), decoded, rtol=1e-5)


def test_what_it_says_of_itself():
    net = Sequential([TiedAutoencoder(7, 4)])
    assert repr(net.layers[0]) == "TiedAutoencoder(7, 4)" and net.output_shape((7,)) == (7,)
    (row,) = network_summary.rows(net, (7,))
    assert (row.parameters, row.flops, row.shape) == (7 * 4 + 4 + 7, 2 * 2 * 7 * 4, (7,))
    for shape in ((6,), (2, 2, 7)):
        with pytest.raises(ValueError, match="takes 7 features but gets"):
            net.output_shape(shape)
    for sizes in ((0, 4), (7, 0), (7, 2.5)):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            TiedAutoencoder(*sizes)
