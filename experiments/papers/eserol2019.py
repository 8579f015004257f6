"""Eserol: Fast and efficient model parallelism for deep convolutional neural networks (2019), chapters 3 to 5.

VGG16 is divided among N ranks: layer by layer, in simple ways, and with partitions of its coarse and fine hypergraph, which are
searched for. What is searched for, and what a partition costs, is in `eserol2019_partitions.py`; run times are in
`eserol2019_times.py`.
"""

from dataclasses import asdict
from functools import lru_cache, partial
from math import prod
from statistics import mean

import numpy as np

from gridgrad.experiments.papers import eserol2019_partitions as vgg16
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers.cited import NOT_PRINTED, ratio
from gridgrad.experiments.papers.eserol2019_partitions import SearchCase, costs_of, model, owners_of
from gridgrad.experiments.papers.eserol2019_times import DATA, KNOWN, ROUND_ROBIN
from gridgrad.experiments.papers.expressions import MissingError
from gridgrad.experiments.papers.parts import SHORT, PaperPart
from gridgrad.nn import Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.parallel.partitioning import mt_kahypar
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.protocols.server import greedy, round_robin

SHORT_RANKS, SHORT_OTHERS = (2, 4, 8), (2,)  # in a short measurement; with the imbalances of appendix A
SECONDS = {"coarse": 3, "exact": 3, "fine": 8}  # about how long a search takes
EVEN_AS = {"coarse": ("A.3", "A.9"), "fine": ("5.11", "5.12")}  # the thesis' tables whose balance our partitions keep
SERVERS = 2, 4, 8, 16
TORN = "5.7", "5.9", "A.1", "A.2"  # tables that the text lacks from which the numbers were taken
CONNECTIVITY, STAR = "volume, connectivity-1", "volume, star"  # columns: as the hypergraph counts, and as the thesis does


def to_measure(size, ranks, data_dir):
    """The searches as Parts; a short measurement has those for SHORT_RANKS. ranks, data_dir: they are for other papers."""
    short = size == SHORT
    wanted = vgg16.cases(SHORT_RANKS if short else vgg16.RANKS, balances(), SHORT_OTHERS if short else vgg16.RANKS)
    return [
        PaperPart(case.words, partial(vgg16.search, case), SECONDS[case.grain], asdict(case))
        for case in wanted if case.grain != "fine" or mt_kahypar.find_spec("mtkahypar")
    ]  # fmt: skip


def gathered(results, out):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    return {"partitions": list(results.values())} if results else {}


def balances():
    """{grain: {ranks: max/avg of the thesis}}, where its tables have it."""
    return {
        grain: {line["N"]: line["max"] / line["mean"] for line in KNOWN.lines(works)} for grain, (works, _) in EVEN_AS.items()
    }


# ----- tables


def tables(measured=None):
    """{name: rows} of all tables; "coarse" and "fine", {"2": {..}}, the partitions of Tables 5.10 and 5.12 in numbers; and the
    partitions themselves, where there are any."""
    kept = (measured or {}).get("partitions", [])
    found, usual = [], {}
    for one in kept:
        case, owners = owners_of(one)
        costs = costs_of(owners, "fine" if case.grain == "fine" else "coarse", case.groups, blocks=one.get("blocks"))
        about = {"allowed": case.balance, "objective": case.objective, "groups": case.groups}
        searched = {"seconds": one["seconds"], "searched on": one["searched_on"]}
        found.append({"partition": f"{case.grain} hypergraph"} | about | costs.row | searched)
        if case == SearchCase("coarse", case.ranks):
            usual[case.ranks] = owners
    result = {grain: summary(rows_of_grain(found, grain, 1 + vgg16.EPSILON)) for grain in EVEN_AS}
    result |= {"found": found, "simple": simple_rows(), "equally divided": [vgg16.equally_divided(grain) for grain in EVEN_AS]}
    result |= {"columns": columns()["wrong"], "hypergraphs": hypergraph_rows(), "5.13": layer_rows(), "servers": loads()}
    result |= {"5.15": times.rows(usual)}
    return result | ({"partitions": kept} if kept else {})


def rows_of_grain(found, grain, allowed):
    """{ranks: row} of the partitions of a grain with a limit, that were searched for to send little."""
    asked = {"partition": f"{grain} hypergraph", "allowed": allowed, "objective": "volume", "groups": 1}
    return {row["N"]: row for row in found if all(row[name] == one for name, one in asked.items())}


def summary(rows):
    """{"2": {..}} for {ranks: row}: the numbers of ours that others read."""
    return {
        str(ranks): {
            "volume_melements": row[CONNECTIVITY], "star_melements": row[STAR],
            "max_over_avg": row["balance"], "volume_MiB_float32": row["MiB of float32"], "messages": row["messages"],
            "largest_of_a_rank_MiB": row["largest of a rank, MiB"],
        }
        for ranks, row in rows.items()
    }  # fmt: skip


@lru_cache
def simple_rows():
    """What simple partitions cost, which need no search."""
    return [{"partition": f"{method} partition"} | costs.row for method, some in vgg16.simple().items() for costs in some]


@lru_cache
def hypergraph_rows():
    """Sizes of hypergraphs: of the sample of Figure 3.5, and of VGG16."""
    layers = [Conv2d(3, 4, 3, padding=1), ReLU(), Conv2d(4, 3, 3, padding=1), ReLU(), Conv2d(3, 2, 3, padding=1), ReLU(),
              Flatten(), Linear(32, 4), Linear(4, 4), Linear(4, 2)]  # fmt: skip
    sample = of_network(Sequential(layers, input_shape=(4, 4, 3)), "coarse", None, 1, None, with_input=True, with_loss=False)
    known = {"sample, coarse": sample} | {f"VGG16, {grain}": model(grain) for grain in EVEN_AS}
    return [
        {"hypergraph": name, "vertices": one.hypergraph.vertices, "nets": one.hypergraph.nets, "pins": len(one.hypergraph.pins)}
        for name, one in known.items()
    ]


@lru_cache
def layer_rows():
    """Table 5.13: outputs, their elements, and numbers of weights of the network of the zoo; at the end sums, with biases."""
    lines, found, shape, biases = KNOWN.lines("5.13"), [(vgg16.IMAGE, 0)], vgg16.IMAGE, 0
    for layer in vgg16.network().leaves():
        shape = layer.output_shape(shape)
        if layer.kind or "Pool" in type(layer).__name__:
            weights, *others = [prod(one.shape) for one in layer.parameters] if layer.kind else [0]
            found.append((shape, weights))
            biases += sum(others)
    rows = [
        {"layer": line["layer"], "output size": "x".join(map(str, (1, 1, *shape)[-3:])), "elements": prod(shape),
         "parameters": weights}
        for line, (shape, weights) in zip(lines, found, strict=True)
    ]  # fmt: skip
    elements, weights = (sum(row[name] for row in rows) for name in ("elements", "parameters"))
    return [*rows, {"layer": "Total", "output size": None, "elements": elements, "parameters": weights + biases}]


def loads():
    """Section 5.2.3: the largest load of a server over the mean, where whole parameters are spread over several."""
    sizes = [prod(p.shape) for layer in vgg16.network().leaves() for p in layer.parameters]
    found = []
    for servers in SERVERS:
        row = {"servers": servers, "FC1 alone": max(sizes) * servers / sum(sizes)}
        for name, choose in (("round-robin", round_robin), ("greedy", greedy)):
            row[name] = np.bincount(choose(sizes, servers), sizes).max() * servers / sum(sizes)
        found.append(row)
    return found


# ----- what expressions of eserol2019.toml name


def names(tables):
    """Functions and numbers for the expressions."""
    ours = Partitions(tables)
    methods = {name: getattr(ours, name) for name in dir(ours) if name[0] != "_"}
    of_times = ("growth", "hosts", "host_rows", "on_hosts", "side", "small_batches", "larger_batches", "busiest",
                "convergence", "took", "to_target", "shares")  # fmt: skip
    return methods | {name: getattr(times, name) for name in of_times} | {
        "theirs": theirs, "numbers": numbers, "ranks_of": ranks_of, "everywhere": everywhere, "of_text": of_text,
        "columns": columns, "even": vgg16.EVEN, "loose": vgg16.LOOSE, "all_ranks": vgg16.RANKS,
        "batches": times.BATCHES, "single": times.SINGLE, "own": list(times.OWN), "data": DATA, "tied": times.TIED,
        "hypergraph": times.HYPERGRAPH, "layer_wise": times.LAYERS, "filter_wise": times.FILTERS, "full": times.FULL,
        "pipeline": times.PIPELINE, "all_reduce": times.TOGETHER, "one_rank": times.ONE,
        "async_pairs": list(zip(DATA[::2], DATA[1::2])), "greedy_pairs": list(zip(DATA[2:], ROUND_ROBIN, strict=True)),
        "mostly": partial(times.mostly, tables), "won_of": partial(times.won_of, tables), "methods": times.METHODS,
        "calibrated": times.CALIBRATED, "torn": TORN, "connectivity": CONNECTIVITY, "star": STAR, "lacking": lacking,
        "outputs": outputs, "printed_reduction": printed_reduction,
    }  # fmt: skip


class Partitions:
    """What partitions cost, ours beside those of the thesis, by the names of its tables."""

    def __init__(self, tables):
        self._tables = tables

    def ours(self, table):
        """{N: row} of our partitions of a table: simple ones, or those that were found with its imbalance."""
        title = title_of(table)
        if title["imbalance"] == NOT_PRINTED:
            return {row["N"]: row for row in self._tables["simple"] if row["partition"] == title["partition"]}
        return rows_of_grain(self._tables["found"], title["partition"].removesuffix(" hypergraph"), 1 + title["imbalance"])

    def of(self, table, column):
        """{N: number} of these rows; MissingError without any."""
        found = {n: row[column] for n, row in self.ours(table).items()}
        if not found:
            raise MissingError("no partitions were searched for: `gridgrad reproduce eserol2019` does")
        return found

    def off(self, table):
        """{"most": by how much, relative, a volume by way of a star is off from the printed one, "N": for which ranks}."""
        found = {n: abs(self.of(table, STAR)[n] / volume - 1) for n, volume in theirs(table, "volume").items()}
        worst = max(found, key=found.get)
        return {"most": found[worst], "N": worst}

    def undominated(self, table, works, volumes):
        """{N: whether no simple partition sends as little as ours and is as even}. table: of our volumes. works, volumes:
        tables of the incremental partition."""
        balance, sent, equal = self.of(works, "max/avg"), self.of(volumes, CONNECTIVITY), self.of("5.4", CONNECTIVITY)
        return {
            n: not (sent[n] <= row[CONNECTIVITY] and balance[n] <= row["balance"]) and equal[n] > row[CONNECTIVITY]
            for n, row in self.ours(table).items()
        }

    def beside(self, table):
        """Rows of an item: each number of a table of work or of communication, the thesis' and ours."""
        title = title_of(table)
        searched, is_work = title["imbalance"] != NOT_PRINTED, title["what"] == "work"
        kind = "predicted" if is_work and not searched else "measured"  # since works were fitted
        quantities = {"max": "max", "min": "min", "mean": "mean", "max/avg": ("max", "mean")} if is_work else {
            "volume, star": "volume", "volume, connectivity-1": "volume" if searched else None, "largest layer, star": "max",
            "volume over ranks, star": "mean",
        }  # fmt: skip
        ours, found = self.ours(table), []
        for n in sorted({*ours, *(line["N"] for line in lines_of(table))}):
            for words, theirs in quantities.items():
                cited, number = cited_of(table, theirs, n), ours[n][words] if n in ours else None
                if cited is not None or number is not None:
                    found.append({"label": f"N = {n}: {words}", kind: number, "printed": cited})
        return found

    def as_even(self, grain):
        """Rows of an item: partitions with no more work on a rank than in the thesis."""
        (works, volumes), found = EVEN_AS[grain], []
        for n, ours in self._as_even(grain).items():
            printed = cited_of(volumes, "volume", n)
            for words, cited in (("max/avg", cited_of(works, ("max", "mean"), n)), (CONNECTIVITY, printed), (STAR, printed)):
                number = ours and ours["balance" if words == "max/avg" else words]
                found.append({"label": f"N = {n}: {words}", "measured": number, "printed": cited})
        return found

    def less_as_even(self, grain):
        """What these send, as parts of what the thesis prints; MissingError without any."""
        printed = theirs(EVEN_AS[grain][1], "volume")
        found = [row[CONNECTIVITY] / printed[n] for n, row in self._as_even(grain).items() if row]
        if not found:
            raise MissingError("nothing was searched for with the thesis' own balance")
        return found

    def _as_even(self, grain):
        return {n: rows_of_grain(self._tables["found"], grain, most).get(n) for n, most in balances()[grain].items()}

    def reduction(self, grain, ranks, batch):
        """How much less than data parallelism our partition of Table 5.10 or 5.12 sends in an epoch, in %, in bytes."""
        ours = self._tables[grain].get(str(ranks))
        if ours is None:
            raise MissingError(f"there is no {grain} partition of ours among {ranks} ranks")
        value, images = times.value, times.value("epoch_images")
        sent = 2 * ours["volume_MiB_float32"] * images / value("volume_batch")
        return 100 * (1 - sent / (2 * (ranks - 1) * value("parameter_MB") * images / batch))


def title_of(table):
    return next(line for line in KNOWN.lines("titles") if line["table"] == table)


def lines_of(table):
    """The lines that the thesis prints; [] of a torn table."""
    return KNOWN.lines(table) if table in KNOWN.tables else []


def cited_of(table, column, ranks):
    """The Cited of a column, or of the ratio of two; None where nothing is printed."""
    if column is None or table not in KNOWN.tables:
        return None
    if isinstance(column, tuple):  # tables print it with one decimal
        return ratio(*(KNOWN.cited(table, one, ranks) for one in column))
    return KNOWN.cited(table, column, ranks)


def theirs(table, column):
    """{N: number} of a column that the thesis prints."""
    return {line["N"]: line[column] for line in lines_of(table)}


def numbers(values):
    """Numbers in words."""
    return ", ".join(f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in values)


def ranks_of(ranks):
    """Some numbers of ranks in words."""
    return f"N = {', '.join(map(str, ranks))}" if ranks else "no N"


def everywhere(holds, needed):
    """Whether something holds for all numbers of ranks: None where some of those that are needed were not searched for. holds:
    {ranks: whether}."""
    return False if not all(holds.values()) else True if all(n in holds for n in needed) else None


def lacking(holds, needed, of_search=False):
    """Why `everywhere` says nothing, in words; where it says no, and a search has found none, that others might."""
    verdict = everywhere(holds, needed)
    if verdict is None:
        return f"{ranks_of([n for n in needed if n not in holds])} was not searched for; "
    return "our searches found none that send as little for all N; " if of_search and not verdict else ""


def of_text(text):
    """The number that the column Memory of Table 5.13 writes, such as 3.2M."""
    return float(text.rstrip("KM")) * {"K": 1e3, "M": 1e6}.get(text[-1], 1)


def outputs(t):
    """How many filters, kernels, fully connected layers and channels of the image VGG16 has by Table 5.13. t: the function of
    expressions for a number of the thesis."""
    layers = [line["layer"] for line in lines_of("5.13") if "POOL" not in line["layer"]]
    image, *others = [t("5.13", "output size", layer).split("x") for layer in layers]
    kernels = sum(t("5.13", "parameters", layer) for layer in layers if "CONV" in layer) // 9
    filters = sum(int(size[-1]) for size in others if size[0] != "1")
    return {"filters": filters, "kernels": kernels, "dense": sum(one[0] == "1" for one in others), "channels": int(image[-1])}


def printed_reduction(t, elements=1):
    """The mean of how much less Table 5.14 has for the hypergraph, in %. elements: bytes of what it counts as a byte there. t:
    the function of expressions for a number of the thesis."""
    cases = [(line["N"], line["batch"]) for line in lines_of("5.14")]
    sent = [(t("5.14", "hypergraph, GB", *case), t("5.14", "data parallel, GB", *case)) for case in cases]
    return mean(100 * (1 - elements * ours / data) for ours, data in sent)


def columns():
    """Numbers that the thesis prints in columns that follow from others: {"looked": how many, "wrong": which are others}."""
    found = [
        {"table": name, "N": line["N"], "column": column, "printed": line[column], "follows": value, "slack": slack}
        for name, table in KNOWN.tables.items() for line in table.lines() for column, value, slack in follows(line)
    ]  # fmt: skip
    return {"looked": len(found), "wrong": [one for one in found if abs(one["printed"] - one["follows"]) > one["slack"]]}


def follows(line):
    """(column, what follows for it from other columns, how far off it may be since all are cut) of a line of the thesis."""
    cut = lambda column: 1 if isinstance(line[column], int) else 0.1  # noqa: E731
    for column, over in (("max/min", "min"), ("max/avg", "mean")):
        if line.get(column, NOT_PRINTED) != NOT_PRINTED:
            ratio = line["max"] / line[over]
            yield column, ratio, 0.1 + (cut("max") + ratio * cut(over)) / line[over]
    if "max*N" in line:
        yield "max*N", line["max"] * line["N"], line["N"]
    if "volume" in line:
        yield "mean", line["volume"] / line["N"], cut("mean") + cut("volume") / line["N"]
