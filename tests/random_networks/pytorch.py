"""A serial network computes and learns as PyTorch's of the same layers; its state has the same names and shapes."""

from dataclasses import replace
from math import prod

import numpy as np
import torch
from torch.nn.functional import linear

from gridgrad.experiments.benchmarks import torch_peer
from gridgrad.nn import OPTIMIZERS, BatchNorm, Context, Dropout, Linear, Sequential
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.learning_rates import parse_schedule
from gridgrad.nn.sequence import shapes
from gridgrad.parallel.placement.partition import size
from tests.parallel.equality import error, micro_batches_of
from tests.random_networks.case import BEFORE, RATES, STEPS, TINY
from tests.random_networks.checks import NUDGE, TOLERANCE, within_rounding

UPDATES = 30
COSINE = 25  # updates after which a cosine is 0, so that some follow
PEERS = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
}  # fmt: skip


class SparseLinear(torch.nn.Linear):
    """A Linear layer whose weights outside of a pattern, (inputs, outputs), are zero and get no gradient."""

    def __init__(self, pattern, bias):
        super().__init__(*pattern.shape, bias)
        self.register_buffer("pattern", torch.from_numpy(pattern.T.copy()), persistent=False)
        with torch.no_grad():
            self.weight.mul_(self.pattern)

    def forward(self, x):
        return linear(x, self.weight * self.pattern, self.bias)


class TiedAutoencoder(torch.nn.Linear):
    """A Linear layer, a sigmoid, and the transpose of the same weights with a bias of its own."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.decoder_bias = torch.nn.Parameter(torch.zeros(inputs))

    def forward(self, x):
        return linear(torch.sigmoid(super().forward(x)), self.weight.T, self.decoder_bias)


torch_peer.MODULES |= {
    "SparseLinear": lambda layer: SparseLinear(layer.pattern, layer.has_bias),
    "TiedAutoencoder": lambda layer: TiedAutoencoder(layer.inputs, layer.hidden),
}


def passes_equal_pytorchs(case):
    """Outputs, losses, gradients, statistics and parameters, in each step of training, and what evaluations give then."""
    case = accepted(case)
    found = our_steps(case)
    nudged = lambda: [distance(our_steps(case, sign * NUDGE[case.dtype]), found) for sign in (1, -1)]  # noqa: E731
    within_rounding(distance(found, their_steps(case)), nudged, case)


def accepted(case):
    """The Case without minibatches that PyTorch refuses: in training, a BatchNorm can not have one value a channel.

    What ours does then is in tests/nn/layers/test_layers.py. Nor does an optimizer here divide by gradients that are zero but
    for rounding: it moves parameters in a direction that rounding decides.
    """
    name, options = case.optimizer
    if name != "sgd":
        case = replace(case, optimizer=(name, options | {"eps": max(options.get("eps", 0.0), TINY["eps"])}))
    norms = [shape for layer, shape, _ in shapes(case.alike.layers, case.shape) if isinstance(layer, BatchNorm)]
    if all(prod(shape[:-1]) > 1 for shape in norms):
        return case
    return replace(case, micro_batches=1, batch_sizes=tuple(max(2, size) for size in case.batch_sizes))


# ----- steps of training, as a list of {name: array}: outputs and losses, gradients, the state, and an evaluation


def distance(found, expected):
    return max(error(one, other) for one, other in zip(found, expected, strict=True))


def our_steps(case, nudge=0.0):
    """nudge: by how much, relatively, the parameters are changed before."""
    net, loss, context, found = case.network(), case.make_loss(), Context(), []
    net.load_state_dict(case.state())
    net.params[...] *= 1 + nudge * to_device(case.rng.choice((-1, 1), net.params.size))
    optimizer = case.make_optimizer(net)
    for x, y in case.batches():
        passes, ends, gradients = {}, {}, 0.0
        for part in micro_batches_of(len(x), case.micro_batches):
            outputs = net.forward(to_device(x[part]), context, size(part), part.start, minibatch_size=len(x))
            passes[f"outputs {part}"] = to_host(outputs).copy()
            passes[f"loss {part}"] = np.array(loss.forward(outputs, to_device(y[part]), context))
            dy = loss.backward(context)
            ends[f"output {part}"] = to_host(dy).copy()
            ends[f"input {part}"] = to_host(net.backward(dy, context, input_gradient=True)).copy()
            gradients = gradients + net.grads
        net.grads[:] = gradients
        found += [passes, ends | gradients_of(net)]
        optimizer.step()
        net.step += 1
        found += [net.state_dict(), {"evaluation": net.predict(x)}]
    return found


def gradients_of(net):
    """{name: gradient}, as in a state_dict."""
    return {f"{layer.name}.{p.name}": to_host(p.grad).transpose(p.torch_axes).copy() for layer, p in net.parameters}


def their_steps(case):
    net, found = case.network(), []
    net.load_state_dict(case.state())
    model, context = torch_peer.network(net), Context()
    drop_as_ours(net, model, context)
    parameters = dict(model.named_parameters())
    optimizer = peer_of(case, parameters.values())
    name, options = case.optimizer
    lrs = rates(case.lr, RATES[name], BEFORE + 2 * STEPS)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=case.smoothing) if case.loss == "cross-entropy" else torch.nn.MSELoss()
    for x, y in case.batches():
        passes, ends = {}, {}
        model.train()
        optimizer.zero_grad()
        for part in micro_batches_of(len(x), case.micro_batches):
            context.begin(net.seed, net.step, size(part), part.start, len(x))
            samples = torch_peer.layout(x[part]).requires_grad_()
            outputs = model(samples)
            outputs.retain_grad()
            value = loss(outputs, torch.from_numpy(y[part])) * size(part) / len(x)
            value.backward()
            passes |= {f"outputs {part}": outputs.detach().numpy(), f"loss {part}": value.detach().numpy()}
            ends |= {f"output {part}": outputs.grad.numpy(), f"input {part}": as_ours(samples.grad)}
        found += [passes, ends | {name: p.grad.numpy().copy() for name, p in parameters.items()}]
        update(optimizer, lrs[net.step], options)
        net.step += 1
        model.eval()
        with torch.no_grad():
            found += [state_of(model), {"evaluation": model(torch_peer.layout(x)).numpy()}]
    return found


def drop_as_ours(net, model, context):
    """Let the Dropout modules of a model drop what the layers of a network do. context: of the network, begun in each pass."""
    for layer in net.leaves():
        if isinstance(layer, Dropout):
            module = model.get_submodule(layer.name)
            module.p = 0.0
            module.register_forward_hook(
                lambda module, _, x, layer=layer: x * mask(layer, x, context) if module.training else x
            )


def mask(layer, x, context):
    """What a Dropout layer of ours makes of ones, in the shape of PyTorch's x."""
    return torch_peer.layout(to_host(layer.forward(to_device(np.ones_like(as_ours(x.detach()))), context)))


def as_ours(array):
    """One of PyTorch's arrays as we have it: `torch_peer.layout` the other way round."""
    array = array.numpy()
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if array.ndim == 4 else array


def state_of(model):
    """PyTorch's state as host arrays, without what ours has not."""
    state = model.state_dict()
    return {name: value.numpy().copy() for name, value in state.items() if not name.endswith("num_batches_tracked")}


# ----- names and shapes


def states_are_exchanged(case):
    """Each takes the state of the other, and then has it, bit by bit."""
    case = replace(case, dtype="float64")
    net = case.network()
    torch.manual_seed(case.seed)
    model = torch_peer.chain(net.layers).double()
    for buffer in model.buffers():
        if buffer.dtype == torch.float64:
            buffer.uniform_(0.5, 2)
    net.load_state_dict({name: value.numpy() for name, value in model.state_dict().items()})
    equal_states(net.state_dict(), state_of(model), case)
    net.load_state_dict(case.state())
    model.load_state_dict({name: torch.from_numpy(value) for name, value in net.state_dict().items()})
    equal_states(net.state_dict(), state_of(model), case)


def equal_states(ours, theirs, case):
    assert ours.keys() == theirs.keys(), case
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype and np.array_equal(value, theirs[name]), (name, case)


# ----- optimizers and schedules


def updates_equal_pytorchs(case):
    """The parameters after each of many updates with made-up gradients, of many sizes and now and then 0.

    Each update starts from equal parameters; then once more, each starts from what the one before has left, so that what adds
    up is seen too. With a beta2 of 0 Adam divides by the newest gradient alone, which magnifies rounding: only the first.
    """
    updates_equal(case, drift=False)
    if case.optimizer[1].get("betas", (0.9, 0.999))[1] > 0:
        updates_equal(case, drift=True)


def updates_equal(case, drift):
    """A parameter is measured by the largest number it has been, at least 1: an update may be far larger than what it leaves.
    drift: whether ours keep their own parameters from update to update, in place of taking PyTorch's."""
    net, (name, options) = Sequential([Linear(1 + case.seed % 100, 7)], case.seed, np.float64), case.optimizer
    theirs = torch.nn.Parameter(torch.from_numpy(to_host(net.params).copy()))
    peer, lrs = peer_of(case, [theirs]), rates(case.lr, RATES[name], COSINE)
    schedule = parse_schedule(case.lr, RATES[name], COSINE)
    assert np.allclose([schedule(step) for step in range(UPDATES)], lrs, rtol=1e-12, atol=1e-15), case
    rng, largest = case.rng, 1.0
    ours = OPTIMIZERS[name](net, schedule, **options)
    for step in range(UPDATES):
        gradient = rng.standard_normal(net.size) * 10.0 ** rng.uniform(-3, 3, net.size) * (rng.random(net.size) < 0.9)
        net.grads[:], theirs.grad = to_device(gradient), torch.from_numpy(gradient.copy())
        ours.step()
        net.step += 1
        update(peer, lrs[step], options)
        found, expected = to_host(net.params), theirs.detach().numpy()
        largest = np.maximum(largest, np.abs(expected))
        assert (np.abs(found - expected) <= TOLERANCE[case.dtype] * largest).all(), (step, case)
        if not drift:
            net.params[:] = to_device(expected)


def peer_of(case, parameters):
    """PyTorch's optimizer of a Case, for some of its parameters."""
    name, options = case.optimizer
    options = {option: value for option, value in options.items() if option not in ("l1", "clip_norm")}  # see `update`
    decay = options.pop("l2", 0.0) or options.pop("weight_decay", 0.01 if name == "adamw" else 0.0)
    return PEERS[name](parameters, lr=RATES[name], weight_decay=decay, **options)


def update(peer, lr, options):
    """One step of PyTorch's optimizer with a learning rate. It knows no L1 penalty, whose gradient is added here."""
    if options.get("clip_norm"):
        torch.nn.utils.clip_grad_norm_([p for group in peer.param_groups for p in group["params"]], options["clip_norm"])
    for group in peer.param_groups:
        group["lr"] = lr
        for p in group["params"]:
            p.grad += options.get("l1", 0.0) * p.detach().sign()
    peer.step()


def rates(text, lr, total):
    """The learning rates of UPDATES steps by PyTorch's schedulers. Where a cosine has ended, they would rise again: 0 there."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr)
    schedulers, ends = [], UPDATES
    for part in text.split(","):
        kind, *numbers = part.split(":")
        if kind == "step":
            schedulers.append(torch.optim.lr_scheduler.StepLR(optimizer, int(numbers[0]), float(numbers[1])))
        elif kind == "cosine":
            schedulers.append(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total))
            ends = total
        elif kind == "warmup" and int(numbers[0]):
            steps = int(numbers[0])
            schedulers.append(torch.optim.lr_scheduler.LinearLR(optimizer, 1 / (steps + 1), total_iters=steps))
    found = []
    for step in range(UPDATES):
        found.append(optimizer.param_groups[0]["lr"] if step < ends else 0.0)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return found
