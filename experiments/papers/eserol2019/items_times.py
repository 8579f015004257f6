"""Section 5.2 and 5.3 of Eserol 2019 on the page of all papers: run times and convergence, as items."""

from gridgrad.experiments.papers.cited import RATIO, Formula
from gridgrad.experiments.papers.eserol2019 import claims_times as of_times
from gridgrad.experiments.papers.eserol2019 import elsewhere, times
from gridgrad.experiments.papers.eserol2019.vgg16 import KNOWN
from gridgrad.experiments.papers.items import Item, ItemRow, rows_of

COMMAND = "reproduce eserol2019"
CALIBRATED = (
    "the cost model on a machine that is calibrated by the thesis' own seconds: the rate of computing by its single processor "
    "with the same batch, the rate of a link by what a step of Async. DP (1PS) takes beyond computing on two workers; data "
    "parallelism on four workers takes as long beyond computing as on two (`experiments/papers/eserol2019/times.py`)"
)
SEQUENTIAL = (
    "printed works (Tables 5.1, 5.5 and A.3) and volumes (5.2, 5.6 and 5.10), N/2 links of 10 Gbit/s Ethernet, and nothing at "
    "the same time as anything else"
)
PLACE = Formula("the place of its seconds among those of the table with the same N and batch, and the single processor's",
                lambda own, *others: 1 + sum(other < own for other in others))  # fmt: skip
SMALL = "a small network with the structure of VGG16, vgg-style:16,32,64 on 32x32 images"


def items(tables):
    """The items of run times, servers and convergence. tables: of `eserol2019.tables`."""
    return [
        speedups(tables), seconds(tables), sequential(tables), small(2), small(4), pipeline(tables), servers(tables),
        convergence(),
    ]  # fmt: skip


def label(line):
    return f"N = {line['N']}, {line['method']}"


def by_batch(citing, column):
    """The quantities of Table 5.15 by batch size, for `rows_of`. citing: of `times`. column: of predictions."""
    cited = lambda batch: lambda line: citing(line["N"], line["method"], batch)  # noqa: E731
    return {f"batch {batch}": (cited(batch), None, f"{batch}, {column}") for batch in times.BATCHES}


def speedups(tables):
    """Table 5.15 in speed-ups."""
    return Item(
        "Table 5.15", "speed-up over N = 1 with the same batch", "section 5.2",
        rows_of(tables["5.15"], label, by_batch(times.speedup, of_times.PREDICTIONS)),
        "Where computing and communication overlap, two processors are predicted to be faster than they mostly were in the "
        "thesis, and the hypergraph partition, which is the least even, to be the slowest there. Where nothing overlaps, the "
        "item after the next, the printed order comes out.",
        model=CALIBRATED, command=COMMAND, reason="VGG16 on such nodes was not measured: it is predicted.",
    )  # fmt: skip


def seconds(tables):
    """Table 5.15 in seconds."""
    return Item(
        "Table 5.15, seconds", "seconds for 102,400 images", "section 5.2",
        rows_of(tables["5.15, seconds"], label, by_batch(times.printed, of_times.PREDICTIONS)) + beyond(),
        "The single processor, and what data parallelism takes on two workers, calibrate the machine: they are not predicted. "
        f"Beyond computing, a step of asynchronous servers takes at most {growth(times.DATA[::2]):.2f} times as long for four "
        f"workers as for two, one of synchronous servers up to {growth(times.DATA[1::2]):.2f} times as long.",
        model=CALIBRATED, command=COMMAND, reason="VGG16 was not measured on such nodes: the seconds are predicted.",
    )  # fmt: skip


def sequential(tables):
    """Table 5.15 where nothing overlaps."""
    lines = [line for line in tables["5.15, seconds"] if line["method"] in times.OWN]
    return Item(
        "Table 5.15, nothing overlaps", "seconds for 102,400 images, of model parallelism", "section 5.2",
        rows_of(lines, label, by_batch(times.printed, of_times.SEQUENTIAL)),
        "Only printed numbers go in, and none is fitted. So the thesis' seconds are what its works and volumes make on "
        "10 Gbit/s Ethernet if its pipeline hides no communication. The single processor with batches of 32 is slower than "
        "with 16, which makes that column too long. "
        + won(tables),
        model=SEQUENTIAL, command=COMMAND, reason="VGG16 was not measured on such nodes: the seconds are predicted.",
    )  # fmt: skip


def won(tables):
    """In how many cases both predictions say that the hypergraph is the faster one, in words; empty without predictions."""
    counts = [
        of_times.wins(of_times.seconds_of(tables, column), [(times.HYPERGRAPH, other)])
        for column in (of_times.SEQUENTIAL, of_times.PREDICTIONS) for other in (times.LAYERS, times.FILTERS)
    ]  # fmt: skip
    if not all(cases for _, cases in counts):
        return ""
    layers, filters, *overlapped = (f"{faster} of {cases}" for faster, cases in counts)
    return (
        f"So the hypergraph partition is predicted to be faster than the layer-wise one in {layers} cases, and than the "
        f"filter-wise one in {filters}; where communication overlaps, in {' and '.join(overlapped)}."
    )


def beyond():
    """Rows: what a step of data parallelism takes beyond computing, by Table 5.15."""
    return tuple(
        ItemRow(f"N = {ranks}, {method}, batch {batch}: s of a step beyond computing", times.beyond(ranks, method, batch))
        for ranks in times.RANKS for method in times.DATA for batch in times.BATCHES
    )  # fmt: skip


def growth(methods):
    """How many times as long a step of some methods takes beyond computing for four workers as for two, at most."""
    cases = [(method, batch) for method in methods for batch in times.BATCHES]
    few, many = ([times.beyond(ranks, *case).value for case in cases] for ranks in times.RANKS)
    return max(four / two for two, four in zip(few, many))


def small(ranks):
    """Table 5.15 on a small network, on emulated hosts; of four on two cores the order alone."""
    result, found = elsewhere.hosts().get(ranks), []
    for batch in result.batches if result else ():
        place = result.places(batch)
        for method in (*elsewhere.TABLE, *elsewhere.ROUND_ROBIN):
            name = f"batch {batch}, {method}"
            if method in place:
                found.append(ItemRow(f"{name}: place", cited_place(ranks, method, batch), place[method]))
            if not result.crowded and method != times.SINGLE:
                printed = times.speedup(ranks, method, batch) if batch in times.BATCHES else None
                found.append(ItemRow(f"{name}: speed-up", printed, result.ratios(method, times.SINGLE)[batch]))
    words, why = {2: "two", 4: "four"}[ranks], ""
    if result:
        why = (
            f"Measured on {words} hosts that are emulated on one machine, with {result.network}. A small network on small "
            "images sends other shares of what it computes than VGG16 does, so that numbers do not compare."
        )
        why += (
            " There are more ranks than cores: the order alone is said." if result.crowded else
            f" In the claims a method counts as faster where its ratio is more than {1 + elsewhere.TIE:g} even in the lower "
            "quartile of the rounds."
        )  # fmt: skip
    return Item(
        f"Table 5.15, {words} small hosts", f"order of the methods, the fastest first, and speed-up over N = 1: {SMALL}",
        "section 5.2", tuple(found), why, str(elsewhere.HOSTS),
        command=f"sweep eserol2019-hosts.toml --ranks 1,{ranks}",
        reason="Table 5.15 has no round-robin servers." if result else "Not measured yet.",
        processor=result.processor if result else "", compares=False,
    )  # fmt: skip


def cited_place(ranks, method, batch):
    """The place of a method in Table 5.15, a Cited; None for other batches than it has."""
    if batch not in times.BATCHES:
        return None
    own = times.printed(1 if method == times.SINGLE else ranks, method, batch)
    others = [times.printed(1, times.SINGLE, batch)] * (method != times.SINGLE)
    others += [times.printed(ranks, other, batch) for other in (*times.OWN, *times.DATA) if other != method]
    return PLACE(own, *others)


def pipeline(tables):
    """Section 4.2."""
    return Item(
        "Section 4.2", "gain of the asynchronous pipeline over one minibatch at a time", "section 4.2, Figures 4.4 to 4.7",
        rows_of(tables["5.15, pipeline"], lambda line: f"{label(line)}, batch {line['batch']}", {
            "gain": (None, None, "gain of the pipeline"),
            "least busy rank, % of the time": (None, None, "least busy, % in flight"),
        }),
        "The drawings of the thesis promise full use of the processors. The gain is more than N where one minibatch at a time "
        "waits for its messages as well.", model=CALIBRATED,
        command=COMMAND, reason="The thesis has drawings of it, and no numbers.",
    )  # fmt: skip


def servers(tables):
    """Section 5.2.3: loads of servers."""
    return Item(
        "Section 5.2.3", "VGG16 on several parameter servers: the largest load over the mean", "section 5.2.3",
        rows_of(tables["servers"], lambda line: f"{line['servers']} servers", {
            "round-robin": (None, None, "round-robin, max/avg"), "greedy": (None, None, "greedy, max/avg"),
        }),
        "FC1 alone is most of the parameters, so whole parameters can not be spread evenly.",
        model="sizes of the parameters", command=COMMAND, reason="The thesis prints no loads of its servers.",
    )  # fmt: skip


def convergence():
    """Figure 5.2, and what stands in for it: the study `convergence`."""
    values, (result, missing) = KNOWN.values, elsewhere.convergence()
    took = result.seconds if result else {}
    two = {name: seconds / took[elsewhere.PIPELINE] for name, seconds in took.items()}
    found = [
        ItemRow("N = 4: times as fast as one processor", values["speedup_4"]),
        ItemRow(
            "N = 4, from the hours: times as fast as one processor", RATIO(values["hours_alone"], values["hours_hypergraph"])
        ),
        ItemRow("one processor: hours to the target", values["hours_alone"]),
        ItemRow("hypergraph pipeline, N = 4: hours to the target", values["hours_hypergraph"]),
        ItemRow("N = 2: times as fast as one processor", None, two.get(elsewhere.ALONE)),
        ItemRow("N = 2: times as fast as asynchronous data parallelism", values["over_async_2"]),
        ItemRow("N = 2: times as fast as synchronous data parallelism", values["over_sync_2"], two.get(elsewhere.TOGETHER),
            remark="measured against an all-reduce" if result else ""),
        ItemRow("N = 4: times as fast as asynchronous data parallelism", values["over_async_4"]),
        ItemRow("N = 4: times as fast as synchronous data parallelism", values["over_sync_4"]),
        *(ItemRow(f"small network, N = {1 if way == elsewhere.ALONE else 2}, {way}: seconds to the target", None, seconds)
          for way, seconds in took.items()),
    ]  # fmt: skip
    target, epochs, why = (result.target, result.epochs, of_small_network(result)) if result else (65, 4, "")
    return Item(
        "Figure 5.2", "time to a training accuracy (of 90 % in the thesis), hypergraph model parallelism", "section 5.3",
        tuple(row for row in found if row.values), why, str(elsewhere.CONVERGENCE),
        command=f"launch 2 study convergence --target {target:g} --epochs {epochs:g}",
        figures=("../convergence.png",) if result else (),
        reason="VGG16 on its images needs days of training on the cluster of the thesis (about 122 hours on one node)."
        + (f" Nothing stands in for it: {missing}." if missing else ""),
        processor=result.processor if result else "", compares=False,
    )  # fmt: skip


def of_small_network(result):
    """What stands in for Figure 5.2, in words. result: a `Convergence`."""
    took = result.seconds
    words = (
        f"What stands in for it is `{result.net}` on {result.samples:,} images of {result.dataset}, to {result.target:g} % on "
        "two ranks of one machine, which share its memory. Each way ran once; asynchronous servers and 4 processors were not "
        "measured."
    )
    slowest = took[elsewhere.PIPELINE] > max(took[elsewhere.ALONE], took[elsewhere.TOGETHER])
    return words + " There the hypergraph pipeline loses to data parallelism, and to one rank alone." * slowest
