"""Using what was trained: a checkpoint that says how its network is built and how its data were standardised."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from gridgrad.nn.files.documents import COUNT, UNFIT, WHOLE, Kind, Optional, check
from gridgrad.nn.sequential import Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.checkpoint.manifest import NAME, Manifest
from gridgrad.parallel.checkpoint.restore import Checkpoint, newest
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import NetworkState, states_of
from gridgrad.parallel.choose.parallelize import parallelize
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.job.run import on_root
from gridgrad.parallel.training.network import ParallelSequential

MODEL = "model"  # the entry of a manifest's settings
PIECE = 1000  # samples that pass through a network at a time
LONGEST = 1000  # characters of a name
WORD = Kind("a printable text", lambda value: isinstance(value, str) and value.isprintable() and len(value) <= LONGEST)
FORM = {
    "net": Optional(WORD), "seed": COUNT, "dtype": Kind("float32 or float64", lambda value: value in ("float32", "float64")),
    "sample_shape": [WHOLE], "outputs": WHOLE,
    "loss": Kind("mse or cross-entropy", lambda value: value in ("mse", "cross-entropy")),
    "units": WORD, "input_names": Optional([WORD]), "target_names": Optional([WORD]), "classes": Optional([WORD]),
}  # fmt: skip


class TrainedNetwork:
    """A network from a checkpoint, with what is needed to use it: `load` makes one.

    Parameters
    ----------
    net : ParallelSequential
        The network, with its weights.
    model : dict
        What the checkpoint says: "loss", "units", "classes", "input_names", "target_names" and "sample_shape" of the data set,
        "x_mean", "x_std", "y_mean" and "y_std" of its training samples, and "net", "seed" and "dtype".
    step : int
        How many training steps it has.
    epoch : int, optional
        The epoch whose weights these are, where early stopping went back to it.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import Linear, Sequential
    >>> from gridgrad.parallel import TrainedNetwork, parallelize
    >>> model = {"sample_shape": [3], "classes": ["a", "b"], "loss": "cross-entropy", "x_mean": 1, "x_std": 2, "y_std": None}
    >>> trained = TrainedNetwork(parallelize(Sequential([Linear(3, 2)]), "auto"), model)
    >>> trained.standardised(np.full((1, 3), 5.0)).tolist(), trained.named(np.array([1])).tolist()
    ([[2.0, 2.0, 2.0]], ['b'])
    >>> trained.net.grid.free()
    """

    def __init__(self, net: ParallelSequential, model: Mapping[str, Any], step: int = 0, epoch: int | None = None) -> None:
        self.net, self.model, self.step, self.epoch = net, model, step, epoch
        self.shape, self.classes = tuple(model["sample_shape"]), model["classes"]
        self.is_classifier = model["loss"] == "cross-entropy"

    def standardised(self, x: ArrayLike) -> np.ndarray:
        """Samples as the network takes them, from samples in the units of the data; ValueError for another shape."""
        given = np.asarray(x)
        if given.ndim < 2 or prod(given.shape[1:]) != prod(self.shape):
            raise ValueError(f"samples of shape {given.shape[1:]}, but the network was trained on {self.shape}")
        found = given.reshape(-1, *self.shape).astype(self.net.dtype)
        found -= np.asarray(self.model["x_mean"], found.dtype)
        found *= (1 / np.asarray(self.model["x_std"], np.float64)).astype(found.dtype)
        return found.reshape(-1, *self.net.input.sample_shape)

    def outputs(self, x: ArrayLike) -> np.ndarray | None:
        """What the network gives for samples in the units of the data, the same on all ranks: (samples, outputs) on rank 0.
        Of a classifier the softmax of these are the probabilities, else they are in the units of the targets. Collective."""
        whole: Any = x if hasattr(x, "shape") else np.asarray(x)  # a file of an image each is read where it is indexed
        pieces = [self.net.predict(self.standardised(whole[at : at + PIECE])) for at in range(0, max(1, len(whole)), PIECE)]
        if self.net.grid.rank:
            return None
        found = np.concatenate([piece for piece in pieces if piece is not None])
        if self.model["y_std"] is None:
            return found
        return found * np.asarray(self.model["y_std"], np.float64) + np.asarray(self.model["y_mean"], np.float64)

    def predict(self, x: ArrayLike) -> np.ndarray | None:
        """What the network predicts for samples in the units of the data, the same on all ranks; on rank 0. Collective.
        Of a classifier the class of each sample, its name or number, else (samples, outputs) in the units of the targets."""
        found = self.outputs(x)
        return None if found is None else self.meaning(found)

    def probabilities(self, x: ArrayLike) -> np.ndarray | None:
        """The probability of each class for samples in the units of the data: (samples, classes) on rank 0. Collective."""
        if not self.is_classifier:
            raise ValueError("a network that predicts values has no probabilities: use predict")
        found = self.outputs(x)
        return None if found is None else self.shares(found)

    def meaning(self, outputs: np.ndarray) -> np.ndarray:
        """What `predict` makes of what `outputs` returned."""
        return self.named(outputs.argmax(axis=1)) if self.is_classifier else outputs

    def named(self, labels: np.ndarray) -> np.ndarray:
        """The names of classes by their numbers, or the numbers where they have no names."""
        return np.array(self.classes)[labels] if self.classes else labels

    @staticmethod
    def shares(outputs: np.ndarray) -> np.ndarray:
        """The softmax of what `outputs` returned."""
        found = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return found / found.sum(axis=1, keepdims=True)


def load(
    checkpoint: str | PathLike[str],
    grid: ProcessGrid | str | Mapping[str, int] | None = None,
    net: Sequential | Callable[[dict[str, Any]], Sequential] | None = None,
) -> TrainedNetwork:
    """The network in a checkpoint that `gridgrad train --checkpoint` or `save` has written, on any number of ranks. Collective.

    Of several checkpoints in a folder it is the one with the lowest validation loss, where there was a validation, else the
    newest one. It is never unpickled; what it says is checked.

    Parameters
    ----------
    checkpoint : str or path
        The folder of --checkpoint, or one of the checkpoints in it.
    grid : ProcessGrid, str or dict, optional
        As in `parallelize`; by default each rank has the whole network and a part of the samples.
    net : Sequential or function, optional
        The serial network, where the checkpoint can't name it, since a script has built it; or what makes it of the model.

    Returns
    -------
    The network, with what is needed to use it.

    Raises
    ------
    ValueError
        If the folder has no whole checkpoint, or one that does not say how to build and use the network.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import Linear, Sequential
    >>> from gridgrad.parallel import load, parallelize, save
    >>> folder = MPI.COMM_WORLD.bcast(tempfile.mkdtemp() if MPI.COMM_WORLD.rank == 0 else None)  # a script names one
    >>> net = parallelize(Sequential([Linear(3, 2)]), {"batch": MPI.COMM_WORLD.size})
    >>> save(net, folder)
    >>> trained = load(folder, net=Sequential([Linear(3, 2)]))
    >>> values = trained.predict(np.ones((5, 3)))  # in the units of the data, on rank 0
    >>> values is None or values.shape == (5, 2)
    True
    >>> trained.net.grid.free(), net.grid.free()
    (None, None)
    """
    comm, folder = MPI.COMM_WORLD, Path(checkpoint)
    manifest = comm.bcast(on_root(comm, lambda: Manifest.read(folder) if (folder / NAME).is_file() else None))
    found = Checkpoint(comm, manifest) if manifest else newest(comm, checkpoint, best=True)
    if found is None or found.damage:
        raise ValueError(found.damage if found else f"{checkpoint} has no whole checkpoint: name the folder of --checkpoint")
    manifest = found.manifest
    if manifest.workers > 1:
        raise ValueError(f"{manifest.folder} has {manifest.workers} workers with a network each: load one of --protocol sync")
    settings: dict[str, Any] = manifest.settings or {}
    model = settings.get(MODEL)
    if model is not None:
        check_model(model, manifest.folder)
    if not isinstance(net, Sequential):
        if model is None:
            raise ValueError(f"{manifest.folder} does not say how to build its network: of an earlier version, go on from it "
                             "with --resume, into another folder of --checkpoint; of a script, give the network, as "
                             "net=..")  # fmt: skip
        net = net(model) if net else recorded(model, manifest.folder)
    parallel = parallelize(net, grid or {"batch": comm.size}, reduction="plain")
    found.restore(parallel, {"network": NetworkState(parallel)})
    return TrainedNetwork(parallel, model or plain_model(parallel), manifest.step, settings.get("weights_of_epoch"))


def recorded(model, folder):
    """The Sequential that the model of a checkpoint in a folder names; ValueError where it is of someone's own code: a
    checkpoint from elsewhere must not choose which file is run."""
    spec = model["net"]
    if not spec or network_names.OWN.fullmatch(spec):
        raise ValueError(f"{folder} has the network {spec or 'of a script'}, which is your own code: give it again, by --net "
                         "FILE.py:FUNCTION, or in a script as net=..")  # fmt: skip
    return network_names.build(spec, model["sample_shape"], model["outputs"], model["seed"], model["dtype"])


def save(
    net: ParallelSequential,
    checkpoint: str | PathLike[str],
    data: Any = None,
    spec: str | None = None,
    classes: Sequence[str] | None = None,
) -> None:
    """Write a network, with what is needed to use it, so that `load` finds it again on any grid. Collective.

    Parameters
    ----------
    net : ParallelSequential
        The network of this rank.
    checkpoint : str or path
        The folder into which a checkpoint is written, beside those that are there.
    data : gridgrad.datasets.Dataset, optional
        What it was trained on, for the standardisation and the names; by default samples are taken as they are.
    spec : str, optional
        The network's name, as --net takes it, such as "mlp:64,relu"; without one `load` needs the network itself.
    classes : sequence of str, optional
        Their names, where `data` has none.

    Examples
    --------
    >>> import tempfile
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import Linear, Sequential
    >>> from gridgrad.parallel import load, parallelize, save
    >>> folder = MPI.COMM_WORLD.bcast(tempfile.mkdtemp() if MPI.COMM_WORLD.rank == 0 else None)  # a script names one
    >>> net = parallelize(Sequential([Linear(3, 4)]), {"batch": MPI.COMM_WORLD.size})
    >>> save(net, folder, spec="mlp:8,relu", classes=["a", "b", "c", "d"])
    >>> net.grid.free()
    """
    model = plain_model(net) | ({} if data is None else data.description()) | {"net": spec and network_names.identified(spec)}
    if classes:
        model |= {"classes": list(classes), "loss": "cross-entropy"}
    saver = Saver(net.grid.comm, net, states_of(net), checkpoint, settings={MODEL: model}, keep=1 << 30)
    saver.save(net.step)
    saver.close()


def plain_model(net):
    """The model of a network that takes samples as they are."""
    return {
        "net": None, "seed": net.seed, "dtype": str(net.dtype), "sample_shape": [int(size) for size in net.input.sample_shape],
        "outputs": prod(net.output.sample_shape), "loss": "mse", "units": "", "input_names": None, "target_names": None,
        "classes": None, "x_mean": 0.0, "x_std": 1.0, "y_mean": None, "y_std": None,
    }  # fmt: skip


def check_model(model, folder):
    """Raise ValueError, which names the folder, unless the entry MODEL of a manifest's settings is whole."""
    try:
        check(model, FORM, MODEL)
        shapes = {"x": tuple(model["sample_shape"]), "y": (model["outputs"],)}
        for name in ("x_mean", "x_std", "y_mean", "y_std"):
            if model[name] is not None:
                value = np.asarray(model[name], np.float64)
                np.broadcast_to(value, shapes[name[0]])
                if not np.isfinite(value).all() or name.endswith("std") and not (value > 0).all():
                    raise ValueError(f"{name} is not finite, or not above 0")
        targets = 1 if model["loss"] == "cross-entropy" else model["outputs"]
        counts = {"input_names": prod(shapes["x"]), "target_names": targets, "classes": model["outputs"]}
        for name, count in counts.items():
            if model[name] is not None and len(model[name]) != count:
                raise ValueError(f"{name} are not {count}")
    except UNFIT as error:
        raise ValueError(f"{folder}: what it says of its network is damaged: {error}") from None
