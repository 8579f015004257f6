"""Eserol: Fast and efficient model parallelism for deep convolutional neural networks (2019), chapters 3 to 5.

VGG16 is divided among N ranks: layer by layer, in simple ways, and with partitions of its coarse and fine hypergraph. The
tables of work and of communication are here, printed beside ours; run times are predicted in `times.py`. What is
searched for, and how partitions are kept, is in `search.py`; what they cost is always computed anew from the kept
partitions, in `costs.py`. The units and the works of the layers are in `vgg16.py`, what the thesis prints
in `published/eserol2019.toml`, what it claims and whether that holds in `claims.py`.
"""

from dataclasses import asdict
from functools import partial

from gridgrad.experiments.common.options import user_input
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.report import write_json
from gridgrad.experiments.common.tables import titled
from gridgrad.experiments.papers.eserol2019 import figures, servers, targets, times, vgg16
from gridgrad.experiments.papers.eserol2019 import search as searches
from gridgrad.experiments.papers.eserol2019 import tables as rows
from gridgrad.experiments.papers.eserol2019.costs import costs_of
from gridgrad.experiments.papers.eserol2019.search import EPSILON, SearchCase
from gridgrad.experiments.papers.eserol2019.vgg16 import KNOWN
from gridgrad.experiments.papers.parts import SHORT, USUAL, PaperPart
from gridgrad.nn.files.documents import content_of_file

SHORT_RANKS, SHORT_OTHERS = (2, 4, 8), (2,)  # in a short measurement; with the imbalances of appendix A
STAR = "star: by way of a root, as the thesis counts; connectivity-1: from the owners, as the hypergraph counts, also in MiB"
LIMIT = "in which no rank has more than 1.10 times the mean work, or FC1 alone, which at N = 128 is 1.63 times the mean"
APPENDIX = {  # table of appendix A: what it holds, the grain, PaToH's imbalance
    "A.1": ("work", "coarse", 0.03), "A.2": ("work", "coarse", 0.15), "A.3": ("work", "coarse", 0.2),
    "A.4": ("work", "fine", 0.03), "A.5": ("work", "fine", 0.15), "A.6": ("work", "fine", 0.2),
    "A.7": ("communication", "coarse", 0.03), "A.8": ("communication", "coarse", 0.15),
    "A.9": ("communication", "coarse", 0.2), "A.10": ("communication", "fine", 0.03),
    "A.11": ("communication", "fine", 0.15), "A.12": ("communication", "fine", 0.2),
}  # fmt: skip
TORN = "5.7", "5.9", "A.1", "A.2"
TITLES = {
    "targets": targets.TITLE,
    "hypergraphs": "Sizes of hypergraphs: the sample of Figure 3.5, and VGG16 by the filters and parameters of Table 5.13",
    "5.1": "Table 5.1: work of the ranks, layer-wise partition. The works of the layers were fitted to this table and to 5.5",
    "5.2": f"Table 5.2: communication, layer-wise partition ({STAR})",
    "5.3": "Table 5.3: work, filter-wise horizontal partition",
    "5.4": "Table 5.4: communication, filter-wise horizontal partition",
    "grains": "Section 5.1.4: what the horizontal partition sends in both grains (connectivity-1)",
    "5.5": "Table 5.5: work, filter-wise incremental partition; least and mean are of the ranks that have any",
    "5.6": "Table 5.6: communication, filter-wise incremental partition",
    "5.7": "Table 5.7 (torn): work, channel-wise incremental partition",
    "5.8": "Table 5.8: communication, channel-wise incremental partition",
    "5.9": "Table 5.9 (torn): work, coarse hypergraph, ours",
    "5.10": f"Table 5.10: communication, coarse hypergraph: PaToH's partitions and ours, {LIMIT}",
    "5.11": "Table 5.11: work, fine hypergraph: PaToH's partitions and ours",
    "5.12": "Table 5.12: communication, fine hypergraph: PaToH's partitions and ours, with the limits of Table 5.10",
    "5.13": "Table 5.13: VGG16. The column Parameters is without biases, its sum with them",
    "5.14": "Table 5.14: an epoch of 64,000 images, forward and backward; GB are 2^30 bytes, of its partitions 2^30 elements",
    "5.15": "Table 5.15: speed-up over N = 1 with the same batch, 16 to 512 images, which in data parallelism (DP) is that of "
    "each worker: derived from the printed seconds, and *predicted* by a machine that is calibrated by them",
    "5.15, seconds": "Table 5.15 in seconds for 102,400 images: printed, *predicted* by the calibrated machine, and "
    "*without overlap* from the printed works and volumes and 10 Gbit/s Ethernet",
    "5.15, calibration": "What the printed seconds of Table 5.15 imply, for each batch",
    "5.15, pipeline": "Beside Table 5.15, all *predicted* by the calibrated machine: the gain of the pipeline of section 4.2 "
    "over one minibatch at a time with collocated gradients (Figure 4.4)",
    "servers": "Section 5.2.3: VGG16 on several parameter servers, whole parameters in float32. A weight and a bias are two "
    "parameters, so with an even number of servers round-robin puts all weights on half of them",
    "columns": "Numbers of the thesis that do not follow from others of their row, as their columns say",
    "balance, coarse": "Tables A.3 and A.9: coarse partitions with no more work on a rank, over the mean, than in the thesis",
    "balance, fine": "Tables 5.11 and 5.12: fine partitions with no more work on a rank, over the mean, than in the thesis",
    **{
        name: f"Table {name}{' (torn)' * (name in TORN)}: {what}, {grain} hypergraph, imbalance {imbalance}: PaToH's "
        "partitions and ours"
        for name, (what, grain, imbalance) in APPENDIX.items()
    },
    "even": "Coarse partitions among 4 ranks: the more even the work, the more is sent",
    "loose": "N = 128 where every rank may have as much work as FC1, so that max/avg is the same",
    "dense groups": f"Coarse partitions with each fully connected layer in {searches.DENSE_GROUPS} groups of neurons",
    "objectives": "Coarse partitions for other objectives: all that is sent, the messages, what the largest rank moves",
    "searches": "Seconds of a search on one core, the longest of its kind",
    "proof": "The best coarse partitions for max/avg 1.10, with the bound that the solver proves",
}


def balances():
    """{grain: {ranks: max/avg of the thesis}}, where its tables have it."""
    return {
        grain: {ranks: line["max"] / line["mean"] for ranks, line in rows.printed(name).items()}
        for grain, name in (("coarse", "A.3"), ("fine", "5.11"))
    }


def experiments(out, ranks, data_dir, full=False):
    """Search for the partitions that `out`/tables.json does not have yet: what `tables` takes, with those that it has.

    Each that was found is kept there at once, so that a search that was ended goes on where it was. full: search for all. The
    other arguments are for other papers.
    """
    path = out / "tables.json"
    with user_input():
        measured = content_of_file(path) if path.exists() and not full else {}
        parts = missing(to_measure(USUAL, ranks, data_dir), measured)
    for part in progress(parts, "partitions"):
        measured["partitions"] = [*with_processors(measured), part.run()]
        write_json(path, measured)
    return measured


def missing(parts, measured):
    """Those of the Parts whose partitions were not kept."""
    kept = {searches.owners_of(one)[0] for one in measured.get("partitions", [])}
    return [part for part in parts if SearchCase(**part.settings) not in kept]


def to_measure(size, ranks, data_dir):
    """The searches as Parts; a short measurement has those for SHORT_RANKS."""
    short = size == SHORT
    wanted = searches.cases(SHORT_RANKS if short else vgg16.RANKS, balances(), SHORT_OTHERS if short else vgg16.RANKS)
    return [
        PaperPart(case.words, partial(searches.search, case), 8 if case.grain == "fine" else 3, asdict(case))
        for case in searches.possible(wanted)
    ]


def gathered(results, out):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    return {"partitions": list(results.values())} if results else {}


def with_processors(measured):
    """The kept partitions, each with the processor that found it, which older files have once for all of them."""
    return [{"searched_on": measured.get("processor", "")} | one for one in measured.get("partitions", [])]


def tables(measured=None, batches=times.BATCHES):
    """{name: rows} of all tables; "coarse" and "fine", {"2": {..}}, the partitions of Tables 5.10 and 5.12 in numbers; and the
    partitions themselves, where there are any. batches: of which steps are predicted beside them."""
    kept = with_processors(measured or {})
    found, how, partitions = {}, {}, {}
    for one in kept:
        case, owners = searches.owners_of(one)
        found[case], how[case] = costs_of(owners, "fine" if case.grain == "fine" else "coarse", case.groups), one
        if case == SearchCase("coarse", case.ranks):
            partitions[case.ranks] = owners

    def of(grain, limit):
        """{ranks: Costs} of the cases with these limits. limit: a function of the ranks."""
        cases = {n: SearchCase(grain, n, limit(n)) for n in vgg16.RANKS}
        return {n: found[case] for n, case in cases.items() if case in found}

    usual = {grain: of(grain, lambda _: 1 + EPSILON) for grain in ("coarse", "fine")}
    result = {grain: rows.summary(costs) for grain, costs in usual.items()}
    result |= {"hypergraphs": rows.hypergraph_rows(), "columns": rows.column_rows()[0]} | simple() | of_hypergraphs(usual)
    for grain, names in {"coarse": ("A.3", "A.9"), "fine": ("5.11", "5.12")}.items():
        result[f"balance, {grain}"] = rows.balance_rows(*names, of(grain, balances()[grain].get))
    for name, (what, grain, imbalance) in APPENDIX.items():
        costs = of(grain, lambda _, limit=1 + imbalance: limit)
        result[name] = (rows.load_rows if what == "work" else rows.volume_rows)(name, costs)

    def of_cases(wanted):
        return [rows.search_row(case, found[case]) for case in found if wanted(case)]

    result["even"] = of_cases(lambda case: (case.grain, case.ranks, case.objective) == ("coarse", 4, "volume"))
    result["loose"] = of_cases(lambda case: case.balance == searches.LOOSE)
    result["dense groups"] = of_cases(lambda case: case.groups > 1)
    result["objectives"] = of_cases(
        lambda case: case.grain == "coarse" and case.ranks <= 16 and (case.balance, case.groups) == (1 + EPSILON, 1)
    )
    result["proof"] = [proof_row(n) for n in searches.PROVED]
    result["searches"] = rows.seconds_rows(how)
    result |= of_times(partitions, batches if partitions else ())
    result = {"targets": targets.rows(result)} | result
    return result | ({"partitions": kept} if kept else {})


def simple():
    """The tables that need no search."""
    costs, found = rows.naive_costs(), {}
    names = {"layer-wise": (1, 2), "horizontal": (3, 4), "filter-wise": (5, 6), "channel-wise": (7, 8)}
    for name, (works, volumes) in names.items():
        found[f"5.{works}"] = rows.load_rows(f"5.{works}", costs[name])
        found[f"5.{volumes}"] = rows.volume_rows(f"5.{volumes}", costs[name])
    return found | {"grains": rows.grain_rows(), "5.13": rows.parameter_rows()}


def of_hypergraphs(usual):
    """Tables 5.9 to 5.12 and 5.14. usual: {grain: {ranks: Costs}}."""
    coarse, fine = usual["coarse"], usual["fine"]
    return {
        "5.9": rows.load_rows("5.9", coarse),
        "5.10": rows.volume_rows("5.10", coarse),
        "5.11": rows.load_rows("5.11", fine),
        "5.12": rows.volume_rows("5.12", fine),
        "5.14": rows.comparison_rows(usual),
    }


def of_times(partitions, batches):
    """Section 5.2: Table 5.15, what the pipeline is worth, and the loads of servers.

    partitions: {ranks: Owners}. batches: those that are predicted.
    """
    found = times.predictions(partitions, batches)
    seconds = times.seconds_of(found | times.data_parallel(batches))
    return {
        "5.15": times.compared(seconds),
        "5.15, seconds": times.in_seconds(seconds),
        "5.15, calibration": times.calibration(),
        "5.15, pipeline": times.gains(found),
        "servers": servers.imbalances(),
    }


def proof_row(ranks):
    """What the solver proves for so many ranks, anew."""
    exact = searches.proof(ranks)
    row = {"N": ranks, "volume, printed": rows.printed("5.10")[ranks]["volume"], "volume": exact.volume}
    return row | {"bound": exact.bound, "proved": exact.proved}


def draw(tables, out):
    """Write partition.png into the folder `out`: the coarse partitions `searches.DRAWN`, those of them that are there."""
    known = dict(map(searches.owners_of, tables["partitions"]))
    drawn = [known[case] for case in searches.DRAWN if case in known]
    if drawn:
        figures.draw(drawn, out / "partition.png")


def processors(tables):
    """On which processors partitions were searched for, in words, which only the seconds of a search depend on."""
    return " and ".join(dict.fromkeys(one["searched_on"] for one in tables.get("partitions", [])))


def as_markdown(tables):
    """All tables as Markdown."""
    text = "Nothing searched for yet, so there is no partition of ours: run `reproduce eserol2019`."
    if "partitions" in tables:
        text = (
            f"Partitions found on one core of {processors(tables)}. What they cost is counted, on any processor; seconds of a "
            "search stand in rows of one processor each. Coarse ones among 4 ranks: [partition.png](partition.png)."
            + ("" if tables["fine"] else " Fine ones need Mt-KaHyPar, which is not installed: pip install mtkahypar.")
        )
    notes = "\n".join(f"- {note}" for note in KNOWN.notes)
    text = f"# Eserol 2019, chapters 3 to 5\n\n{text} `-`: not there.\n\n{notes}\n"
    return text + "".join(titled(TITLES[name] + ".", tables[name]) for name in TITLES)
