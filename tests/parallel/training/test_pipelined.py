"""Pipelines on several ranks: what is refused, and that all ranks end together, with nothing left behind.

That they train as the serial network does, and send what was predicted, is in random_networks.
"""

import numpy as np
import pytest

from gridgrad.nn import MSE, SGD, Context, SoftmaxCrossEntropy
from gridgrad.nn.divergence import Diverged as SerialDiverged
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi
from tests.parallel.pipelines import minibatches, mlp, momentum, parts_of, serial_net

# ----- numbers that are not finite


def last_rank_alone(comm):
    """The Owners of `mlp` that give most to the first rank, and the loss to the last one."""
    layers = [layer for layer in serial_net(mlp).leaves() if layer.kind]
    rows = {layer.name: np.maximum(np.arange(layer.outputs) - layer.outputs + comm.size, 0) for layer in layers}
    return Owners(comm.size, rows, loss=comm.size - 1)


@mpi(2, 3)
def test_all_ranks_diverge_together_name_the_cause_and_leave_nothing_behind(comm):
    """The rank with the loss is not the one with the input, and other steps have begun when the loss is known."""
    (x, y), *_ = minibatches(mlp, (6,))
    targets, partition = np.eye(3)[y], {"plan": "hypergraph", "owners": last_rank_alone(comm)}
    ways = [("stage", {"pipeline": name}) for name in ("zbv", "async:3:nostash")]
    ways += [("model", partition | {"pipeline": name}) for name in ("gpipe", "async:3")]
    for axis, options in ways:
        with ProcessGrid(comm, **{axis: comm.size}) as grid, np.errstate(all="ignore"):
            net = parallelize(serial_net(mlp), grid, **options)
            before, parts = net.state_dict(), 1 if "async" in options["pipeline"] else 3
            for word, factors in (("the input", (np.nan, 1)), ("the targets", (1, np.nan))):
                trainer = net.trainer(MSE(), SGD(net, 0.01))
                found = diverged(trainer, [parts_of(net, x, targets, parts)] * 3
                                 + [parts_of(net, x * factors[0], targets * factors[1], parts)] * 5)  # fmt: skip
                assert comm.allgather(found) == [found] * comm.size
                step, words = found.split(": ", 1)
                assert step.startswith("step ") and words.startswith(f"the loss is nan: first not finite: {word};"), options
                net.load_state_dict(before)
            trainer = net.trainer(MSE(), SGD(net, 1e200))
            found = diverged(trainer, [parts_of(net, x, targets, parts)] * 9)
            assert comm.allgather(found) == [found] * comm.size and "is not finite" in found, options
            assert trainer.flush() == [] and not trainer.executor.passes and trainer.executor.messages.is_empty
            net.load_state_dict(before)
            assert np.isfinite(net.learn(x, targets, MSE(), SGD(net, 0.01)))


def diverged(trainer, minibatches):
    """In what words training with these minibatches, of 6 samples each, ends."""
    with pytest.raises(Diverged) as caught:
        for parts in minibatches:
            trainer.step(parts, 6)
        trainer.flush()
    assert isinstance(caught.value, SerialDiverged) and "\n" not in str(caught.value)
    return str(caught.value)


# ----- what is refused


@mpi(2)
def test_what_needs_all_layers_or_the_end_of_steps_under_way_is_refused(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    with ProcessGrid(comm, stage=2) as grid:
        net = parallelize(serial_net(mlp), grid, pipeline="async:3")
        optimizer, loss = momentum(net), SoftmaxCrossEntropy()
        trainer = net.trainer(loss, optimizer)
        assert net.steps_under_way == 3 and trainer.flush() == [] and net.trainer(loss, optimizer) is trainer
        with pytest.raises(ValueError, match="not by single passes"):
            net.forward(x, Context(), 6)
        with pytest.raises(ValueError, match="leave rebalancing out"):
            net.adopt(None)
        assert trainer.step(parts_of(net, x, y), 6) == []
        for forbidden in (lambda: net.predict(x), net.state_dict, lambda: net.learn(x, y, loss, optimizer)):
            with pytest.raises(ValueError, match="under way"):
                forbidden()
        assert len(trainer.flush()) == 1 and trainer.flush() == []


@mpi(2)
def test_what_was_interrupted_is_not_trained_any_more(comm):
    (x, y), *_ = minibatches(mlp, (6,))
    with ProcessGrid(comm, model=2) as grid:
        net = parallelize(serial_net(mlp), grid, "hypergraph", pipeline="async:2", owners=last_rank_alone(comm))
        trainer = net.trainer(SoftmaxCrossEntropy(), momentum(net))
        net.chunks[0].forward = None
        with pytest.raises(TypeError):
            trainer.step(parts_of(net, x, y), 6)
        with pytest.raises(ValueError, match="make the network anew"):
            net.predict(x)
