"""Eserol: Fast and efficient model parallelism for deep convolutional neural networks (2019), sections 5.1.1 to 5.2.3.

VGG16 is divided among N ranks: layer by layer, in simple ways, and with partitions of its coarse and fine hypergraph. The
tables of work and of communication are here, published beside ours; run times are predicted in `eserol2019_times.py`, those of
data parallelism in `eserol2019_servers.py`. What is searched for, and how partitions are kept, is in `eserol2019_search.py`;
what they cost is always computed anew from the kept partitions, in `eserol2019_costs.py`. The units and the works of the layers
are in `eserol2019_vgg16.py`, what was published in `published/eserol2019.toml`.
"""

import tomllib
from dataclasses import asdict
from functools import partial
from pathlib import Path

from gridgrad.experiments.common import markdown
from gridgrad.experiments.papers import eserol2019_claims as claims
from gridgrad.experiments.papers import eserol2019_search as searches
from gridgrad.experiments.papers import eserol2019_servers as servers
from gridgrad.experiments.papers import eserol2019_tables as rows
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers import eserol2019_vgg16 as vgg16
from gridgrad.experiments.papers.eserol2019_costs import costs_of
from gridgrad.experiments.papers.eserol2019_search import EPSILON, Case
from gridgrad.experiments.papers.parts import SHORT, USUAL, Part, run_all
from gridgrad.experiments.plots import eserol2019 as figures
from gridgrad.nn.processor import processor

SHORT_RANKS = 2, 4, 8  # in a short measurement
PUBLISHED = Path(__file__).parent / "published" / "eserol2019.toml"
STAR = "star: by way of a root, as the thesis counts; connectivity-1: from the owners, as the hypergraph counts, also in MiB"
TITLES = {
    "claims": claims.TITLE,
    "5.1": "Table 5.1: work of the ranks, layer-wise partition",
    "5.2": f"Table 5.2: communication, layer-wise partition ({STAR})",
    "5.3": "Table 5.3: work, filter-wise horizontal partition",
    "5.4": "Table 5.4: communication, filter-wise horizontal partition",
    "5.5": "Table 5.5: work, filter-wise incremental partition",
    "5.6": "Table 5.6: communication, filter-wise incremental partition",
    "5.7": "Table 5.7 (torn): work, channel-wise incremental partition",
    "5.8": "Table 5.8: communication, channel-wise incremental partition",
    "5.9": "Table 5.9 (torn): work, coarse hypergraph, ours",
    "5.10": "Table 5.10: communication, coarse hypergraph: PaToH's partitions and ours, in which no rank has more than 1.10 "
    "times the mean work, or FC1 alone, which at N = 128 is 1.63 times the mean",
    "5.11": "Table 5.11: work, fine hypergraph: PaToH's partitions and ours",
    "5.12": "Table 5.12: communication, fine hypergraph: PaToH's partitions and ours, with the limits of Table 5.10",
    "5.13": "Table 5.13: VGG16. Parameters without biases, as in the thesis",
    "5.14": "Table 5.14: an epoch of 64,000 images, forward and backward; GB are 2^30 bytes. The thesis compares elements of "
    "its partitions (2^30 of them are its GB) with bytes of data parallelism: mixed units. Then both in bytes",
    "5.15": "Table 5.15: speed-up over N = 1 with the same batch, 16 to 512 images, which in data parallelism (DP) is that of "
    "each worker: published, and *predicted* for another machine",
    "5.15, seconds": "Table 5.15 in seconds for 102,400 images: published, on nodes with 112 logical cores, and *predicted*, "
    "for nodes of Cori Haswell at their peak. These are different machines, so only the order means something",
    "5.15, pipeline": "Beside Table 5.15, all *predicted*: the gain of the pipeline of section 4.2 over one minibatch at a "
    "time with collocated gradients (Figure 4.4). A node of Cori has 119 GiB",
    "servers": "Section 5.2.3: VGG16 on several parameter servers, whole parameters in float32. A weight and a bias are two "
    "parameters, so with an even number of servers round-robin puts all weights on half of them",
    "balance, coarse": "Tables A.3 and A.9: coarse partitions with no more work on a rank, over the mean, than in the thesis",
    "balance, fine": "Tables 5.11 and 5.12: fine partitions with no more work on a rank, over the mean, than in the thesis",
    "even": "Coarse partitions among 4 ranks: the more even the work, the more is sent",
    "loose": "N = 128 where every rank may have as much work as FC1, so that max/avg is the same",
    "dense groups": f"Coarse partitions with each fully connected layer in {searches.DENSE_GROUPS} groups of neurons",
    "objectives": "Coarse partitions for other objectives: all that is sent, the messages, what the largest rank moves",
    "proof": "The best coarse partitions for max/avg 1.10, with the bound that the solver proves",
}


def published():
    """The content of `published/eserol2019.toml`."""
    return tomllib.loads(PUBLISHED.read_text())


def balances():
    """{grain: {ranks: max/avg}} of the thesis, where its tables have it."""
    known = published()
    return {
        grain: {ranks: largest / mean for ranks, largest, _, mean in known[name]}
        for grain, name in (("coarse", "loads_A_3"), ("fine", "loads_5_11"))
    }


def experiments(out, ranks, data_dir, full=False):
    """Search for all partitions: what `tables` takes. The arguments are for other papers."""
    return gathered(run_all(to_measure(USUAL, ranks, data_dir), "partitions"), out)


def to_measure(size, ranks, data_dir):
    """The searches as Parts; a short measurement has those for SHORT_RANKS."""
    wanted = searches.possible(searches.cases(SHORT_RANKS if size == SHORT else vgg16.RANKS, balances()))
    return [Part(case.words, partial(searches.search, case), 8 if case.grain == "fine" else 3, asdict(case)) for case in wanted]


def gathered(results, out):
    """What `tables` takes, of what the parts found. out: there is nothing to write there."""
    return {"processor": processor().name, "partitions": list(results.values())} if results else {}


def tables(measured=None, batches=times.BATCHES):
    """{name: rows} of all tables; "coarse" and "fine", {"2": {..}}, the partitions of Tables 5.10 and 5.12 in numbers; and the
    partitions themselves, where there are any. batches: of which steps are predicted beside them."""
    kept = (measured or {}).get("partitions", [])
    found, seconds, partitions = {}, {}, {}
    for one in kept:
        case, owners = searches.owners_of(one)
        found[case] = costs_of(owners, "fine" if case.grain == "fine" else "coarse", case.groups)
        seconds[case] = one["seconds"]
        if case == Case("coarse", case.ranks):
            partitions[case.ranks] = owners

    def of(grain, limits):
        """({ranks: Costs}, {ranks: seconds}) of the cases with these limits. limits: a function of the ranks."""
        cases = {n: Case(grain, n, limits(n)) for n in vgg16.RANKS if Case(grain, n, limits(n)) in found}
        return {n: found[case] for n, case in cases.items()}, {n: seconds[case] for n, case in cases.items()}

    usual = {grain: of(grain, lambda _: 1 + EPSILON) for grain in ("coarse", "fine")}
    result = {grain: rows.summary(*some) for grain, some in usual.items()}
    result |= simple(published()) | of_hypergraphs(published(), usual)
    for grain, (loads, volumes) in {"coarse": ("loads_A_3", "volumes_A_9"), "fine": ("loads_5_11", "volumes_5_12")}.items():
        costs, took = of(grain, balances()[grain].get)
        result[f"balance, {grain}"] = rows.balance_rows(published()[loads], published()[volumes], costs, took)

    def of_cases(wanted):
        return [rows.search_row(case, found[case], seconds[case]) for case in found if wanted(case)]

    result["even"] = of_cases(lambda case: (case.grain, case.ranks, case.objective) == ("coarse", 4, "volume"))
    result["loose"] = of_cases(lambda case: case.balance == searches.LOOSE)
    result["dense groups"] = of_cases(lambda case: case.groups > 1)
    result["objectives"] = of_cases(
        lambda case: case.grain == "coarse" and case.ranks <= 16 and (case.balance, case.groups) == (1 + EPSILON, 1)
    )
    result["proof"] = [proof_row(n, seconds.get(Case("exact", n))) for n in searches.PROVED]
    result |= of_times(published()["table_5_15"], partitions, batches if partitions else ())
    result = {"claims": claims.rows(result)} | result
    return result | {key: measured[key] for key in ("processor", "partitions") if kept}


def simple(known):
    """The tables that need no search."""
    costs = rows.naive_costs()
    names = {"layer-wise": (1, 2), "horizontal": (3, 4), "filter-wise": (5, 6), "channel-wise": (7, 8)}
    found = {}
    for name, (loads, volumes) in names.items():
        found[f"5.{loads}"] = rows.load_rows(known.get(f"loads_5_{loads}"), costs[name])
        found[f"5.{volumes}"] = rows.volume_rows(known[f"volumes_5_{volumes}"], costs[name])
    return found | {"5.13": rows.parameter_rows(known["table_5_13"])}


def of_hypergraphs(known, usual):
    """Tables 5.9 to 5.12 and 5.14. usual: {grain: ({ranks: Costs}, {ranks: seconds})}."""
    coarse, fine = usual["coarse"], usual["fine"]
    volumes = {ranks: volume for ranks, volume, *_ in known["volumes_5_10"]}
    return {
        "5.9": rows.load_rows(None, coarse[0]),
        "5.10": rows.volume_rows(known["volumes_5_10"], *coarse),
        "5.11": rows.load_rows(known["loads_5_11"], fine[0]),
        "5.12": rows.volume_rows(known["volumes_5_12"], *fine),
        "5.14": rows.comparison_rows(known["table_5_14"], volumes, {"coarse": coarse[0], "fine": fine[0]}),
    }


def of_times(known, partitions, batches):
    """Section 5.2: Table 5.15, what the pipeline is worth, and the loads of servers.

    known: the published table. partitions: {ranks: Owners}. batches: those that are predicted.
    """
    found = times.predictions(partitions, batches)
    seconds = times.seconds_of(found) | servers.predictions(times.nodes(), times.RANKS, batches)
    return {
        "5.15": times.compared(known, seconds),
        "5.15, seconds": times.in_seconds(known, seconds),
        "5.15, pipeline": times.gains(found),
        "servers": servers.imbalances(),
    }


def proof_row(ranks, seconds):
    """What the solver proves for so many ranks, anew. seconds: that it took when the partitions were searched for."""
    exact = searches.proof(ranks)
    volume = next(row[1] for row in published()["volumes_5_10"] if row[0] == ranks)
    row = {"N": ranks, "published": volume, "volume": exact.volume, "bound": exact.bound, "proved": exact.proved}
    return row | {"seconds": seconds}


def draw(tables, out):
    """Write partition.png into the folder `out`: the coarse partitions `searches.DRAWN`, those of them that are there."""
    known = dict(map(searches.owners_of, tables["partitions"]))
    drawn = [known[case] for case in searches.DRAWN if case in known]
    if drawn:
        figures.draw(drawn, out / "partition.png")


def as_markdown(tables):
    """All tables as Markdown."""
    text = "Nothing searched for yet, so there is no partition of ours: run `reproduce eserol2019`."
    if "partitions" in tables:
        text = (
            f"Partitions found on one core of {tables['processor']}. Coarse ones among 4 ranks: [partition.png](partition.png)."
            + ("" if tables["fine"] else " Fine ones need Mt-KaHyPar, which is not installed: pip install mtkahypar.")
        )
    notes = "\n".join(f"- {note}" for note in published()["notes"])
    text = f"# Eserol 2019, sections 5.1 and 5.2\n\n{text} `-`: not there.\n\n{notes}\n"
    return text + "".join(markdown.table(TITLES[name] + ".", tables[name]) for name in TITLES)
