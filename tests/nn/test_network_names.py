import pytest

from gridgrad.nn import Dropout, Linear, Tanh
from gridgrad.nn.zoo.network_names import build


def test_a_spec_builds_what_it_says():
    net = build("mlp:64,32,tanh,dropout=0.25", 10, 3)
    assert [type(layer) for layer in net.layers] == [Linear, Tanh, Dropout, Linear, Tanh, Dropout, Linear]
    assert [(layer.inputs, layer.outputs) for layer in net.layers if isinstance(layer, Linear)] == [(10, 64), (64, 32), (32, 3)]
    assert len(build("mlp:relu", 10, 3).layers) == 1


def test_a_published_network_may_have_another_dropout():
    dropouts = lambda spec: [l.p for l in build(spec, (32, 32, 3), 10).layers if isinstance(l, Dropout)]  # noqa: E731, E741
    assert dropouts("vgg16") == [0.5, 0.5]
    assert dropouts("vgg16,dropout=0.25") == [0.25, 0.25]
    for wrong in ("lenet5,dropout=0.2", "vgg16,dropout=1", "vgg16,dropout=x", "vgg16,width=3"):
        with pytest.raises(ValueError, match="out of place|must be a number in|neither"):
            build(wrong, (32, 32, 3), 10)


BAD = ["", "mlp", "mlp:", "mlp:64", "mlp:64,swish", "mlp:0,relu", "mlp:-3,relu", "mlp:6.5,relu", "mlp:relu,64", "vgg99"]


@pytest.mark.parametrize("spec", [*BAD, "mlp:1_0,relu", "mlp:\u0663,relu", "mlp:8,relu,dropout=2", "mlp:8,relu,dropout=x"])
def test_bad_specs_are_refused(spec):
    with pytest.raises(ValueError, match="net|width|Dropout"):
        build(spec, 4, 1)


@pytest.mark.parametrize(
    ("spec", "shape", "outputs"),
    [
        ("mlp:100000000,relu", 4, 1), (f"mlp:{'9' * 30},relu", 4, 1), (f"mlp:{'8,' * 5000}relu", 4, 1),
        ("mlp:8,relu", 10**12, 1), ("mlp:8,relu", 4, 10**12), ("vgg16", (10**9, 10**9, 3), 10),
    ],
)  # fmt: skip
def test_networks_that_no_machine_holds_are_refused_before_they_are_built(spec, shape, outputs):
    with pytest.raises(ValueError, match="at most"):
        build(spec, shape, outputs)
