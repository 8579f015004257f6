"""What is found of the claims of Eserol 2019 about time: Table 5.15, Figure 5.2 and chapter 4.

Measured is a small network on emulated hosts (`eserol2019_elsewhere.py`), which decides where it was. Otherwise predictions for
VGG16 do, or the printed numbers themselves.
"""

from statistics import median

from gridgrad.experiments.papers import eserol2019_elsewhere as elsewhere
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers.cited import RATIO, published
from gridgrad.experiments.papers.claims import FOLLOWS, found, undecided
from gridgrad.experiments.papers.items import KEPT, PREDICTED

PRINTED, PREDICTIONS, SEQUENTIAL = "printed", "*predicted*", "*without overlap*"  # columns of seconds
SMALL = 16, 32, 64  # the small batches of section 5.2.4
TIE = 0.02  # by how much more than 1 a ratio has to be to count, since steps vary from round to round
FULL = 0.9  # of the time, from which on a processor is called fully used
IMAGENET = 1_281_167  # images of an epoch, which the thesis does not print
GREEDY, ROUND_ROBIN = times.DATA[2:], ("Async. DP (round-robin)", "Sync. DP (round-robin)")
NO_HOSTS = "the methods were not measured on emulated hosts: `gridgrad study eserol2019-hosts` does"


def findings(tables):
    """{name of a claim about time: its Finding}. tables: of `eserol2019.tables`."""
    asynchronous, waiting, spread, spread_waiting = times.DATA
    faster = {
        "layers_faster": [(times.LAYERS, times.SINGLE)],
        "filters_slower": [(times.LAYERS, times.FILTERS)],
        "hypergraph_filters": [(times.HYPERGRAPH, times.FILTERS)],
        "hypergraph_layers": [(times.HYPERGRAPH, times.LAYERS)],
        "spread_sync": [(spread_waiting, waiting)],
        "async_faster": [(asynchronous, waiting), (spread, spread_waiting)],
    }
    return {
        **{name: mostly(tables, pairs) for name, pairs in faster.items()},
        "spread_async": not_always(spread, asynchronous), "greedy": greedy(tables), "small_batches": small_batches(),
        "larger_batches": larger_batches(), "epoch_hours": epoch_hours(), "full_use": full_use(), "compute_bound": bound(),
        **of_convergence(),
        "collocated": undecided("all programs here keep backpropagation where the parameters are; the other way is not there"),
    }  # fmt: skip


def seconds_of(tables, column):
    """{(N, method, batch): seconds} of Table 5.15, those that are there. column: PRINTED, PREDICTIONS or SEQUENTIAL."""
    found = {}
    for row in tables["5.15, seconds"]:
        for batch in times.BATCHES:
            if row[f"{batch}, {column}"] is not None:
                found[row["N"], row["method"], batch] = row[f"{batch}, {column}"]
    if column != PRINTED:
        found |= {(1, times.SINGLE, batch): times.printed(1, times.SINGLE, batch).value for batch in times.BATCHES}
    return found


def wins(seconds, pairs):
    """(in how many cases the first method of a pair takes less time, in how many both are known). seconds: of `seconds_of`."""
    cases = [
        (seconds.get((n, method, batch)), seconds.get((1 if other == times.SINGLE else n, other, batch)))
        for method, other in pairs
        for n in times.RANKS
        for batch in times.BATCHES
    ]
    cases = [case for case in cases if None not in case]
    return sum(one < two for one, two in cases), len(cases)


def on_hosts(pairs):
    """(numbers in words, how many times as fast the first of a pair is on two hosts: a list)."""
    words, two = [], []
    for ranks, result in sorted(elsewhere.hosts().items()):
        name = f"{ranks} hosts" + (f" on {result['cores']} cores" if ranks > result["cores"] else "")
        for method, other in pairs:
            ratios = elsewhere.ratios(result, method, other)
            two += ratios.values() if ranks == 2 else ()
            values = ", ".join(f"{value:.2f}" for value in ratios.values())
            words.append(f"{name}, {method} over {other}: {values} times as fast (batches {', '.join(map(str, ratios))})")
    return "; ".join(words), two


def by_hosts(words, ratios, reason=""):
    """The Finding of whether most of these ratios are above one; where they are hardly above, there is none."""
    reason = "; ".join(filter(None, (elsewhere.measured_by(), reason)))
    above, below = sum(one > 1 + TIE for one in ratios), sum(one < 1 - TIE for one in ratios)
    if above <= len(ratios) / 2 < len(ratios) - below:
        return undecided(f"too near to each other; {reason}", words, KEPT)
    return found(above > len(ratios) / 2, words, reason, KEPT)


def mostly(tables, pairs):
    """The Finding of whether the first method of a pair is faster than the other in most cases.

    What was measured decides; where nothing was, two predictions that agree do.
    """
    said, verdicts = [], set()
    for name, column in (("predicted where communication overlaps", PREDICTIONS), ("where it does not", SEQUENTIAL)):
        won, cases = wins(seconds_of(tables, column), pairs)
        if cases and modelled(pairs):
            said.append(f"{name} in {won} of {cases} cases")
            verdicts.add(won > cases / 2)
    words, two = on_hosts(pairs)
    if two:
        return by_hosts(words, two, ", ".join(said))
    if len(said) == 2 and len(verdicts) == 1:
        return found(verdicts.pop(), ", ".join(said), NO_HOSTS, PREDICTED)
    return undecided(NO_HOSTS, ", ".join(said), PREDICTED)


def modelled(pairs):
    """Whether both methods of all pairs are predicted: what is predicted of data parallelism follows from what is printed."""
    return all(one in (*times.OWN, times.SINGLE) for pair in pairs for one in pair)


def not_always(method, other):
    """The Finding of whether it can not be said that a method is faster than another."""
    words, two = on_hosts([(method, other)])
    if two:
        return found(not all(one > 1 + TIE for one in two), words, elsewhere.measured_by(), KEPT)
    return undecided(NO_HOSTS)


def greedy(tables):
    """The Finding of whether servers are better with greedy distribution: measured, or by the loads of VGG16."""
    loads = [(row["greedy, max/avg"], row["round-robin, max/avg"]) for row in tables["servers"]]
    pairs = ", ".join(f"{one:.2f} and {two:.2f}" for one, two in loads)
    said = f"the largest load of VGG16 on 2, 4, 8 and 16 servers over the mean is {pairs}"
    words, two = on_hosts(list(zip(GREEDY, ROUND_ROBIN, strict=True)))
    if two:
        return by_hosts(words, two, said)
    return found(all(one <= other for one, other in loads), said, f"loads alone: {NO_HOSTS}", FOLLOWS)


def small_batches():
    """The Finding of whether model parallelism is faster with small batches only."""
    cases = {}
    for ranks in times.RANKS:
        for batch in times.BATCHES:
            data = min(times.printed(ranks, method, batch).value for method in times.DATA)
            cases[ranks, batch] = times.printed(ranks, times.HYPERGRAPH, batch).value < data
    against = [f"N = {n}, batch {batch}" for (n, batch), won in cases.items() if won != (batch in SMALL)]
    printed = f"Table 5.15 says so in {len(cases) - len(against)} of {len(cases)} cases"
    printed += f", and the contrary for {'; '.join(against)}" if against else ""
    result = elsewhere.hosts().get(2)
    if not result:
        return found(not against, printed, NO_HOSTS, FOLLOWS)
    ratios = {}
    for batch in elsewhere.batches(result):
        ratios[batch] = min(elsewhere.ratios(result, times.HYPERGRAPH, method)[batch] for method in times.DATA)
    holds = all((ratio > 1) == (batch in SMALL) for batch, ratio in ratios.items())
    words = ", ".join(f"{ratio:.2f} (batch {batch})" for batch, ratio in ratios.items())
    return found(holds and not against, f"2 hosts, hypergraph over the fastest data parallelism: {words} times as fast",
                 f"{printed}; {elsewhere.measured_by()}", KEPT)  # fmt: skip


def larger_batches():
    """The Finding of whether a larger batch shortens the run of a single processor."""
    printed = [times.printed(1, times.SINGLE, batch).value for batch in times.BATCHES]
    falls = [two < one for one, two in zip(printed, printed[1:])]
    numbers = f"Table 5.15: {', '.join(map(str, printed))} s, less in {sum(falls)} of {len(falls)} steps"
    rising = [f"{times.BATCHES[at]} to {times.BATCHES[at + 1]}" for at, fell in enumerate(falls) if not fell]
    reason = f"the printed seconds rise from {', '.join(rising)}" if rising else ""
    result = elsewhere.hosts().get(2)
    if result:
        each = [median(elsewhere.rounds(result)[times.SINGLE, batch]) / batch for batch in elsewhere.batches(result)]
        here = ", ".join(f"{1e3 * one:.3g}" for one in each)
        reason += f"{'; ' * bool(reason)}a small network here takes {here} ms an image with batches of "
        reason += f"{', '.join(map(str, elsewhere.batches(result)))} ({elsewhere.HOSTS}, {elsewhere.processor(result)})"
        falls += [two < one for one, two in zip(each, each[1:])]
    return found(all(falls), numbers, reason, FOLLOWS)


def epoch_hours():
    """The Finding of whether the hours of an epoch fit the seconds of Table 5.15."""
    said = published(times.PAPER).values["epoch_hours"].value
    count, epochs = (one.value for one in times.images())
    hours = times.printed(1, times.SINGLE, 16).value * IMAGENET / (count * epochs) / 3600
    return found(
        abs(hours / said - 1) < 0.25,
        f"{hours:.0f} hours for the {IMAGENET:,} images of ImageNet at the rate of 9,405 s for 10 epochs of 10,240 images",
        "so the table has seconds of ten epochs, as the text says, although its title says 'Per Epoch'", FOLLOWS,
    )  # fmt: skip


def shares():
    """{(N, method, batch): the share of the time in which the busiest processor computes}, derived from printed numbers."""
    return {
        (n, method, batch): times.share(n, method, batch).value
        for n in times.RANKS for method in times.OWN for batch in times.BATCHES
    }  # fmt: skip


def full_use():
    """The Finding of whether pipelines use the processors fully."""
    theirs = list(shares().values())
    printed = f"by the printed seconds the busiest processor computes {100 * min(theirs):.0f} to {100 * max(theirs):.0f} % of "
    printed += f"the time, {100 * median(theirs):.0f} % in the median"
    why = "works and volumes of the thesis make its seconds where nothing overlaps (Table 5.15, nothing overlaps)"
    result = elsewhere.hosts().get(2)
    if not result:
        return found(median(theirs) > FULL, printed, why, FOLLOWS)
    uneven = {(row["method"], row["batch"]): row["max/avg"] for row in result["rows"]}
    ours = [
        ratio * uneven[times.HYPERGRAPH, batch] / 2
        for batch, ratio in elsewhere.ratios(result, times.HYPERGRAPH, times.SINGLE).items()
    ]
    numbers = (
        f"2 hosts, hypergraph pipeline: the busiest rank computes {100 * min(ours):.0f} to {100 * max(ours):.0f} % of the time"
    )
    return found(median(ours) > FULL, numbers, f"{elsewhere.measured_by()}; {printed}; {why}", KEPT)


def bound():
    """The Finding of whether computing takes most of the time."""
    theirs = list(shares().values())
    return found(
        min(theirs) > 0.5, f"the busiest processor computes {100 * min(theirs):.0f} to {100 * max(theirs):.0f} % of the time",
        "derived from printed seconds and works; above 100 % where the single processor is slow, with batches of 32", FOLLOWS,
    )  # fmt: skip


def of_convergence():
    """Figure 5.2: what the studies `convergence` and `protocols` found."""
    values, (result, took) = published(times.PAPER).values, elsewhere.convergence()
    hours = RATIO(values["hours_alone"], values["hours_hypergraph"])
    four = "needs 4 processors of its own: two cores are at hand"
    alone = undecided(f"it {four}", f"by the printed hours {hours.value:.2f} times")
    data = undecided("the study `convergence` was not run")
    if result:
        pipeline, together, one = (took[way] for way in (elsewhere.PIPELINE, elsewhere.TOGETHER, elsewhere.ALONE))
        where = f"{elsewhere.CONVERGENCE}, {elsewhere.processor(result)}"
        numbers = (
            f"on two ranks the hypergraph pipeline takes {pipeline:.0f} s, an all-reduce {together:.0f} s, one rank {one:.0f} s"
        )
        alone = undecided(
            f"it {four}; on two ranks the pipeline is {one / pipeline:.2f} times as fast as one rank ({where})",
            f"by the printed hours {hours.value:.2f} times",
        )
        data = found(
            pipeline < together,
            f"{numbers} to the same accuracy",
            f"a small network on CIFAR-10 ({where}); asynchronous servers and 4 processors were not measured",
            KEPT,
        )
    servers = elsewhere.servers_to_target()
    words = ", ".join(f"{fast:.2f} and {slow:.2f} s ({net})" for net, fast, slow in servers)
    return {
        "three_times": alone, "faster_than_data": data,
        "gap_grows": undecided(f"it {four}, beside two"),
        "async_converges": found(
            all(fast < slow for _, fast, slow in servers), f"asynchronous and synchronous server to the same accuracy: {words}",
            f"4 workers in virtual time ({elsewhere.PROTOCOLS})", PREDICTED,
        ) if servers else undecided("the study `protocols` was not run"),
    }  # fmt: skip


def bytes_an_image(result):
    """Bytes that the hypergraph pipeline sends for an image, for each batch size of one of `elsewhere.hosts`."""
    return [row["bytes"] / row["batch"] for row in result["rows"] if row["method"] == times.HYPERGRAPH]
