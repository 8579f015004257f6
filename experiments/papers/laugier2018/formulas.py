"""The formulas that Laugier et al. 2018 print, and what follows from them: volumes of sections 5 to 7, the way of section 7."""

from gridgrad.experiments.common.parallel_schemes import grid_of
from gridgrad.experiments.papers.cited import NOT_PRINTED, Cited, Formula, published
from gridgrad.experiments.papers.laugier2018 import byte_formulas, steps
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.plans.fewest_bytes import fewest_bytes

KNOWN = published("laugier2018")
RANKS = [2, 4, 8, 16, 32]
SCHEMES = ("batch", "model", "2d")
ITEMSIZE = 4  # float32, as it is measured here
SIZE = KNOWN.values["batch_model_size"]  # of which volumes are shown
DEPTHS = steps.HIDDEN, published("laugier2018_logs").values["hidden_layers"].value  # ours, and that of the code's logs
NEAR = 1.25  # the largest factor between two numbers that count as near


def printed_batch(ranks, size, inputs, outputs, hidden, itemsize):
    """MB of a rank in a step by the formula of section 5, without its latency."""
    widths = features(size, inputs, outputs, hidden)
    weights = sum(a * b for a, b in zip(widths, widths[1:]))
    return itemsize * 2 * ranks / (ranks - 1) * weights / 1e6


def printed_model(ranks, size, inputs, outputs, hidden, itemsize, batch_size):
    """MB of a rank in a step by the formula of section 6, without its latency."""
    return itemsize * 3 * batch_size * ranks / (ranks - 1) * sum(features(size, inputs, outputs, hidden)) / 1e6


def features(size, inputs, outputs, hidden):
    """The numbers of features d_0 to d_L."""
    return [inputs, *[size] * hidden, outputs]


BATCH_VOLUME = Formula(
    "2 sum over l of P/(P - 1) |W_l|, in MB of float32, with three hidden layers (ours)", printed_batch, "section 5"
)
MODEL_VOLUME = Formula(
    "3 sum over l of B P/(P - 1) d_l, in MB of float32, with three hidden layers (ours)", printed_model, "section 6"
)
CROSSOVER = Formula(
    "5.6 MB / (n_b n_m - max(n_b, n_m))", lambda most, batch, model: most / (batch * model - max(batch, model)), "section 7"
)
FIRST_WAY = Formula(  # in microseconds; data in MB
    "alpha + n_b n_m data beta",
    lambda latency, bandwidth, data, batch, model: latency + batch * model * data / bandwidth,
    "section 7",
)
SECOND_WAY = Formula(
    "2 alpha + max(n_b, n_m) data beta",
    lambda latency, bandwidth, data, batch, model: 2 * latency + max(batch, model) * data / bandwidth,
    "section 7",
)


def derived_volume(scheme, ranks):
    """The Cited volume in MB of a rank by the printed formula of a scheme; None for integrated parallelism, which has none."""
    data = KNOWN.tables["1"]
    network = SIZE, data.cited("inputs", "ethylene"), data.cited("outputs", "ethylene"), steps.HIDDEN, ITEMSIZE
    if scheme == "batch":
        return BATCH_VOLUME(ranks, *network)
    return MODEL_VOLUME(ranks, *network, KNOWN.values["batch_size"]) if scheme == "model" else None


def volumes():
    """Rows: MB that a rank sends in a step, on average: by the printed formulas, by the corrected ones, and ours."""
    widths, rows = steps.widths_of(SIZE.value, steps.HIDDEN), []
    for ranks in RANKS:
        for scheme in SCHEMES:
            grid = grid_of(scheme, ranks)
            if grid is None:
                continue
            batch, model = sizes_of(grid)
            derived, shared = derived_volume(scheme, ranks), byte_formulas.gradients(widths, batch, model)
            plan = fewest_bytes(list(zip(widths, widths[1:])), model)
            rows.append(
                {
                    "ranks": ranks,
                    "grid": grid,
                    "derived_MB": derived.value if isinstance(derived, Cited) else None,
                    "corrected_MB": (shared + laugier(widths, batch, model)) / ranks / 1e6,
                    "ours_MB": (shared + byte_formulas.activations(steps.BATCH_SIZE, widths, plan, batch, model)) / ranks / 1e6,
                }
            )
    return rows


def sent(size, hidden, batch, model):
    """Bytes of float32 that a rank sends in a step of Algorithms 1 to 3, on average, by the corrected formulas."""
    widths = steps.widths_of(size, hidden)
    return (byte_formulas.gradients(widths, batch, model) + laugier(widths, batch, model)) / (batch * model)


def laugier(widths, batch, model):
    """Bytes of the activations that all ranks send in a step of Algorithms 2 and 3, by the corrected formula."""
    return byte_formulas.laugier_activations(steps.BATCH_SIZE, widths, batch, model)


def crossovers():
    """Rows: the size of a block, in MB, below which sending from rank 0 is faster, for the paper's constants of Cori.

    alpha + n_b n_m data beta < 2 alpha + max(n_b, n_m) data beta, solved for data. The paper has the same number with the
    opposite inequality.
    """
    grids = dict.fromkeys(filter(None, (grid_of("2d", ranks) for ranks in RANKS)))
    return [{"grid": grid, "scatter_faster_below_MB": crossover(grid).value} for grid in grids]


def crossover(grid):
    """The Cited size of a block for a grid."""
    return CROSSOVER(KNOWN.values["crossover_MB"], *sizes_of(grid))


def ways(grid, data):
    """(microseconds of the first way, of the second way) by the formulas of section 7, Cited. data: MB of a block."""
    constants = KNOWN.values["latency_us"], KNOWN.values["bandwidth_TB"]  # 1 TB/s is 1 MB in a microsecond
    return tuple(way(*constants, data, *sizes_of(grid)) for way in (FIRST_WAY, SECOND_WAY))


def sizes_of(grid):
    """(ranks along the batch, ranks along the model) of a grid as text."""
    sizes = parse_grid(grid)
    return sizes.get("batch", 1), sizes.get("model", 1)


def size_of(net):
    """The model size of a network as text, such as "mlp:32,32,32,relu"."""
    return int(net.removeprefix("mlp:").split(",")[0])


def hidden_of(net):
    """The number of its hidden layers."""
    return net.count(",")


def near(number, other):
    """Whether two numbers differ by a factor of at most NEAR."""
    return 1 / NEAR <= number / other <= NEAR


def published_speedups():
    """Rows: the speedups that the paper prints, with what it says of each."""
    named = {name: cited.value for name, cited in KNOWN.values.items()}
    rows = (
        ("batch", "batch_speedup", named["batch_model_size"], named["batch_ranks"], "abstract, section 10"),
        ("batch", "batch_speedup", named["batch_model_size_again"], named["batch_ranks"], "section 9.0.1"),
        ("model", "model_speedup", named["model_model_size"], NOT_PRINTED, "abstract, sections 9.0.2 and 10"),
        ("2d, over batch", "integrated_ratio", named["integrated_model_size"], NOT_PRINTED, "abstract, sections 9.0.3 and 10"),
    )
    return [
        {"scheme": scheme, "model size": size, "ranks": ranks, "printed": named[name], "place": place}
        for scheme, name, size, ranks, place in rows
    ]
