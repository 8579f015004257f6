"""The document of the study `simulators`."""

from collections import Counter
from statistics import median
from textwrap import fill

from gridgrad.experiments.common.markdown import lines
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.studies.simulators.points import NEAR

WIDTH = 120  # of the lines of text
MOST = f"{100 * NEAR:g} %"
TITLE = """# Predictions beside SimGrid's

Written by `gridgrad study simulators`. Each step is predicted by the cost model, and replayed by SMPI, the MPI of SimGrid,
from traces that `gridgrad explain --export` writes: the same operations, which take the same seconds, and the same bytes. What
differs is how collectives and messages are simulated: SMPI sends every message of an algorithm over links that are shared.
Collectives of all ranks are SMPI's, with the choices of MPICH; others are written as messages. A step is one alone."""
CAUSES = {
    "an algorithm": "Written as messages, with as many rounds and bytes as the table of collectives says, the collectives of "
    "all ranks take in SMPI what the cost model predicts. SMPI itself takes MPICH's: an all-gather of 512 KiB or more is a "
    "ring, a reduce-scatter of more than 512 KiB is pairwise. Either has ranks - 1 rounds, where the formula counts "
    "log2(ranks) latencies; and in pairwise rounds most bytes go from node to node, where the formula counts that they do so "
    "once for each node. MPICH does the same on a real machine: there the formula, which is that of the best algorithm, is too "
    "low.",
    "another rank": "The cost model looks at the rank that it takes for the one with the most work, and predicts as much as "
    "SMPI for another one. The prediction is too low, and SMPI is right.",
    "overlap": "The cost model lets a collective overlap with computing, as the real program does; in the trace it does not, "
    "because SMPI's replay knows no collectives that do. The trace is too slow.",
    "measured collectives": "The machine file has measured times of collectives, by which the cost model predicts; the "
    "platform of SMPI has one latency and one bandwidth. By these alone, the cost model predicts what SMPI does.",
    "several": "An algorithm, as above, and one of the other causes together.",
    "open": "None of the above explains it.",
}


def cause(row):
    """Why the two predictions of a row differ: a key of CAUSES, or "" where they are near each other."""
    if abs(row["difference"]) <= NEAR:
        return ""
    far = {
        "an algorithm": row["as_messages"] / row["predicted"],
        "another rank": row["simulated"] / row["longest"],
        "overlap": row["simulated"] / row["alone"],
    }
    if "formula" in row:
        far["measured collectives"] = row["simulated"] / row["formula"]
    best = min(far, key=lambda name: abs(far[name] - 1))
    if abs(far[best] - 1) <= NEAR:
        return best
    together = row.get("formula", max(row["longest"], row["alone"]))
    return "several" if abs(row["as_messages"] / together - 1) <= NEAR else "open"


def document(found):
    """Yield the lines of the document. found: the results of the study."""
    yield TITLE
    if found["steps"]:
        yield from of_steps(found["steps"])
    if found["collectives"]:
        yield from of_collectives(found["collectives"])
    if found["measured"]:
        yield from of_measured(found["measured"])


def of_steps(rows):
    yield "\n## Steps\n"
    yield summary(rows)
    yield ""
    yield lines([totals(machine, [row for row in rows if row["machine"] == machine]) for machine in names(rows)])
    yield ""
    yield lines([
        {"machine": row["machine"], "network": row["net"], "batch": row["batch_size"], "ranks": row["ranks"],
         "grid": row["grid"], "ms predicted": 1e3 * row["predicted"], "ms in SMPI": 1e3 * row["simulated"],
         "difference": percent(row["difference"]), "why": cause(row) or "-"}
        for row in rows
    ])  # fmt: skip
    yield from reasons(rows, f"\n## Differences above {MOST}\n")


def reasons(rows, title):
    """Yield a title and, for each cause of a difference between the two predictions, what it is; nothing if all are near."""
    causes = Counter(filter(None, map(cause, rows)))
    if causes:
        yield title
    for name in filter(causes.get, CAUSES):
        yield fill(f"- **{name}**, {counted(causes[name], 'step')}: {CAUSES[name]}", WIDTH, subsequent_indent="  ")


def summary(rows):
    """The numbers of all steps in words."""
    far, ranks = [abs(row["difference"]) for row in rows], [row["ranks"] for row in rows]
    return fill(
        f"{len(rows)} steps on {min(ranks)} to {max(ranks):,} ranks: the median difference is {percent(median(far), '')}, the "
        f"worst {percent(max(far), '')}. It is above {MOST} for {counted(sum(one > NEAR for one in far), 'step')}.",
        WIDTH,
    )


def totals(name, rows):
    """The row of a machine in the first table."""
    far = [abs(row["difference"]) for row in rows]
    return {
        "machine": name, "steps": len(rows), "difference, median": percent(median(far), ""), "worst": percent(max(far), ""),
        f"above {MOST}": sum(one > NEAR for one in far),
    }  # fmt: skip


def of_collectives(rows):
    yield "\n## One collective of all ranks\n"
    text = (
        "How much longer one takes in SMPI than the formula says, with the algorithms that SMPI takes as MPICH would, and "
        "written as messages. Reduce-scatters of 512 KiB or less are by recursive doubling in SMPI, which sends more bytes "
        "than MPICH's recursive halving: there SMPI is wrong."
    )
    yield f"{fill(text, WIDTH)}\n"
    yield lines([
        {"machine": row["machine"], "collective": row["kind"], "ranks": row["ranks"], "KiB": row["bytes"] // 1024,
         "ms predicted": 1e3 * row["predicted"], "SMPI's algorithm": percent(row["simulated"] / row["predicted"] - 1),
         "as messages": percent(row["as_messages"] / row["predicted"] - 1)}
        for row in rows
    ])  # fmt: skip


def of_measured(rows):
    yield "\n## Measured steps\n"
    for machine in names(rows):
        of_machine = [row for row in rows if row["machine"] == machine]
        for name, key in (("the cost model", "predicted"), ("SMPI", "simulated")):
            far = [abs(row[key] / row["measured"] - 1) for row in of_machine]
            middle, worst = percent(median(far), ""), percent(max(far), "")
            yield f"- {machine}: {name} was off by {middle} in the median of {counted(len(far), 'step')}, at worst by {worst}"
    yield ""
    yield lines([
        {"machine": row["machine"], "network": row["net"], "batch": row["batch_size"], "grid": row["grid"],
         "plan": row["plan"] or "-", "ms measured": 1e3 * row["measured"],
         "predicted": percent(row["predicted"] / row["measured"] - 1),
         "SMPI": percent(row["simulated"] / row["measured"] - 1),
         "difference": percent(row["difference"]), "why": cause(row) or "-"}
        for row in rows
    ])  # fmt: skip
    yield from reasons(rows, f"\nThe difference is between SMPI's time and the predicted one. Why it is above {MOST}:\n")


def names(rows):
    """The machines of some rows, each once, in their order."""
    return list(dict.fromkeys(row["machine"] for row in rows))


def percent(number, sign="+"):
    return f"{100 * number:{sign}.1f} %"
