"""Grabaskas: Automated parallelization to improve usability and efficiency of distributed neural network training (2018).

Tables 4.13 to 4.23 and Appendices C and D of the thesis (TorchAD-NN): printed, measured here, predicted for its network. What
is run is in `grabaskas2018_lines.py`.

- `Train()`, Torch's StochasticGradient: sample by sample on each node's stripe, averaged every n samples
  (`parallel/protocols/averaging.py`).
- `Backward()`: one all-reduce of the gradients a batch, n samples of each node: `train_step` on the grid `batch=P`.
- Model-parallel: sample by sample on `model=P` with the plans of `PLANS`. The thesis splits a dense layer by its inputs and
  all-reduces its outputs, so that every node has all of them, and their gradients again in backward; a layer that is not
  split is computed by every node, redundantly. So it is here, but that a split layer leaves partial sums, which the next split
  layer takes over with a reduce-scatter alone.
"""

from math import log2, prod

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.cited import derived, ratio
from gridgrad.experiments.papers.expressions import MissingError
from gridgrad.experiments.papers.grabaskas2018_lines import KNOWN, gathered, lines, parameters, processor_of, to_measure  # noqa: F401
from gridgrad.experiments.papers.paper import kept
from gridgrad.experiments.studies.usability.__main__ import KEYWORDS, QUOTES, added, measure, programs, source, statements
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.process_grid import GridDescription, parse_grid
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read

MACHINE = "ethernet-1g"  # of parallel/prediction/machines: the network of section 3.1.3
TABLES = {
    "4.14": ["C.36", "C.40", "C.44", "C.48", "C.52", "C.53", "C.56", "C.59", "C.62", "C.65"],
    "4.15": ["C.3", "C.8", "C.11", "C.14", "C.17", "C.20", "C.23", "C.26", "C.29", "C.32"],
    "4.16": [f"C.{i}" for i in (1, 2, 3, *range(6, 18))],
    "4.17": ["C.4", "C.5", "C.7", "C.10"],
    "4.18": ["C.53", "C.56", "C.59"],
    "4.19": ["C.18", "C.21", "C.24"],
    "4.21": [f"D.{i}" for i in range(71, 80)],
    "4.22": [f"D.{i}" for i in (94, 95, 97, 98, 100, 101, 103, 104, 106, 107)],
    "4.23": [f"D.{i}" for i in range(84, 94)],
    "Appendix C": [f"C.{i}" for i in range(1, 68)],
    "Appendix D": [f"D.{i}" for i in range(68, 109)],
}
READING = ("4.18", "4.19")  # tables of pre-processing
QUANTITIES = {"s": "seconds", "efficiency": "efficiency, %", "accuracy": "accuracy, %"}  # columns of ours, and in words
OF_READING = {"pre-processing": "seconds", "speedup": "speedup"}
PRINTED = {"s": "seconds", "speedup": "speedup of pre-processing"}  # columns of the appendices that are called otherwise
LUA = frozenset({"local", "for", "do", "if", "then", "elseif", "else", "end", "function", "return", "self"})
PROGRAMS = {  # of the thesis: the table with its added lines, and our program with the same purpose
    "Manual Backward()": ("4.9", "by_hand_data"),
    "Automated Backward()": ("4.10", "data"),
    "Manual SGD Train()": ("4.11", "by_hand_data"),
    "Automated SGD Train()": ("4.12", "data"),
}
OF_MODEL = {"Manual Model Parallel SGD Train()": "by_hand_model", "Auto Model Parallel SGD Train()": "model"}
SAME = {program: mine for program, (_, mine) in PROGRAMS.items() if "Backward" in program} | OF_MODEL
NOT_RUN = "these lines were not run yet: `gridgrad reproduce grabaskas2018`"
NOT_RUN_WHOLE = "these lines were not run whole yet: `gridgrad reproduce grabaskas2018 --full`"


# ----- tables


def tables(measured=None):
    """{name: rows} of all tables, "runs" and "machine" of the measurement, where there is one."""
    runs = (measured or {}).get("runs", {})
    processor_of(runs)
    found = {name: [(reading if name in READING else training)(lines()[ref], runs) for ref in refs]
             for name, refs in TABLES.items()}  # fmt: skip
    for row in found["Appendix C"]:
        pre = reading(lines()[row["ref"]], runs)
        row.update({key: pre[key] for key in ("pre-processing, published", "pre-processing, measured")})
    return found | {key: measured[key] for key in ("machine", "runs") if runs}


def reading(line, runs):
    """A row of pre-processing: seconds and speedups."""
    times = [_of(runs, other.reading(), "seconds") for other in (line, line.single)]
    return {
        **head(line), "pre-processing, published": value(line, "pre-processing"), "pre-processing, measured": times[0],
        "speedup, published": value(line, "speedup of pre-processing"),
        "speedup, measured": times[1] / times[0] if line.nodes > 1 and None not in times else None,
        "how": how(line.reading(), runs),
    }  # fmt: skip


def training(line, runs):
    """A row of training: seconds, accuracy and efficiency in percent. The times are those of the whole run where there is one.
    An efficiency is that of two whole runs or of two short ones."""
    whole, foreseen = line.run(whole=True), predicted(line)
    timed = whole if _of(runs, whole, "seconds") else line.run(whole=False)
    share = None if line.nodes == 1 or foreseen is None else 100 * line.single.seconds / foreseen / line.nodes
    times = pair(line, runs) if line.nodes > 1 else None
    return {
        **head(line), "s, published": line.seconds, "s, measured": scaled(line, timed, runs), "s, predicted": foreseen,
        "accuracy, published": value(line, "accuracy"), "accuracy, measured": _of(runs, whole, "accuracy"),
        "efficiency, published": value(line, "efficiency"),
        "efficiency, measured": times and 100 * times[1] / times[0] / line.nodes, "efficiency, predicted": share,
        "how": how(timed, runs) + ("" if timed.test or not _of(runs, whole, "accuracy") else ", the accuracy of a whole run"),
    }  # fmt: skip


def value(line, column):
    """A number that the thesis prints of a line, or None."""
    found = line.cited(column)
    return found and found.value


def head(line):
    """The columns that identify a line of a table."""
    names = {"ref": line.ref, "device": line.device, "nodes": line.nodes}
    if line.method != "model":
        return names | {"version": f"{line.version} {line.method}", "n": line.n}
    return names | {"net": line.model, "samples": line.samples} | dict(zip(("FLS", "SLS", "TLS"), line.widths))


def scaled(line, run, runs):
    """Measured seconds of all the samples of a line, from one of its runs; None if that was not made."""
    time = _of(runs, run, "seconds")
    return None if time is None else time * line.samples * line.passes / (run.samples * run.passes)


def pair(line, runs):
    """(measured seconds of a line, those of its single node) of two runs of a kind, the whole ones first; None if none are. Nor
    are there any where ranks had to share cores."""
    for whole in (True, False):
        times = [scaled(one, one.run(whole), runs) for one in (line, line.single)]
        if None not in times and not _of(runs, line.run(whole), "oversubscribed"):
            return times
    return None


def predicted(line):
    """Predicted seconds of a line, from the printed ones of its single node; None where there are none.

    A round of `Train()`, n samples on each node and one average, sends as many bytes as a step on those samples. A step takes
    what is sent, as the machine's network takes it, and the share of the single node's seconds that a rank computes, in
    proportion to the cost model's own (`parallel/prediction/cost.py`).
    """
    if line.nodes == 1 or not isinstance(line.single.seconds, float):
        return None
    steps = line.samples * line.passes / line.batch_size
    share, sent = step_of(line)
    return steps * (share * line.single.seconds / steps + sent)


def step_of(line):
    """(the share of a single node's computing that a rank has, the seconds of its messages) of a step on its network."""
    machine = read(MACHINE)
    net = network_names.build(line.net, (32, 32, 3 if line.dataset == "cifar10" else 1), 10)
    grids = [GridDescription(sizes, ranks_per_node=machine.node["ranks"]) for sizes in ({}, parse_grid(line.grid))]
    alone, ours = (Cost(net, grid, line.plan, line.batch_size, machine).parts for grid in grids)
    share = (ours["compute"] + ours["update"]) / (alone["compute"] + alone["update"])
    return share, ours["gradients"] + ours["activations"]


def how(run, runs):
    """How a line was measured, in words."""
    if run is None or run.key not in runs:
        return "not measured"
    words = "whole" if run.test or run.read else f"scaled from {run.steps} steps"
    return words + (", oversubscribed" if runs[run.key]["oversubscribed"] else "")


def _of(runs, run, name):
    return runs.get(run.key, {}).get(name) if run else None


# ----- what expressions of grabaskas2018.toml name


def names(tables):
    """Functions and numbers for the expressions. A line is a dict: what it is, what is printed and what was measured of it."""
    rows = {row["ref"]: row for appendix in ("Appendix C", "Appendix D") for row in tables.get(appendix, ())}
    found, runs = {ref: rows.get(ref, {}) | as_dict(line) for ref, line in lines().items()}, tables.get("runs", {})

    def numbers(refs, column):
        """Those of some lines, in a column of the thesis or of ours, that are there."""
        return [found[ref][column] for ref in refs if found[ref].get(column) is not None]

    def measured(refs, column):
        """The same of all of them; MissingError if one is not there."""
        if len(here := numbers(refs, column)) < len(refs):
            raise MissingError(NOT_RUN_WHOLE if "accuracy" in column else NOT_RUN)
        return here

    def times(ref):
        """Measured seconds of a line and of its single node."""
        if (both := pair(lines()[ref], runs)) is None:
            raise MissingError(NOT_RUN)
        return both

    return {
        "line": found.__getitem__, "lines": lambda **wanted: [
            one for one in found.values() if all(one[name] == value for name, value in wanted.items())],
        "numbers": numbers, "measured": measured, "times": times, "refs": TABLES, "trainings": trainings,
        "losses": lambda table: losses(table, found), "speedups_on_two": lambda: speedups_on_two(runs), "twins": twins,
        "overhead": lambda ref: overhead(ref).value, "of_table": lambda name, place="": of_table(tables[name], name, place),
        "of_lines": lambda refs, columns, place: rows_of([rows[ref] for ref in refs if ref in rows], columns, ""),
        "lost_at_synchronisations": lambda: lost_at_synchronisations(runs), "accuracies": lambda name: accuracies(tables[name]),
        "cases": cases, "effort_of_totals": lambda program: effort_of_totals(program).value, "totals": totals,
        "equation": equation, "used": used, "memory": lambda ref, nodes: cost_of(ref, nodes).prediction.memory / 2**20,
        "halves_of_an_all_reduce": halves_of_an_all_reduce, "size": lambda ref: parameters(lines()[ref].net),
        "fewer": lambda many, few: 100 * (1 - few / many),
    }  # fmt: skip


def as_dict(line):
    """What the thesis prints of a line."""
    names = "ref", "dataset", "device", "method", "version", "nodes", "samples", "passes", "seconds", "n", "model"
    columns = "accuracy", "accuracy loss", "efficiency", "speedup", "pre-processing", "speedup of pre-processing"
    appendix = KNOWN.tables["Appendix D" if line.method == "model" else "Appendix C"].columns
    own = {name: value(line, name) for name in columns if name in appendix}
    return {name: getattr(line, name) for name in names} | own | {"single": line.single.ref}


def trainings(table):
    """{a line of a table on several nodes: all lines of its run}, each run once: "auto" and "manual" are one training here."""
    found = {}
    for ref in TABLES[table]:
        if lines()[ref].nodes > 1:
            found.setdefault(lines()[ref].run(whole=True), []).append(ref)
    return {refs[0]: refs for refs in found.values()}


def losses(table, found):
    """{line: measured loss of accuracy} of the trainings of a table, that of a single node less that of several."""
    pairs = {ref: (found[found[ref]["single"]].get("accuracy, measured"), found[ref].get("accuracy, measured"))
             for ref in trainings(table)}  # fmt: skip
    if not (here := {ref: one - several for ref, (one, several) in pairs.items() if None not in (one, several)}):
        raise MissingError(NOT_RUN_WHOLE)
    return here


def speedups_on_two(runs):
    """Measured speedups of each training of data parallelism on two nodes."""
    two = [line for line in lines().values() if line.method != "model" and line.nodes == 2]
    times = {line.run(whole=True): pair(line, runs) for line in two}
    if not (found := [both[1] / both[0] for both in times.values() if both]):
        raise MissingError(NOT_RUN)
    return found


def twins():
    """Rows of the automated lines of Appendix C and their manual twins, which differ in nothing else: the ratio of seconds."""
    of = lambda line: (line.dataset, line.method, line.nodes, line.n)  # noqa: E731
    manual = {of(line): line for line in lines().values() if line.version == "manual"}
    pairs = [(line, manual[of(line)]) for line in lines().values() if line.version == "auto" and of(line) in manual]
    return [{"label": f"{auto.ref} and {other.ref}, {auto.dataset} {auto.method}, {auto.nodes} nodes, n {auto.n}",
             "printed": ratio(auto.cited("seconds"), other.cited("seconds")), "ratio": auto.seconds / other.seconds}
            for auto, other in pairs]  # fmt: skip


def synchronisations(line):
    """How often a node synchronises in all passes over the data."""
    return line.samples * line.passes // (line.nodes * line.n)


def overhead(ref):
    """The seconds that each synchronisation of a line of data parallelism costs, a Cited."""
    line = lines()[ref]
    return derived(
        "(T_P - T_1 / P) over the synchronisations of a node", lambda several, one: lost(line, several, one),
        line.cited("seconds"), line.single.cited("seconds"),
    )  # fmt: skip


def lost(line, several, one):
    """The seconds lost at each synchronisation of a line. several, one: seconds on its nodes, and on a single one."""
    return (several - one / line.nodes) / synchronisations(line)


def lost_at_synchronisations(runs):
    """Rows of the automated lines on 2 nodes and n = 100: seconds lost at each synchronisation."""
    for line in lines().values():
        if (line.version, line.nodes, line.n) == ("auto", 2, 100):
            times, many = pair(line, runs), f"{synchronisations(line):,} synchronisations"
            yield {"label": f"{line.ref} {line.dataset} {line.method}, {many}",
                   "printed": overhead(line.ref), "measured": times and lost(line, *times),
                   "predicted": step_of(line)[1]}  # fmt: skip


def label(row):
    """What identifies a line."""
    nodes = counted(row["nodes"], "node")
    if "net" in row:
        widths = "x".join(str(row[name]) for name in ("FLS", "SLS", "TLS") if row[name] != "-")
        return f"{row['ref']} {row['device']} {row['net']} {widths}, {nodes}"
    return f"{row['ref']} {row['version']}, {nodes}, n {row['n']}"


def of_table(rows, name, place=""):
    """Rows of a table of lines of the appendices. place: where the thesis prints these lines."""
    return rows_of(rows, OF_READING if name in READING else QUANTITIES, place)


def rows_of(rows, columns, place):
    """A row for each line and each of some columns, {name: in words}, or their names."""
    columns = columns if isinstance(columns, dict) else {name: QUANTITIES[name] for name in columns}
    for row in rows:
        line, how = lines()[row["ref"]], f"{row['how']}, on CPU cores" if row["device"] == "GPU" else row["how"]
        for column, words in columns.items():
            ours = row.get(f"{column}, measured")
            found = {"printed": line.cited(PRINTED.get(column, column), place), "measured": ours,
                     "predicted": row.get(f"{column}, predicted")}  # fmt: skip
            if any(one is not None for one in found.values()):
                yield found | {"label": f"{label(row)}: {words}", "remark": how if ours is not None else ""}


def accuracies(rows):
    """The accuracies of a table that were measured, beside the printed ones, in a sentence; empty if none were."""
    numbers = [(row["ref"], row.get("accuracy, measured"), row.get("accuracy, published")) for row in rows]
    words = [f"{ref} {ours:.1f} ({theirs:.1f})" for ref, ours, theirs in numbers if None not in (ours, theirs)]
    return f" Accuracies do compare, in % (printed): {', '.join(words)}." if words else ""


# ----- costs of model parallelism


def cost_of(ref, nodes):
    """The Cost of a step of a line on so many nodes of the thesis' cluster."""
    line = lines()[ref]
    net = network_names.build(line.net, (32, 32, 1), 10)
    return Cost(net, GridDescription({"model": nodes}, ranks_per_node=1), line.plan, 1, read(MACHINE))


def halves_of_an_all_reduce(ref):
    """(reduce-scatters and all-gathers, all collectives) of a step of a line on two nodes."""
    kinds = [work.name for work in cost_of(ref, 2).works if work.group is not None and work.layer != "loss"]
    return sum(kind in ("reduce-scatter", "all-gather") for kind in kinds), len(kinds)


# ----- the same parallelism by hand, which took turns with it


def cases(is_of_thesis=True):
    """Cases of the study of automated against manual parallelism: by version the ratio of seconds to that by hand.
    is_of_thesis: only those with networks of the thesis whose ranks did not share cores."""
    path, found = "results/automation.json", []
    for report in kept(path):
        for row in report["rows"]:
            where = f" on {report['hosts']} emulated hosts" if report["hosts"] > 1 else ""
            crowded = f", {report['ranks']} ranks on {report['cores']} cores" if report["oversubscribed"] else ""
            found.append({
                "label": f"{row['net']}, {row['grid']}, batch {row['batch_size']}{where}{crowded}", "net": row["net"],
                "grid": row["grid"], "crowded": report["oversubscribed"], "processor": report["versions"]["processor"],
                **{version: row["ratio"][version] for version in ("the same", "chosen")},
            })  # fmt: skip
    if not found or len({case["processor"] for case in found}) > 1:
        raise MissingError(f"{path} is not of one processor: `gridgrad sweep automation.toml` measures most of it again")
    of_thesis = ("mlp3", "mnist-cnn", "cifar-cnn")
    return [case for case in found if not is_of_thesis or case["net"] in of_thesis and not case["crowded"]]


# ----- usability


def lua(table):
    """The statements of the code that a table of the thesis prints."""
    return statements("".join(f"{row['code']}\n" for row in KNOWN.lines(table)))


def calls(chosen, keywords):
    """How many functions some statements call: names in front of a bracket or, in Lua, of a text."""
    return sum(
        token not in keywords and (token[0].isalpha() or token[0] == "_") and following.startswith(("(", *QUOTES))
        for _, tokens in chosen
        for token, following in zip(tokens, tokens[1:])
    )


def equation():
    """Rows of Equation 3.1: of programs of the thesis, and of what ours add to their serial programs."""
    for program, (table, ours) in PROGRAMS.items():
        text, serial = programs()[ours]
        chosen = added(text, source(serial))
        theirs = derived(
            "lines of code x function calls x operands, of which each counts at least 1", complexity,
            len(KNOWN.tables[table].rows), calls(lua(table), LUA), KNOWN.cited("totals", "N2", program),
            place="Equation 3.1, section 3.3.1",
        )  # fmt: skip
        mine = complexity(len(chosen), calls(chosen, KEYWORDS), measure(chosen).N2)
        yield {"label": f"{program}, Table {table} (here {ours})", "printed": theirs, "measured": mine}


def complexity(*factors):
    return prod(max(1, factor) for factor in factors)


def effort_of_totals(program):
    """Halstead's effort that follows from the totals that the thesis prints for a program, a Cited."""
    return derived(
        "(N1 + N2) log2(n1 + n2) x n1/2 x N2/n2", lambda n1, n2, N1, N2: (N1 + N2) * log2(n1 + n2) * n1 / 2 * N2 / n2,
        *(KNOWN.cited("totals", name, program) for name in ("n1", "n2", "N1", "N2")), place="Table 3.7, page 38",
    )  # fmt: skip


def totals():
    """Rows of Tables 4.9 to 4.12: printed totals, the effort that follows from them, and the totals that our rules count."""
    for program, (table, _) in PROGRAMS.items():
        ours = measure(lua(table), LUA)
        for name in ("n1", "n2", "N1", "N2"):
            cited = KNOWN.cited("totals", name, program)
            yield {"label": f"Table {table}: {name}", "printed": cited, "measured": getattr(ours, name)}
        yield {"label": f"Table {table}: effort", "printed": effort_of_totals(program), "measured": ours.effort}
        yield {"label": f"Table {table}: effort printed in Table 4.13", "printed": KNOWN.cited("4.13", "effort", program)}


def used(table, columns):
    """Rows of Table 4.13 or 4.20: programs of the thesis beside ours with the same purpose. columns: {theirs: ours}."""
    try:
        ours = kept("results/usability.json", "programs")
    except MissingError:
        ours = {}
    for row in KNOWN.lines(table):
        mine = SAME.get(row["program"], "")
        for column, own in columns.items():
            words = f"{row['program']}{f' (here {mine})' if mine in ours else ''}: {column}"
            cited = KNOWN.cited(table, column, row["program"])
            yield {"label": words, "printed": cited, "measured": ours.get(mine, {}).get(own)}
