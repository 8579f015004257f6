"""A random network and a random way to train it: a plain value, which prints itself as the expression that makes it."""

import random
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from math import prod
from tempfile import NamedTemporaryFile

import numpy as np

from gridgrad.nn import MSE, OPTIMIZERS, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.learning_rates import parse_schedule
from gridgrad.nn.sequence import with_branches
from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import complete
from gridgrad.parallel.pipeline.schedule_names import to_csv
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.hypergraph import Owners
from tests.parallel.pipelines import own_schedule
from tests.random_networks.layers import build, random_layers

SIZES = 1, 2, 3, 4, 5, 7, 11  # of inputs and images
STEPS = 3
BEFORE = 4  # steps that a used network has done


@dataclass(frozen=True)
class Case:
    """layers: see `layers.py`. shape: of a sample.

    grid: {axis: ranks}. plan: a text as --plan takes it, or a tuple of choices that the layers with weights take by turns, as
    far as they can. shares: {axis: a number for each rank}. owners: whether the outputs of the layers belong to random ranks of
    the axis model: "coarse", "fine" or, each layer to one of them, "layers" for the plan "hypergraph"; "some" for some layers
    of others, or "". pipeline: the name of a schedule, "own" for one in a
    file, or None. cuts: where its chunks begin, as far as there are layers.
    micro_batches: of a minibatch. reduction, update, reduce_dtype: how gradients are summed. ranks_per_node: of the nodes that
    are pretended. optimizer, lr: a name and the options of an optimizer, and the text of a schedule. loss: its name.
    smoothing: of labels. batch_sizes: of the minibatches. samples: "normal" or "integers". feed: how these come to the ranks,
    see `feeding.py`. dtype: of the network. start: whether the weights are "fresh", those of a serial network that was "used"
    before it is placed, or "loaded" by the first rank into the placed one. seed: of weights, samples and owners.
    """

    layers: list
    shape: tuple
    grid: dict = field(default_factory=dict)
    plan: str | tuple = "fewest-bytes"
    shares: dict | None = None
    owners: str = ""
    pipeline: str | None = None
    cuts: tuple | None = None
    micro_batches: int = 1
    reduction: str = "plain"
    update: str = "whole"
    reduce_dtype: str = "same"
    ranks_per_node: int = 99
    optimizer: tuple = ("sgd", {"momentum": 0.9})
    lr: str = "constant"
    loss: str = "cross-entropy"
    smoothing: float = 0.0
    batch_sizes: tuple = (5, 3, 7)
    samples: str = "normal"
    feed: str = "blocks"
    dtype: str = "float64"
    start: str = "fresh"
    seed: int = 0

    def __repr__(self):
        """The expression that makes it, without what is as usual."""
        usual = Case([], ())
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        said = {name: value for name, value in said.items() if name in ("layers", "shape") or value != getattr(usual, name)}
        return f"Case({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    @property
    def ranks(self):
        return prod(self.grid.values())

    @property
    def rng(self):
        return np.random.default_rng(self.seed)

    # ----- the network

    def network(self):
        """The serial network. If it is "used" it has been trained for some steps, which its state shows."""
        net = Sequential(build(self.layers, self.shape), self.seed, self.dtype, self.shape)
        if self.start == "used":
            net.load_state_dict(self.state())
            net.step = BEFORE
        return net

    @cached_property
    def outputs(self):
        return self.alike.output_shape(self.shape)[0]

    @cached_property
    def alike(self):
        """A network that has no memory, to be asked for its shapes and names."""
        return Sequential(build(self.layers, self.shape), 0, np.float64, self.shape)

    @property
    def has_chain(self):
        """Whether the layers have no branches."""
        return not any(layer.children for layer in with_branches(self.alike.layers))

    def state(self):
        """A random state of the network. Nothing in it is zero, nor are variances negative."""
        rng, found = self.rng, {}
        for name, value in Sequential(build(self.layers, self.shape), 0, np.float64, self.shape).state_dict().items():
            signs = 1 if name.endswith("running_var") else rng.choice((-1, 1), value.shape)
            found[name] = value + signs * rng.uniform(0.02, 0.2, value.shape)
        return found

    # ----- how it is placed

    def placing(self):
        """(the text of the plan, the options of `parallelize`) but for those of pipelines and reductions."""
        options = {"shares": self.shares} if self.shares else {}
        owners = self.made_owners()
        return self.plan_text(), options | ({"owners": owners} if owners else {})

    def options(self):
        """The options of `parallelize`."""
        pipelining = {}
        if self.pipeline:
            pipelining = {"pipeline": self.schedule(), "micro_batches": self.micro_batches, "cuts": self.made_cuts()}
        summing = {"reduction": self.reduction, "update": self.update, "reduce_dtype": self.reduce_dtype}
        return self.placing()[1] | pipelining | summing

    def plan_text(self):
        layers = weighted(self.alike)
        if isinstance(self.plan, str):
            if any(layer.kind == "autoencoder" for layer in layers) and self.plan in ("laugier", "marques", "hypergraph"):
                return "fewest-bytes"  # these have no rule for it
            return self.plan
        return ",".join(fitting(self.plan[i % len(self.plan)], layer, self.grid) for i, layer in enumerate(layers))

    def made_owners(self):
        """What `owners` stands for, with the sizes of this network."""
        ranks, rng = self.grid.get("model", 1), self.rng
        layers = weighted(self.alike)
        if not self.owners or ranks == 1:
            return None
        if self.plan_text() != "hypergraph":
            found = {layer.name: Partition.owned(rng.integers(0, ranks, width(layer)), ranks) for layer in layers}
            return {name: partition for name, partition in found.items() if rng.random() < 0.7}
        if self.owners == "layers":
            outputs = {layer.name: np.full(layer.outputs, rng.integers(ranks)) for layer in layers}
        else:
            outputs = {layer.name: rng.integers(0, ranks, layer.outputs) for layer in layers}
        fine = [layer for layer in layers if self.owners == "fine" and type(layer).__name__ != "SparseLinear"]
        pairs = {layer.name: rng.integers(0, ranks, (layer.inputs, layer.outputs)) for layer in fine if rng.random() < 0.7}
        return Owners(ranks, outputs, pairs, int(rng.integers(ranks)))

    def schedule(self):
        """The name of the schedule of the pipeline, or of a file that has it."""
        return own_file(self.grid[STAGE], self.micro_batches).name if self.pipeline == "own" else self.pipeline

    def made_cuts(self):
        """The cuts, of which there are as many as the pipeline needs."""
        if self.grid.get(STAGE, 1) == 1:
            return None  # of a partition of the network
        wanted, most = schedule_names.parse(self.schedule()).route(self.grid[STAGE]).chunks - 1, len(self.alike.layers)
        cuts = self.cuts or range(1, wanted + 1)
        return sorted(cuts[i % len(cuts)] % (most + 1) for i in range(wanted))

    def on_devices(self):
        """A Case without what is for CPUs alone."""
        return replace(self, reduction="plain" if self.reduction == "shared" else self.reduction)

    # ----- how it is trained

    def make_optimizer(self, net):
        name, options = self.optimizer
        return OPTIMIZERS[name](net, parse_schedule(self.lr, RATES[name], BEFORE + 2 * STEPS), **options)

    def make_loss(self):
        return SoftmaxCrossEntropy(self.smoothing) if self.loss == "cross-entropy" else MSE()

    def batches(self):
        """(x, y) of each minibatch, a list."""
        rng = self.rng
        return [self.batch(rng, size) for size in self.batch_sizes]

    def batch(self, rng, size):
        x = rng.standard_normal((size, *self.shape)).astype(self.dtype)
        if self.samples == "integers":
            x = rng.integers(0, 5, x.shape).astype(np.uint8)
        if self.loss == "mse":
            return x, rng.standard_normal((size, self.outputs)).astype(self.dtype)
        return x, rng.integers(0, self.outputs, size)


DTYPES = "float64", "float64", "float64", "float32"
RATES = {"sgd": 0.05, "adam": 0.01, "adamw": 0.01, "adagrad": 0.01, "adadelta": 0.5}
TINY = {"eps": 1e-3}  # what divides by small gradients makes differences of rounding larger


@cache
def own_file(stages, micro_batches):
    """A file with a schedule unlike all known ones, which is deleted with its object."""
    file = NamedTemporaryFile("w+", prefix="gridgrad-test-", suffix=".csv")  # noqa: SIM115
    schedule = own_schedule(stages, micro_batches)
    file.write(to_csv(schedule if micro_batches % 2 else complete(schedule)))  # complete: with its messages
    file.flush()
    return file


def width(layer):
    """Into how many parts the plan can divide a layer along its outputs: an autoencoder has hidden units."""
    return layer.hidden if layer.kind == "autoencoder" else layer.outputs


def fitting(word, layer, grid):
    """The choice nearest to `word` that a layer can take."""
    if layer.kind == "autoencoder":
        return "replicate" if word == "replicate" else "hidden"
    if word in ("height", "width") and (layer.kind != "conv" or grid.get(word, 1) > 1):
        return "out"
    return word


# ----- random cases


def random_case(seed, ranks=None):
    """The Case of a seed, for a number of ranks or, by default, any from 1 to 8."""
    rng = random.Random(f"{seed} {ranks}")
    ranks = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8)) if ranks is None else ranks
    images = rng.random() < 0.55
    shape = tuple(rng.choice(SIZES) for _ in range(2)) + (rng.choice((1, 2, 3)),) if images else (rng.choice(SIZES),)
    case = Case(
        random_layers(rng, images), shape, seed=rng.randrange(10**6), loss=rng.choice(("cross-entropy", "mse")),
        batch_sizes=tuple(rng.choice((1, 2, 3, 4, 5, 7, 9)) for _ in range(STEPS)),
        samples=rng.choice(("normal", "normal", "integers")), start=rng.choice(("fresh", "used", "loaded")),
        optimizer=random_optimizer(rng), lr=rng.choice(("constant", "cosine", "step:2:0.5", "constant,warmup:2")),
        micro_batches=rng.choice((1, 1, 2, 3)), ranks_per_node=rng.choice((1, 2, 3, 99)),
    )  # fmt: skip
    case = WAYS[rng.choice(list(WAYS))](rng, case, ranks)
    if case.pipeline and case.pipeline.startswith("async"):  # whose ranks update at different times
        case = unclipped(case)
    if case.pipeline:
        case = replace(case, reduction=rng.choice(("plain", "overlap:1")))
    else:
        case = replace(case, reduction=rng.choice(("plain", "overlap:1", "shared")))
    smoothing = rng.choice((0.0, 0.0, 0.1, 0.5)) if case.loss == "cross-entropy" else 0.0
    case = replace(case, update="sharded" if rng.random() < 0.4 else "whole", smoothing=smoothing)
    feed, dtype = rng.choice(("blocks", "blocks", "learn", "each", "scatter", "scatter-broadcast")), rng.choice(DTYPES)
    is_whole = feed == "learn" and not case.pipeline  # which cuts it into no micro-batches
    return replace(case, feed=feed, dtype=dtype, micro_batches=1 if is_whole else case.micro_batches)


def unclipped(case):
    """The Case without gradients that are clipped, whose norm is one more sum."""
    name, options = case.optimizer
    return replace(case, optimizer=(name, {option: value for option, value in options.items() if option != "clip_norm"}))


def random_optimizer(rng):
    name = rng.choice(("sgd", "sgd", "adam", "adamw", "adagrad", "adadelta"))
    options = {"weight_decay" if name == "adamw" else "l2": 0.01} if rng.random() < 0.2 else {}
    options |= {"clip_norm": rng.choice((0.1, 1.0, 10.0))} if rng.random() < 0.3 else {}
    if name == "sgd":
        momentum = rng.choice((0.0, 0.9))
        return name, options | {"momentum": momentum} | ({"nesterov": True} if momentum and rng.random() < 0.3 else {})
    return name, options | TINY


def random_grid(rng, ranks, axes):
    """The sizes of a grid of so many ranks over the axes."""
    sizes = dict.fromkeys(axes, 1)
    for prime in (2, 3, 5, 7):
        while ranks % prime == 0:
            sizes[rng.choice(axes)] *= prime
            ranks //= prime
    return sizes


def random_shares(rng, sizes):
    """{axis: a number for each rank}, sometimes 0, for some axes; None for even ones."""
    axes = [axis for axis in sizes if axis != STAGE and rng.random() < 0.5]
    found = {axis: tuple(rng.randint(0, 3) for _ in range(sizes[axis])) for axis in axes}
    return {axis: numbers for axis, numbers in found.items() if any(numbers)} or None


def any_plan(rng, case, ranks, axes=("batch", "height", "model", "model")):
    grid = random_grid(rng, ranks, axes)
    words = tuple(
        rng.choice(("out", "out", "in", "replicate", "redundant", "height", "width")) for _ in range(rng.randint(1, 4))
    )
    pixels = rng.choice(("width", "out") if grid.get("height", 1) > 1 else ("width", "height"))
    plan = rng.choice((words, words, words, "fewest-bytes", f"conv={pixels},linear={rng.choice(('out', 'in'))}"))
    return replace(case, grid=grid, plan=plan, shares=random_shares(rng, grid), owners=rng.choice(("", "", "some")))


def laugier(rng, case, ranks):
    grid = random_grid(rng, ranks, ("batch", "height", "model", "model"))
    return replace(case, grid=grid, plan="laugier", shares=random_shares(rng, grid), owners=rng.choice(("", "some")))


def marques(rng, case, ranks):
    grid = random_grid(rng, ranks, ("batch", "model", "model"))
    return replace(case, grid=grid, plan="marques", shares=random_shares(rng, grid), owners=rng.choice(("", "some")))


def hypergraph(rng, case, ranks):
    grid = random_grid(rng, ranks, ("batch", "model", "model"))
    shares = random_shares(rng, {"batch": grid["batch"]})
    return replace(case, grid=grid, plan="hypergraph", owners=rng.choice(("coarse", "fine", "layers")), shares=shares)


def hypergraph_pipeline(rng, case, ranks):
    """Only of a network without branches, and where there is something to own."""
    case = hypergraph(rng, case, ranks)
    if case.grid["model"] == 1 or case.plan_text() != "hypergraph" or not case.has_chain:
        return case
    schedule = rng.choice(("gpipe", "1f1b", "async:2:bound=0"))
    return replace(case, pipeline=schedule, micro_batches=1 if schedule.startswith("async") else case.micro_batches)


def stages(rng, case, ranks):
    case = any_plan(rng, case, ranks, (STAGE, STAGE, "batch", "height", "model"))
    schedule = rng.choice(("sequential", "gpipe", "1f1b", "interleaved:2", "zb-h1", "zbv", "async:2:bound=0", "own"))
    cuts = tuple(rng.randint(0, 9) for _ in range(rng.randint(1, 5)))
    micro_batches = 1 if schedule.startswith("async") else rng.randint(1, min(case.batch_sizes) if schedule == "own" else 5)
    if case.grid[STAGE] == 1:
        return case
    return replace(case, pipeline=schedule, cuts=cuts, micro_batches=micro_batches)


WAYS = {
    "plan": any_plan, "again": any_plan, "laugier": laugier, "marques": marques, "hypergraph": hypergraph,
    "partition pipeline": hypergraph_pipeline, "stages": stages, "more stages": stages,
}  # fmt: skip
