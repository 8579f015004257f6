"""Train a multilayer perceptron, prune it, train it further, and compare how its neurons can be divided among ranks.

    gridgrad study pruned --out results/pruned.h5

A neuron of a pruned network needs few activations of the layer in front, but ranks with many consecutive or random neurons need
nearly all of them. A partition of the hypergraph of the network puts neurons that need the same activations to the same rank.
Writes the pruned network to the file of --out, for `--net pruned:FILE` of `train`, and the tables beside it (.md).
"""

import shlex
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

from gridgrad import datasets
from gridgrad.experiments.common import report, train_setup
from gridgrad.experiments.common.options import Parser, add_data, check_writable, number, user_input, whole, whole_list
from gridgrad.experiments.common.tables import lines, terminal
from gridgrad.nn import LOSSES, Adam, Linear, cosine
from gridgrad.nn.zoo import network_names, pruning
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.partitioning import mt_kahypar
from gridgrad.parallel.partitioning.network_hypergraph import measure, of_network
from gridgrad.parallel.training import minibatch_indices

AT_ONCE = 1000  # the samples that are tested at a time


def train(net, data, steps, args, l1=0.0):
    """Train for some more steps with Adam. l1: the weight of the penalty on the parameters."""
    first, schedule = net.step, cosine(args.lr, steps)
    optimizer, loss = Adam(net, lambda step: schedule(step - first), l1=l1), LOSSES[data.loss]()
    for _ in tqdm(range(steps), unit=" steps", delay=2, disable=None):
        indices, _ = minibatch_indices(len(data.train), args.batch_size, args.seed, net.step)
        net.learn(*samples(data.train, indices), loss, optimizer)


def samples(part, indices):
    """(x, y) of these samples of a Part."""
    return part.inputs(indices, (slice(None),)), part.targets(indices)


def score(net, data):
    """The accuracy for the test samples in percent or, of a regression, the root of the mean squared error in its units."""
    total, is_regression = 0.0, data.loss == "mse"
    for start in range(0, len(data.test), AT_ONCE):
        x, y = samples(data.test, np.arange(start, min(start + AT_ONCE, len(data.test))))
        outputs = net.predict(x)
        if is_regression:
            total += float(np.square((outputs - y) * data.test.target_scale, dtype=np.float64).mean(axis=1).sum())
        else:
            total += 100 * np.count_nonzero(outputs.argmax(axis=1) == y)
    return (total / len(data.test)) ** (0.5 if is_regression else 1)


def trained_and_pruned(net, data, args):
    """(the pruned network, {state of a network: its score}). net: a new one, which is trained."""
    train(net, data, args.steps, args, args.l1)  # the penalty makes those weights small that can be pruned
    scores, pruned = {"trained": score(net, data)}, pruning.prune(net, args.zeros, layer_by_layer=True)
    scores["pruned"] = score(pruned, data)
    for name, one in (("pruned, and", pruned), ("not pruned, but", net)):
        train(one, data, args.further, args)
        scores[f"{name} trained further"] = score(one, data)
    return pruned, scores


def document(args, data, net, scores, rows):
    """The results as Markdown."""
    unit = "accuracy (%)" if data.loss == "cross-entropy" else f"root mean squared error ({data.units})"
    widths = " - ".join(str(layer.inputs) for layer in net.layers if isinstance(layer, Linear))
    return f"""# A pruned network, and how its neurons can be divided among ranks

`gridgrad study pruned {shlex.join(sys.argv[1:])}`, {args.dataset}, a perceptron of {widths} - {data.outputs} neurons,
{args.zeros:.0%} of whose weights are zero. The scores are of the test samples.

{lines([{"network": name, unit: f"{value:.2f}"} for name, value in scores.items()])}

What a training step of {args.batch_size} samples sends, forward and backward, outputs to the rank of the loss included.
"activations" are those of a sample that are sent forward, "largest rank" what the busiest rank sends and receives in MB,
"balance" its weights by the mean, and "products" the size of its products by an even share of those of the dense network.

{lines(rows)}
"""


def partitions(model, ranks, epsilon, seed):
    """{name: the part of each vertex} of the partitions of a NetworkHypergraph to compare. Of "rows" each rank has consecutive
    neurons of each layer, with equally many weights; of "random" equally many neurons of each layer."""
    graph, random = model.hypergraph, np.random.default_rng(seed)
    rows, shuffled = np.zeros(graph.vertices, np.int64), np.zeros(graph.vertices, np.int64)
    for vertices in model.outputs.values():
        weights = graph.weights[vertices]
        before = weights.cumsum() - weights / 2
        rows[vertices] = np.minimum(before * ranks / max(1, weights.sum()), ranks - 1)
        shuffled[vertices] = random.permutation(len(vertices)) % ranks
    return {"hypergraph": mt_kahypar.partition(graph, ranks, epsilon, seed=seed), "random": shuffled, "rows": rows}


def measures(net, model, parts, ranks, batch_size):
    """What a partition costs, as a row of a table; `document` says what is what."""
    found, megabytes = measure(model, parts, ranks), 2 * net.dtype.itemsize * batch_size / 1e6
    owners, products, dense = model.owners(parts, ranks), np.zeros(ranks), 0
    for layer in net.layers:
        if layer.kind == "linear":
            dense += layer.inputs * layer.outputs
            for rank in range(ranks):  # the inputs that it needs, and the neurons that it owns
                columns = np.flatnonzero(owners.outputs[layer.name] == rank)
                products[rank] += len(layer.inputs_of(columns)) * len(columns)
    return {
        "activations": found.volume,
        "MB a step": found.volume * megabytes,
        "largest rank": found.most_moved * megabytes,
        "messages": 2 * found.messages,
        "balance": float(found.work.max()),
        "products": float(products.max() / (dense / ranks)),
    }


def options():
    parser = Parser(prog="study pruned", description="How well can the neurons of a pruned network be divided among ranks?")
    add_data(parser, "denoise", "mlp:256,256,relu", 128)
    add = parser.add_argument
    add("--zeros", type=number(least=0, below=1), default=0.9, help="the fraction of the weights of each layer that are pruned")
    add("--steps", type=whole(1), default=6000, metavar="S", help="minibatches on which the dense network is trained")
    add("--l1", type=number(least=0), default=3e-5, help="weight of the penalty l1 |p| on the parameters p in these steps")
    add("--further", type=whole(1), default=500, metavar="S", help="minibatches on which the pruned network is trained")
    add("--lr", type=number(above=0), default=0.003, help="learning rate of Adam, which falls to 0 by a cosine")
    add("--ranks", type=whole_list, default=[2, 4, 8], metavar="N,N,..", help="numbers of ranks")
    add("--epsilon", type=number(least=0), default=0.1, help="how much more work than the mean a rank may have")
    add("--out", default="results/pruned.h5", metavar="FILE.h5", help="the file for the pruned network")
    return parser


def main():
    args = options().parse_args()
    tables = Path(args.out).with_suffix(".md")
    with user_input():
        for path in (args.out, tables):
            check_writable(path)
        datasets.prepare(args.dataset, args.data_dir)
        data = datasets.load(args.dataset, args.data_dir)
        net = network_names.build(args.net, data.sample_shape, data.outputs, args.seed)
        if len(net.input_shape) != 1:
            raise ValueError(f"only multilayer perceptrons are pruned, and {args.net} is none: use {network_names.MLP}")
        data = data.reshaped(net.input_shape)
        train_setup.check_batch(args, len(data.train))
        pruned, scores = trained_and_pruned(net, data, args)
        pruning.write(args.out, pruned, args.net)
        model = of_network(pruned)
        rows = [{"ranks": ranks, "partition": name} | measures(pruned, model, parts, ranks, args.batch_size)
                for ranks in args.ranks
                for name, parts in partitions(model, ranks, args.epsilon, args.seed).items()]  # fmt: skip
        text = document(args, data, pruned, scores, rows)
        report.write_text(tables, text)
    print(f"{terminal(text)}\nnetwork written to {args.out}, tables to {tables}")


if __name__ == "__main__":
    run_launcher(main)
