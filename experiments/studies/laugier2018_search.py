"""Laugier et al. 2018: what would have to be true of their machine or of their code for their speedups to come out.

    gridgrad study laugier2018-search --out results/laugier2018/search.json

The cost model reverses the order that the paper prints. Here assumptions that the paper leaves open are combined, all with all
(`experiments/papers/laugier2018/steps.py` has them with their sources), and for each combination the steps of one process, of
batch, of model and of integrated parallelism are predicted. Nothing is measured, and nothing drawn by chance. Writes the
numbers, and a document beside them, as .md.
"""

import numpy as np

from gridgrad.experiments.common.markdown import lines as markdown
from gridgrad.experiments.common.options import Parser, user_input, writable_beside
from gridgrad.experiments.common.report import write_json, write_text
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.laugier2018 import steps
from gridgrad.experiments.papers.laugier2018.formulas import NEAR, RANKS
from gridgrad.parallel.job.run import run_launcher

KNOWN = published("laugier2018").values
BATCH_SIZES = KNOWN["batch_model_size"].value, KNOWN["batch_model_size_again"].value
MODEL_SIZE, INTEGRATED_SIZE = KNOWN["model_model_size"].value, KNOWN["integrated_model_size"].value
FOUND = {  # what is compared: the printed number
    f"batch, {BATCH_SIZES[0]}": KNOWN["batch_speedup"].value, f"batch, {BATCH_SIZES[1]}": KNOWN["batch_speedup"].value,
    "model": KNOWN["model_speedup"].value, "2-D over batch": KNOWN["integrated_ratio"].value,
}  # fmt: skip
OF_LISTS, OF_LAYERS = np.arange(0, 205, 5) * 1e-9, np.arange(0, 1050, 50) * 1e-6  # seconds that `fit` tries
SHOWN = 12  # rows of a long list
GRIDS = [(ranks, ranks // model, model) for ranks in RANKS[1:] for model in RANKS if model < ranks]  # of both axes
CASES = (
    *((size, 1, 1) for size in BATCH_SIZES), *((size, 32, 1) for size in BATCH_SIZES),
    *((MODEL_SIZE, 1, ranks) for ranks in RANKS), *((INTEGRATED_SIZE, ranks, 1) for ranks in RANKS[1:]),
    *((INTEGRATED_SIZE, batch, model) for _, batch, model in GRIDS),
)  # fmt: skip


def ratios(seconds):
    """What is compared, as FOUND has it, for the seconds of steps: (combinations, CASES). Returns (combinations, 4).

    Of model parallelism the best of all numbers of ranks counts, of integrated parallelism the best grid beside batch
    parallelism on as many ranks, since the paper names neither.
    """
    serial, batch, model, pure, both = np.split(seconds, np.cumsum([2, 2, len(RANKS), len(RANKS) - 1]), axis=1)
    beside = pure[:, [RANKS[1:].index(ranks) for ranks, *_ in GRIDS]]
    best_model = serial[:, [CASES.index((MODEL_SIZE, 1, 1))]] / model.min(axis=1, keepdims=True)
    return np.hstack([serial / batch, best_model, (beside / both).max(axis=1, keepdims=True)])


def distances(found):
    """By which factor the farthest of the four numbers is from the printed one."""
    return np.exp(np.abs(np.log(found / np.array(list(FOUND.values())))).max(axis=1))


def in_order(found):
    """Whether the order of the paper comes out: batch parallelism gains, and more than model, and 2-D does not surpass it."""
    batch, again, model, both = found.T
    return (batch > 1) & (again > 1) & (batch > model) & (both < 1)


def search():
    """(combinations, {assumption: option} each; their (combinations, 4) numbers; their distances)."""
    choices = list(steps.combinations())
    found = ratios(np.array([steps.seconds(CASES, choice) for choice in choices]))
    return choices, found, distances(found)


def assumed(choice):
    """What a combination assumes beyond the cost model, {assumption: option}."""
    return {name: option for name, option in choice.items() if option != steps.BASE[name]}


def row_of(choice, found, distance):
    """A combination as a dict."""
    return {"assumed": assumed(choice), **dict(zip(FOUND, map(float, found))), "farthest by the factor": float(distance),
            "order": bool(in_order(found[None])[0])}  # fmt: skip


def alone():
    """Rows: what the cost model takes, then each option alone, then what the paper's code and logs show."""
    choices = [steps.BASE]
    choices += [steps.BASE | {one.name: option} for one in steps.ASSUMPTIONS for option in one.options[1:]]
    choices.append(steps.AS_LOGGED)
    found = ratios(np.array([steps.seconds(CASES, choice) for choice in choices]))
    return list(map(row_of, choices, found, distances(found)))


def result():
    """The report: all that is found."""
    choices, found, far = search()
    order, near, counts = in_order(found), far <= NEAR, np.array([len(assumed(choice)) for choice in choices])
    ranked = sorted(range(len(choices)), key=lambda i: (far[i], counts[i]))

    def fewest(wanted):
        least = int(counts[wanted].min()) if wanted.any() else 0
        return {"assumptions": least, "rows": rows_of(i for i in ranked if wanted[i] and counts[i] == least)}

    def rows_of(which):
        """Without those that only add what changes nothing."""
        distinct = {tuple(np.round(found[i], 6)): i for i in reversed(list(which))}
        return [row_of(choices[i], found[i], far[i]) for i in reversed(distinct.values())][:SHOWN]

    report = {
        "predicted": True, "printed": FOUND, "combinations": len(choices), "near_is": NEAR,
        "in_order": int(order.sum()), "near": int(near.sum()), "near_and_in_order": int((near & order).sum()),
        "alone": alone(), "fewest_in_order": fewest(order), "fewest_near": fewest(order & near),
        "closest": rows_of(ranked[: 10 * SHOWN]), "shares": shares(choices, order, near), "logs": logs(),
        "fit": fit(), "lists": lists(),
    }  # fmt: skip
    return report | {"conclusion": conclusion(report)}


def shares(choices, order, near):
    """Rows: in which share of the combinations in order, and of those near, an option is."""
    found = []
    for one in steps.ASSUMPTIONS:
        for option in one.options:
            has = np.array([choice[one.name] == option for choice in choices])
            found.append({"assumption": one.name, "option": option, "of all": float(has.mean()),
                          "of those in order": share(has, order), "of those near": share(has, near)})  # fmt: skip
    return found


def share(has, which):
    """The share of an array of truths among those that count; None if none does."""
    return float(has[which].mean()) if which.any() else None


def logs():
    """Rows: the milliseconds of a step in the logs of the paper's code, and those predicted for what both show."""
    cases, logged = logged_steps()
    predicted = steps.seconds(cases, steps.AS_LOGGED)
    alone = {case[0]: (a, b) for case, a, b in zip(cases, logged, predicted) if case[1:] == (1, 1)}
    return [
        {"model size": size, "grid": f"batch={batch},model={model}", "logged ms": 1e3 * float(theirs),
         "predicted ms": 1e3 * float(ours), "logged speedup": float(alone[size][0] / theirs),
         "predicted speedup": float(alone[size][1] / ours)}
        for (size, batch, model), theirs, ours in zip(cases, logged, predicted)
    ]  # fmt: skip


def logged_steps():
    """(cases, the seconds of a step of each) in the logs of the paper's code."""
    known = published("laugier2018_logs")
    minibatches = known.values["epochs"].value * known.values["samples"].value / steps.BATCH_SIZE
    *cases, seconds = zip(*known.tables["seconds"].rows)
    return tuple(zip(*cases)), np.array(seconds) / minibatches


def fit():
    """The seconds of a number in a list and of a layer, of OF_LISTS and OF_LAYERS, that fit the logs best, and how well.

    Best is the least mean square of the logarithm of predicted over logged seconds; the factors are those of both.
    """
    cases, logged = logged_steps()
    buffers, whole = without_lists(cases), steps.seconds(cases, steps.AS_LOGGED)
    numbers = (whole - buffers) / steps.OF_LIST  # that become objects, or are read from them
    layers = steps.interpreting(steps.AS_LOGGED) / steps.OF_LAYER
    rest = buffers - steps.interpreting(steps.AS_LOGGED)
    off = np.log((rest + numbers * OF_LISTS[:, None, None] + layers * OF_LAYERS[:, None]) / logged)
    square = (off**2).mean(axis=-1)
    of_list, of_layer = np.unravel_index(square.argmin(), square.shape)
    return {
        "seconds a number in a list": float(OF_LISTS[of_list]), "seconds a layer": float(OF_LAYERS[of_layer]),
        "typical factor": float(np.exp(np.sqrt(square[of_list, of_layer]))),
        "largest factor": float(np.exp(np.abs(off[of_list, of_layer]).max())),
    }  # fmt: skip


def without_lists(cases):
    """Seconds of steps of the paper's code if its messages were buffers."""
    return steps.seconds(cases, steps.AS_LOGGED | {steps.MESSAGES: steps.BASE[steps.MESSAGES]})


def lists():
    """Rows: the part of a step of the paper's code that turns numbers into Python objects and back."""
    cases = tuple((size, *grid) for size in sorted(BATCH_SIZES) for grid in ((1, 1), (steps.RANKS, 1), (1, steps.RANKS)))
    shares = 1 - without_lists(cases) / steps.seconds(cases, steps.AS_LOGGED)
    return [
        {"model size": size, "grid": f"batch={batch},model={model}", "part of a step": float(part)}
        for (size, batch, model), part in zip(cases, shares)
    ]


def cells(row):
    """The row of a table of a combination."""
    return {**row, "assumed": steps.words(row["assumed"]), "order": "yes" if row["order"] else "no"}


def document(found):
    """The lines of the document."""
    fewest, near, fitted = found["fewest_in_order"], found["fewest_near"], found["fit"]
    ns, ms = 1e9 * fitted["seconds a number in a list"], 1e3 * fitted["seconds a layer"]
    yield "# Laugier et al. 2018: what would have to be true\n"
    yield f"All of this is predicted. {found['conclusion']}\n"
    yield ("A distance is the factor by which the farthest of four numbers is from the printed one: "
           + ", ".join(f"{value} ({name})" for name, value in found["printed"].items()) + ". The order is that of the paper "
           "where batch parallelism on 32 processes is faster than one process and than model parallelism at its best, and "
           f"integrated parallelism at its best does not surpass it. Near is a distance of at most {NEAR}.\n")  # fmt: skip
    yield "## What is assumed\n"
    yield markdown([
        {"assumption": one.name, "the cost model": one.options[0], "tried": ", ".join(map(str, one.options[1:])),
         "why": one.source} for one in steps.ASSUMPTIONS
    ])  # fmt: skip
    yield "\n## Each assumption alone\n"
    yield "The last row is what the paper's public code and its logs show.\n"
    yield markdown(list(map(cells, found["alone"])))
    for title, part in (
        ("The fewest with which the order comes out", fewest),
        ("The fewest with which it comes out near", near),
    ):
        yield f"\n## {title}: {part['assumptions']}\n"
        if part["rows"]:
            yield markdown(list(map(cells, part["rows"][:SHOWN])))
    yield "\n## The closest\n"
    yield markdown(list(map(cells, found["closest"])))
    yield "\n## How often an option is among them\n"
    yield markdown(found["shares"])
    yield "\n## The logs of the paper's code\n"
    yield (
        "Milliseconds of a minibatch of ethylene in the logs of the code that section 11.4 names, one process a node of Cori, "
        "beside those predicted for what the code and its logs show. Two numbers are fitted to them: "
        f"{ns:.0f} ns a number in a list, of multiples of 5 ns, and {ms:.2f} ms a layer, of multiples of 0.05 ms. Then a step "
        f"is predicted within a factor of {fitted['typical factor']:.2f} (the root of the mean square of the logarithms), and "
        f"of {fitted['largest factor']:.2f} at most. What is predicted for 8 to 32 processes is not fitted.\n"
    )
    yield markdown(found["logs"])
    yield "\nThe part of such a step that turns numbers into Python objects and back:\n"
    yield markdown(found["lists"])


def conclusion(found):
    """What the search says, and what it can not say, in a paragraph."""
    logged, base = found["alone"][-1], found["alone"][0]
    numbers = lambda row: ", ".join(f"{row[name]:.3g} ({name})" for name in FOUND)  # noqa: E731
    singles = [steps.words(row["assumed"]) for row in found["alone"][1:-1] if row["order"]]
    has = {(row["assumption"], row["option"]): row for row in found["shares"]}
    one, listed = has[steps.LAYERS, 1], has[steps.MESSAGES, steps.LISTS]
    parts = [row["part of a step"] for row in found["lists"]]
    bare = [row for row in found["closest"] if row["assumed"].get(steps.MESSAGES) != steps.LISTS]
    return (
        f"The cost model as it is gives {numbers(base)}, the reverse of the paper's order. "
        + (f"These assumptions alone bring the order out: {' | '.join(singles)}. " if singles
           else "No assumption alone brings the order out. ")
        + f"Of {found['combinations']:,} combinations it comes out in {found['in_order']:,}, of which each has at least "
        f"{found['fewest_in_order']['assumptions']} assumptions and {percent(one['of those in order'])} have a single hidden "
        "layer: then there are few gradients and many activations, as suits batch parallelism. In "
        f"{found['near']:,} all numbers are within a factor of {found['near_is']} of the printed ones; of these "
        f"{percent(one['of those near'])} have one hidden layer, and in {percent(listed['of those near'])} messages go through "
        f"Python lists. The paper's public code and its logs show both, and one process a node. This gives {numbers(logged)}, "
        f"within a factor of {logged['farthest by the factor']:.2f} of the paper, and the milliseconds of the logs within "
        f"{percent(found['fit']['largest factor'] - 1)}; "
        + ("the order comes out. " if logged["order"] else "but the order does not quite come out: at its best 2-D is "
           f"{logged['2-D over batch']:.3g} times as fast as batch. ")
        + "So the printed order may say little of the three ways to be parallel: turning numbers into Python objects and back "
        f"takes {percent(min(parts))} to {percent(max(parts))} of such a step, batch parallelism divides this work by its "
        "ranks, and model parallelism hardly divides it at all. Lists are not needed for that order, though: "
        f"{percent(listed['of those in order'])} of the combinations in it have them, and {len(bare)} of the "
        f"{len(found['closest'])} closest have none{', the closest of all among them' * (found['closest'][0] in bare)}. "
        "What was true of the runs behind the printed numbers can not be known: the paper has neither seconds nor the depth "
        "of its networks."
    )  # fmt: skip


def percent(share):
    """A share in words."""
    return "none" if share is None else f"{share:.0%}"


def options():
    parser = Parser(
        prog="study laugier2018-search",
        description="What would have to be true for the speedups of Laugier et al. (2018) to come out? Starts no job.",
    )
    parser.add_argument("--out", default="results/laugier2018/search.json", metavar="FILE.json",
                        help="the numbers; the document goes beside it, as .md")  # fmt: skip
    return parser


def main():
    args = options().parse_args()
    with user_input():
        beside = writable_beside(args.out, ".md", ("numbers", "document"))
    found = result()
    text = "\n".join(document(found)) + "\n"
    write_json(args.out, found)
    write_text(beside, text)
    print(terminal(text))
    print(f"numbers written to {args.out}, the document to {beside}")


if __name__ == "__main__":
    run_launcher(main)
