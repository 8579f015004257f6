"""`resumable_steps`: a script that is ended goes on where it was, and needs to know nothing of it."""

import json
import math
import os
import signal

import numpy as np
import pytest

from gridgrad.nn import SGD, BatchNorm, Linear, Sequential, SoftmaxCrossEntropy, Tanh
from gridgrad.parallel import ProcessGrid, parallelize, resumable_steps
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.checkpoint.script import from_json, to_json
from tests.mpi import mpi
from tests.parallel.checkpoint.training import folder, minibatches

LOSS = SoftmaxCrossEntropy()


class Script:
    """What a script does with a grid. losses: of the steps that it has trained."""

    def __init__(self, grid):
        layers = [Linear(6, 5), BatchNorm(5), Tanh(), Linear(5, 3)]
        self.net = parallelize(Sequential(layers, 1, np.float64, (6,)), grid)
        self.optimizer, self.losses, self.kept = SGD(self.net, 0.1, 0.9), [], {"seen": []}

    def train(self, directory, steps, after=lambda step: False, **options):
        """Leaves the loop where after(step) is true."""
        for step in resumable_steps(self.net, self.optimizer, directory, steps, kept=self.kept, **options):
            x, y = minibatches(6, (6,))[step]
            self.losses.append(self.net.learn(x, y, LOSS, self.optimizer))
            self.kept["seen"].append(step)
            if after(step):
                break
        return self


def steps_in(comm, directory):
    """The steps of the checkpoints in a folder. Collective."""
    comm.Barrier()
    found = [one.step for one in found_in(directory)[0]]
    comm.Barrier()
    return found


@mpi(1, 2)
def test_a_script_goes_on_on_any_grid_also_after_a_break(comm):
    with folder(comm) as directory:
        with ProcessGrid(comm, batch=comm.size) as grid:
            whole = Script(grid).train(f"{directory}/whole", 6)
            assert Script(grid).train(f"{directory}/parts", 3, checkpoint_steps=2).losses == whole.losses[:3]
        assert steps_in(comm, f"{directory}/parts") == [3, 2]
        with ProcessGrid(comm, model=comm.size) as grid:
            left = Script(grid).train(f"{directory}/parts", 6, lambda step: step == 3)
            assert np.allclose(left.losses, whole.losses[3:4], rtol=1e-12)
        assert steps_in(comm, f"{directory}/parts") == [4, 3, 2]
        with ProcessGrid(comm, batch=comm.size) as grid:
            again = Script(grid).train(f"{directory}/parts", 6, keep=1)
            assert np.allclose(again.losses, whole.losses[4:], rtol=1e-12) and again.kept["seen"] == [0, 1, 2, 3, 4, 5]
            assert Script(grid).train(f"{directory}/parts", 6).losses == []  # nothing is left to do
        assert steps_in(comm, f"{directory}/parts") == [6]


@mpi(1, 3)
def test_a_signal_to_one_rank_ends_all_with_a_checkpoint(comm):
    before = signal.getsignal(signal.SIGTERM)

    def after(step):
        if step == 1 and comm.rank == comm.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with folder(comm) as directory, ProcessGrid(comm, batch=comm.size) as grid:
        whole, ended = Script(grid).train(f"{directory}/whole", 6), Script(grid)
        with pytest.raises(SystemExit) as caught:
            ended.train(f"{directory}/parts", 6, after)
        assert caught.value.code == 75 and signal.getsignal(signal.SIGTERM) is before
        done = len(ended.losses)
        assert done in (2, 3) and steps_in(comm, f"{directory}/parts") == [done]
        assert ended.losses + Script(grid).train(f"{directory}/parts", 6).losses == whole.losses


@pytest.mark.parametrize("value", [
    None, True, -0.0, math.inf, "\ud800", ((), [2.5, "x"]), {(1, 2): "pair", None: "none"}, {"a": {"$": "inf", 1.5: math.inf}},
    np.random.default_rng(0).bit_generator.state,
])  # fmt: skip
def test_what_is_kept_comes_back_as_it_was(value):
    saved = json.dumps(to_json(value, "it"), allow_nan=False)
    assert repr(from_json(json.loads(saved))) == repr(value)
    numbers = [np.float32(0.5), np.int64(3), np.True_, np.float16(np.inf), np.str_("a")]  # those of Python come back
    assert repr(from_json(to_json(numbers, "it"))) == "[0.5, 3, True, inf, 'a']"


OWN: list = []
OWN.append(OWN)


@pytest.mark.parametrize(("value", "words"), [
    ({"b": [0, b"x"]}, r"kept\['b'\]\[1\] is of the type bytes"), ({frozenset(): 1}, "a key of kept"), (OWN, "too many lists"),
])  # fmt: skip
def test_what_can_not_be_kept_is_refused(value, words):
    with pytest.raises(ValueError, match=words):
        to_json(value, "kept")


@mpi(2)
def test_what_does_not_fit_is_refused_on_all_ranks_before_the_first_step(comm):
    with folder(comm) as directory, ProcessGrid(comm, batch=comm.size) as grid:
        script = Script(grid)
        for kept, words in (({"seen": [], "a": {1} if comm.rank else 1}, r"kept\['a'\] is of the type set"),
                            ({"b": comm.rank}, r"kept\['b'\] on rank 1 is not what it is on rank 0")):  # fmt: skip
            with pytest.raises(ValueError, match=words):
                next(resumable_steps(script.net, script.optimizer, directory, 3, kept=kept))
        with pytest.raises(ValueError, match="step 0 of resumable_steps has trained the network by 0 steps, not by 1"):
            for _ in resumable_steps(script.net, script.optimizer, directory, 3):
                pass
        assert steps_in(comm, directory) == []
