"""Laugier et al. 2018: what would have to be true of their machine or of their code for their speedups to come out.

    gridgrad study laugier2018-search --out results/laugier2018/search.json

The cost model reverses the order that the paper prints. Here assumptions that the paper leaves open are combined, all with all
(`experiments/papers/laugier2018_steps.py` has them with their sources), and for each combination the steps of one process, of
batch, of model and of integrated parallelism are predicted. Nothing is measured, and nothing drawn by chance. Writes the
numbers, and a document beside them, as .md.
"""

import math
from pathlib import Path

import numpy as np

from gridgrad.experiments.common.markdown import lines as markdown
from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.report import write_json, write_text
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.papers import laugier2018_steps as steps
from gridgrad.experiments.papers.cited import published
from gridgrad.parallel.job.run import run_launcher

KNOWN = published("laugier2018").values
BATCH_SIZES = KNOWN["batch_model_size"].value, KNOWN["batch_model_size_again"].value
MODEL_SIZE, INTEGRATED_SIZE = KNOWN["model_model_size"].value, KNOWN["integrated_model_size"].value
RANKS = [2, 4, 8, 16, 32]
FOUND = {  # what is compared: the printed number
    f"batch, {BATCH_SIZES[0]}": KNOWN["batch_speedup"].value, f"batch, {BATCH_SIZES[1]}": KNOWN["batch_speedup"].value,
    "model": KNOWN["model_speedup"].value, "2-D over batch": KNOWN["integrated_ratio"].value,
}  # fmt: skip
NEAR = 1.25  # the largest factor between a predicted and a printed number with which these count as near
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
    known = published("laugier2018_logs")
    table, minibatches = known.tables["seconds"], known.values["samples"].value / steps.BATCH_SIZE
    cases = tuple((line["model size"], line["batch"], line["model"]) for line in table.lines())
    predicted = steps.seconds(cases, steps.AS_LOGGED)
    logged = [line["seconds"] / known.values["epochs"].value / minibatches for line in table.lines()]
    alone = {case[0]: (a, b) for case, a, b in zip(cases, logged, predicted) if case[1:] == (1, 1)}
    return [
        {"model size": size, "grid": f"batch={batch},model={model}", "logged ms": 1e3 * theirs,
         "predicted ms": 1e3 * float(ours), "logged speedup": alone[size][0] / theirs,
         "predicted speedup": float(alone[size][1] / ours)}
        for (size, batch, model), theirs, ours in zip(cases, logged, predicted)
    ]  # fmt: skip


def cells(row):
    """The row of a table of a combination."""
    return {**row, "assumed": steps.words(row["assumed"]), "order": "yes" if row["order"] else "no"}


def document(found):
    """The lines of the document."""
    fewest, near = found["fewest_in_order"], found["fewest_near"]
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
    yield ("Milliseconds of a minibatch of ethylene in the logs of the code that section 11.4 names, one process a node of "
           "Cori, beside those predicted for what the code and its logs show. Two numbers are fitted to them: the time of a "
           "number in a list, and that of a layer. What is predicted for 8 to 32 processes is not fitted.\n")  # fmt: skip
    yield markdown(found["logs"])


def conclusion(found):
    """What the search says, and what it can not say, in a paragraph."""
    logged, base = found["alone"][-1], found["alone"][0]
    numbers = lambda row: ", ".join(f"{row[name]:.3g} ({name})" for name in FOUND)  # noqa: E731
    singles = [steps.words(row["assumed"]) for row in found["alone"][1:-1] if row["order"]]
    has = {(row["assumption"], row["option"]): row for row in found["shares"]}
    one, lists = has[steps.LAYERS, 1], has[steps.MESSAGES, steps.LISTS]
    off = max(abs(math.log(row["predicted ms"] / row["logged ms"])) for row in found["logs"])
    return (
        f"The cost model as it is gives {numbers(base)}, the reverse of the paper's order. "
        + (f"These assumptions alone bring the order out: {' | '.join(singles)}. " if singles
           else "No assumption alone brings the order out. ")
        + f"Of {found['combinations']:,} combinations it comes out in {found['in_order']:,}, of which each has at least "
        f"{found['fewest_in_order']['assumptions']} assumptions and {percent(one['of those in order'])} have a single hidden "
        "layer: then there are few gradients and many activations, as suits batch parallelism. In "
        f"{found['near']:,} all numbers are within a factor of {found['near_is']} of the printed ones; of these "
        f"{percent(one['of those near'])} have one hidden layer, and in {percent(lists['of those near'])} messages go through "
        f"Python lists. The paper's public code and its logs show both, and one process a node. This gives {numbers(logged)}, "
        f"within a factor of {logged['farthest by the factor']:.2f} of the paper, and the milliseconds of the logs within "
        f"{percent(math.expm1(off))}; "
        + ("the order comes out. " if logged["order"] else "on 32 processes 2-D is then a little faster than batch. ")
        + "So the printed order need not come from the three ways to be parallel: turning numbers into Python objects and "
        "back, one by one, takes most of a step, batch parallelism divides this work by its ranks, and model parallelism "
        "hardly divides it at all. What was true of the runs behind the printed numbers can not be known from this: the paper "
        "has neither seconds nor the depth of its networks, and other combinations come as close."
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
    beside = Path(args.out).with_suffix(".md")
    with user_input():
        if beside == Path(args.out):
            raise ValueError(f"--out {args.out}: name the file of the numbers; the document goes beside it, as .md")
        check_writable(args.out)
        check_writable(beside)
    found = result()
    text = "\n".join(document(found)) + "\n"
    write_json(args.out, found)
    write_text(beside, text)
    print(terminal(text))
    print(f"numbers written to {args.out}, the document to {beside}")


if __name__ == "__main__":
    run_launcher(main)
