"""Claims of Laugier et al. 2018 that follow from what the paper prints, or from counting, without any measurement."""

from gridgrad.experiments.common.parallel_schemes import grid_of
from gridgrad.experiments.common.problems import published as network_of
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.claims import FOLLOWS, contradictory, found
from gridgrad.experiments.papers.laugier2018 import formulas, steps
from gridgrad.experiments.papers.laugier2018.formulas import DEPTHS, NEAR, near

KNOWN = published("laugier2018")
VALUES = {name: cited.value for name, cited in KNOWN.values.items()}
FOUR = "batch=2,model=2"


def findings():
    """{claim: Finding}."""
    return contradictions() | algorithms() | volumes() | ways() | outside()


def contradictions():
    """Where two passages of the paper disagree."""
    size, again = VALUES["batch_model_size"], VALUES["batch_model_size_again"]
    samples, inputs = VALUES["conclusion_samples"], VALUES["conclusion_inputs"]
    table, ratio = KNOWN.tables["1"], VALUES["integrated_ratio"]
    of_table = [table.cited(column, "ethylene").value for column in ("samples", "inputs")]
    return {
        "one_size": contradictory(f"{size:,} in the abstract and in section 10, {again} in section 9.0.1"),
        "dataset_inputs": contradictory(
            f"{samples:,} x {inputs} in section 10, {of_table[0]:,} x {of_table[1]} in Table 1", "the logs of its code have 16"
        ),
        "integrated_advantage": contradictory(f"an advantage over the others, and {ratio} times batch parallelism at its best"),
        "integrated_time": contradictory(
            f"{ratio} times the performance is slower, {ratio} times the execution time is faster than batch parallelism"
        ),
    }


def algorithms():
    """What Algorithms 1 to 3 send, counted."""
    widths = tuple(steps.widths_of(VALUES["model_model_size"], steps.HIDDEN))
    one, several = (steps.messages(widths, *grid, steps.PRINTED) for grid in ((steps.RANKS, 1), (1, steps.RANKS)))
    of_batch = [message for message in one if message[1] == "batch"]
    of_model = [message for message in several if message[1] == "model"]
    layers, rounds = len(widths) - 1, 2 * (steps.RANKS - 1).bit_length()
    weights = sum((a + 1) * b for a, b in zip(widths, widths[1:]))
    shard = -(-weights // steps.RANKS)
    shards = {(a + 1) * -(-b // steps.RANKS) for a, b in zip(widths, widths[1:])}
    updates = sum(given in shards for *_, given, _ in of_model)
    return {
        "one_sum": found(
            len(of_batch) == 1, f"{len(of_batch)} all-reduce of gradients in Algorithm 1, whatever the number of layers",
            "the formula of section 5 has the latency once for each layer instead; besides, each minibatch is scattered",
            FOLLOWS,
        ),
        "one_sum_cheaper": found(
            layers > 1, f"on {steps.RANKS} processes {rounds} rounds of {VALUES['latency_us']} us for one sum, and "
            f"{rounds * layers} for one for each of {layers} layers, with as many bytes",
            "this leaves out that sums of single layers can hide behind the backward pass, which this project uses", FOLLOWS,
        ),
        "every_layer": found(
            len(of_model) == 2 * layers, f"{len(of_model)} collectives in a step of {layers} layers in Algorithm 2",
            "the last of them sums a gradient that nobody needs", FOLLOWS,
        ),
        "model_sends_updates": found(
            updates > 0, f"{updates} updates of weights in Algorithm 2, and {sum(given for *_, given, _ in of_model):,} "
            "numbers of outputs and of their gradients that a rank puts in",
            "what is summed in the backward pass is the gradient of a layer's input", FOLLOWS,
        ),
        "model_memory": found(
            shard < weights / 2, f"{weights:,} parameters on each process with batch parallelism, {shard:,} with model "
            f"parallelism on {steps.RANKS}",
            f"less than half counts as significantly less; size {widths[1]:,}, {steps.HIDDEN} hidden layers. The activations "
            "are whole on each process",
            FOLLOWS,
        ),
    }  # fmt: skip


def volumes():
    """What the formulas say of the bytes of a step."""
    small, large = VALUES["model_least_size"], VALUES["model_model_size"]
    pair = {
        (hidden, size): (formulas.sent(size, hidden, 2, 1), formulas.sent(size, hidden, 1, 2))
        for hidden in DEPTHS for size in (small, large)
    }  # fmt: skip
    mixed = {
        (hidden, size): min((formulas.sent(size, hidden, b, m), f"{b} x {m}") for b, m in grids())
        for hidden in DEPTHS for size in (VALUES["integrated_model_size"], large)
    }  # fmt: skip
    pure = {
        (hidden, size): [formulas.sent(size, hidden, *grid) for grid in ((steps.RANKS, 1), (1, steps.RANKS))]
        for hidden, size in mixed
    }
    least = {key: value for key, value in mixed.items() if key[1] == large}
    integrated = {key: value for key, value in mixed.items() if key[1] != large}
    return {
        "batch_formula": formula("batch"),
        "model_formula": formula("model"),
        "model_sends_little": found(
            all(model < batch for batch, model in pair.values()), "; ".join(
                f"size {size}, {hidden} hidden: {kilobytes(model)} with model and {kilobytes(batch)} with batch parallelism"
                for (hidden, size), (batch, model) in pair.items()
            ), f"what a rank sends on 2 processes with batch {steps.BATCH_SIZE}; it is the other way round with small "
            "networks, and with one hidden layer at all sizes", FOLLOWS,
        ),
        "integrated_too_small": found(
            all(value >= pure[key][0] for key, (value, _) in integrated.items()), "; ".join(
                f"{hidden} hidden: {kilobytes(value)} on {grid} and {kilobytes(pure[hidden, size][0])} with batch parallelism"
                for (hidden, size), (value, grid) in integrated.items()
            ), f"what a rank sends on {steps.RANKS} processes: integrated parallelism does send less", FOLLOWS,
        ),
        "mixed_least": found(
            all(value < min(pure[key]) for key, (value, _) in least.items()), "; ".join(
                f"{hidden} hidden: {kilobytes(value)} on {grid}, {kilobytes(pure[hidden, size][0])} with batch and "
                f"{kilobytes(pure[hidden, size][1])} with model parallelism" for (hidden, size), (value, grid) in least.items()
            ), f"what a rank sends on {steps.RANKS} processes with model size {large}", FOLLOWS,
        ),
    }  # fmt: skip


def formula(scheme):
    """The Finding of the formula of section 5 or 6, held against what Algorithm 1 or 2 sends."""
    ratios = {
        ranks: formulas.derived_volume(scheme, ranks).value / volume_of(grid_of(scheme, ranks)) for ranks in (2, steps.RANKS)
    }
    return found(
        all(near(ratio, 1) for ratio in ratios.values()),
        ", ".join(f"{ratio:.3g} times what a rank sends on {ranks} processes" for ranks, ratio in ratios.items()),
        f"P/(P - 1) is a misprint of (P - 1)/P; up to a factor of {NEAR} counts as equal", FOLLOWS,
    )  # fmt: skip


def volume_of(grid):
    """MB that a rank sends on a grid by the corrected formulas."""
    return next(row["corrected_MB"] for row in formulas.volumes() if row["grid"] == grid)


def grids():
    """(batch, model) of all grids of both axes of the paper's 32 processes."""
    return [(steps.RANKS // model, model) for model in formulas.RANKS if model < steps.RANKS]


def kilobytes(nbytes):
    return f"{nbytes / 1e3:,.0f} kB"


def ways():
    """The two ways of section 7, by its own expressions."""
    limit = formulas.crossover(FOUR).value
    below, above = (tuple(way.value for way in formulas.ways(FOUR, limit * factor)) for factor in (0.5, 2))
    first, second = (way.value for way in formulas.ways(FOUR, 0.0))
    return {
        "method_costs": found(
            first < second, f"latency {first} and {second} us, 4 and 2 blocks of data, on a grid of 2 x 2", "", FOLLOWS,
        ),
        "method_one": found(
            above[0] < above[1],
            f"2 x 2, first and second way: {below[0]:.2f} and {below[1]:.2f} us for {limit / 2:.3g} MB, "
            f"{above[0]:.2f} and {above[1]:.2f} us for {2 * limit:.3g} MB",
            "the inequality is the wrong way round: the first way is faster below this size", FOLLOWS,
        ),
    }  # fmt: skip


def outside():
    """What is not about the experiments."""
    memory = steps.machine_of().node["bandwidth"]
    parameters = sum(p.size for layer in network_of("vgg16").leaves() for p in layer.parameters)
    printed = VALUES["bandwidth_TB"] * 1e12
    return {
        "bandwidth": found(
            printed <= memory, f"the memory of one node has {memory / 1e9:.1f} GB/s, 1/{printed / memory:.0f} of it",
            "no message is faster than memory; 5.6 TB/s fit the network of the whole machine", FOLLOWS,
        ),
        "vgg16": found(
            parameters < 1e8, f"{parameters:,} parameters", "below a hundred million counts as tens of millions", FOLLOWS,
        ),
    }  # fmt: skip
