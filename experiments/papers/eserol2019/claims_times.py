"""What is found of the claims of Eserol 2019 about time: Table 5.15, Figure 5.2 and chapter 4.

Measured is a small network on two emulated hosts (`elsewhere.py`), which decides where it was. Otherwise predictions
for VGG16 do, where two of them agree. What Table 5.15 prints is no evidence for what the text says of that table.
"""

from statistics import median

from gridgrad.experiments.papers.cited import RATIO
from gridgrad.experiments.papers.claims import DIFFERS, FOLLOWS, HOLDS, found, undecided
from gridgrad.experiments.papers.eserol2019 import elsewhere, times
from gridgrad.experiments.papers.eserol2019.elsewhere import ROUND_ROBIN, TIE, faster
from gridgrad.experiments.papers.eserol2019.vgg16 import KNOWN
from gridgrad.experiments.papers.items import KEPT, PREDICTED

PRINTED, PREDICTIONS, SEQUENTIAL = "printed", "*predicted*", "*without overlap*"  # columns of seconds
SMALL = 16, 32, 64  # the small batches of section 5.2.4
TIED = f"up to {100 * TIE:g} % counts as equal"
FULL = 0.9  # of the time, from which on a processor is called fully used
IMAGENET = 1_281_167  # images of an epoch, which the thesis does not print
FOUR = "it needs 4 processors of its own, and two cores are at hand"


def findings(tables):
    """{name of a claim about time: its Finding}. tables: of `eserol2019.tables`."""
    asynchronous, waiting, spread, spread_waiting = times.DATA
    often = {
        "layers_faster": [(times.LAYERS, times.SINGLE)],
        "filters_slower": [(times.LAYERS, times.FILTERS)],
        "hypergraph_filters": [(times.HYPERGRAPH, times.FILTERS)],
        "hypergraph_layers": [(times.HYPERGRAPH, times.LAYERS)],
        "spread_sync": [(spread_waiting, waiting)],
        "async_faster": [(asynchronous, waiting), (spread, spread_waiting)],
    }
    return {
        **{name: mostly(tables, pairs) for name, pairs in often.items()},
        "spread_async": not_mostly(spread, asynchronous), "greedy": greedy(tables), "small_batches": small_batches(),
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


def side(ratio):
    """1, 0 or -1: whether a ratio without a spread counts as more than one, as equal, or as less."""
    return faster(ratio, ratio)


def on_hosts(pairs):
    """(numbers in words, for each case of two hosts 1, 0 or -1: whether the first of a pair counts as faster, see `faster`)."""
    result = elsewhere.hosts().get(2)
    if result is None:
        return "", []
    found = [result.quartiles(*pair) for pair in pairs]
    ratios = " and ".join(", ".join(f"{middle:.2f}" for _, middle, _ in some.values()) for some in found)
    sides = [faster(low, high) for some in found for low, _, high in some.values()]
    return f"{ratios} times as fast on 2 hosts with {batches(result)}", sides


def batches(result):
    """The batch sizes of a result in words."""
    return f"batches of {', '.join(map(str, result.batches))}"


def by_cases(sides, numbers, reason):
    """The Finding of whether something is so in most cases, from measurements on hosts. sides: 1, 0 or -1 for each case."""
    won, lost, cases = sides.count(1), sides.count(-1), len(sides)
    if not cases:
        return undecided(f"too few batch sizes; {reason}", numbers, KEPT)
    if won <= cases / 2 < cases - lost:
        return undecided(f"too near to each other; {reason}", numbers, KEPT)
    return found(won > cases / 2, numbers, reason, KEPT)


def mostly(tables, pairs):
    """The Finding of whether the first method of a pair is faster than the other in most cases.

    What was measured decides, unless two predictions for VGG16 agree on the contrary; where nothing was, two that agree do.
    """
    said, verdicts = [], set()
    for cases_where, column in (("cases where communication overlaps", PREDICTIONS), ("where it does not", SEQUENTIAL)):
        won, cases = wins(seconds_of(tables, column), pairs)
        if cases and modelled(pairs):
            said.append(f"in {won} of {cases} {cases_where}")
            verdicts.add(won > cases / 2)
    predicted = f"so {', '.join(said)}" if said else ""
    agree = len(said) == 2 and len(verdicts) == 1
    numbers, sides = on_hosts(pairs)
    if sides:
        finding = by_cases(sides, numbers, f"{TIED}; {elsewhere.measured_by()}")
        contrary = agree and {HOLDS: False, DIFFERS: True}.get(finding.verdict) in verdicts
        return undecided(f"VGG16 is predicted to differ: {predicted}; {finding.reason}", numbers, KEPT) if contrary else finding
    if agree:
        return found(verdicts.pop(), predicted, elsewhere.no_hosts(), PREDICTED)
    return undecided(elsewhere.no_hosts(), predicted, PREDICTED)


def modelled(pairs):
    """Whether both methods of all pairs are predicted: what is predicted of data parallelism follows from what is printed."""
    return all(one in (*times.OWN, times.SINGLE) for pair in pairs for one in pair)


def not_mostly(method, other):
    """The Finding of whether a method is not faster than another in most cases."""
    numbers, sides = on_hosts([(method, other)])
    if sides:
        return found(sides.count(1) <= len(sides) / 2, numbers, f"{TIED}; {elsewhere.measured_by()}", KEPT)
    return undecided(elsewhere.no_hosts())


def greedy(tables):
    """The Finding of whether servers are better with greedy distribution: measured, or by the loads of VGG16."""
    loads = [(row["greedy, max/avg"], row["round-robin, max/avg"]) for row in tables["servers"]]
    pairs = ", ".join(f"{one:.2f} and {two:.2f}" for one, two in loads)
    said = f"the largest load of VGG16 on 2, 4, 8 and 16 servers over the mean is {pairs}"
    numbers, sides = on_hosts(list(zip(times.DATA[2:], ROUND_ROBIN, strict=True)))
    if sides:
        return by_cases(sides, numbers, f"{TIED}; {elsewhere.measured_by()}; {said}")
    return found(all(one <= other for one, other in loads), said, f"loads alone: {elsewhere.no_hosts()}", FOLLOWS)


def small_batches():
    """The Finding of whether model parallelism is faster than data parallelism with small batches, and slower with others."""
    printed = {}
    for ranks in times.RANKS:
        for batch in times.BATCHES:
            data = min(times.printed(ranks, method, batch).value for method in times.DATA)
            printed[ranks, batch] = side(data / times.printed(ranks, times.HYPERGRAPH, batch).value)
    agree = [sign == expected(batch) for (_, batch), sign in printed.items()]
    result = elsewhere.hosts().get(2)
    if result is None:
        return undecided(elsewhere.no_hosts(), f"Table 5.15: in {sum(agree)} of {len(agree)} cases")
    ratios = {}
    for batch in result.batches:
        fastest = min(times.DATA, key=lambda method: median(result.rounds[method, batch]))
        ratios[batch] = result.quartiles(times.HYPERGRAPH, fastest)[batch]
    words = ", ".join(f"{middle:.2f}" for _, middle, _ in ratios.values())
    numbers = f"over the best data parallelism: {words} (2 hosts, {batches(result)})"
    decided = by_cases(
        [faster(low, high) * expected(batch) for batch, (low, _, high) in ratios.items()], numbers,
        f"{TIED}; {elsewhere.measured_by()}",
    )  # fmt: skip
    # where the order turns depends on the network, so that another turn says nothing of VGG16
    return undecided(f"VGG16 may differ; {elsewhere.measured_by()}", numbers, KEPT) if decided.verdict == DIFFERS else decided


def expected(batch):
    """1 where section 5.2.4 says that model parallelism is the faster one, otherwise -1."""
    return 1 if batch in SMALL else -1


def steps_of_table():
    """(in how many steps of Table 5.15 to the next larger batch the single processor is faster, in how many slower, of how
    many)."""
    printed = [times.printed(1, times.SINGLE, batch).value for batch in times.BATCHES]
    sides = [side(one / two) for one, two in zip(printed, printed[1:])]
    return sides.count(1), sides.count(-1), len(sides)


def larger_batches():
    """The Finding of whether a larger batch shortens the run of a single processor."""
    falls, rises, steps = steps_of_table()
    printed = f"Table 5.15: the run is shorter in {falls} of {steps} steps, and longer in {rises}"
    result = elsewhere.hosts().get(2)
    if result is None:
        return undecided(elsewhere.no_hosts(), f"{printed}; {TIED}")
    each = [
        elsewhere.quartiles_of(seconds / batch for seconds in result.rounds[times.SINGLE, batch])
        for batch in result.batches
    ]  # fmt: skip
    sides = [faster(one[0] / two[2], one[2] / two[0]) for one, two in zip(each, each[1:])]
    here = ", ".join(f"{1e3 * middle:.3g}" for _, middle, _ in each)
    return by_cases(
        sides, f"a small network takes {here} ms an image with {batches(result)}",
        f"{TIED}; {elsewhere.measured_by()}; {printed}",
    )  # fmt: skip


def epoch_hours():
    """The Finding of whether the hours of an epoch fit the seconds of Table 5.15."""
    said = KNOWN.values["epoch_hours"].value
    count, epochs = (one.value for one in times.images())
    printed = [times.printed(1, times.SINGLE, batch).value for batch in times.BATCHES]
    least, most = (seconds * IMAGENET / (count * epochs) / 3600 for seconds in (min(printed), max(printed)))
    return found(
        least <= said <= most,
        f"{least:.0f} to {most:.0f} hours for the {IMAGENET:,} images of ImageNet, at the rates of batches of 512 and 32",
        "of 10 epochs of 10,240 images, as the text says; 'Per Epoch', as the table's title says, would make 10 times as many",
        FOLLOWS,
    )  # fmt: skip


def shares():
    """{(N, method, batch): the share of the time in which the busiest processor computes}, derived from printed numbers."""
    return {
        (n, method, batch): times.share(n, method, batch).value
        for n in times.RANKS for method in times.OWN for batch in times.BATCHES
    }  # fmt: skip


def full_use():
    """The Finding of whether pipelines use the processors fully."""
    theirs, rule = list(shares().values()), f"{100 * FULL:g} % counts as full"
    middle, least, most = (100 * one(theirs) for one in (median, min, max))
    result = elsewhere.hosts().get(2)
    if result is None:
        numbers = f"by printed seconds the busiest computes {middle:.0f} % of the time (median; {least:.0f} to {most:.0f})"
        return found(middle > 100 * FULL, numbers, rule, FOLLOWS)
    ours = {
        batch: [ratio * result.balance[times.HYPERGRAPH, batch] / 2 for ratio in ratios]
        for batch, ratios in result.quartiles(times.HYPERGRAPH, times.SINGLE).items()
    }
    words = ", ".join(f"{100 * middle:.0f}" for _, middle, _ in ours.values())
    return by_cases(
        [(low > FULL) - (high < FULL) for low, _, high in ours.values()],
        f"the busiest of 2 hosts computes {words} % of the time; VGG16 by printed seconds {middle:.0f} %",
        f"{rule}; {elsewhere.measured_by()}",
    )  # fmt: skip


def bound():
    """The Finding of whether computing takes most of the time."""
    theirs = list(shares().values())
    return found(
        median(theirs) > 0.5,
        f"the busiest processor computes {100 * min(theirs):.0f} to {100 * max(theirs):.0f} % of the time, "
        f"{100 * median(theirs):.0f} % in the median",
        "the median has to be above 50 %; shares are derived from printed seconds, and err by "
        f"{100 * max(theirs) - 100:.0f} points or more, since some are above 100 %", FOLLOWS,
    )  # fmt: skip


def of_convergence():
    """Figure 5.2: what the studies `convergence` and `protocols` found."""
    values, (result, why) = KNOWN.values, elsewhere.convergence()
    hours = RATIO(values["hours_alone"], values["hours_hypergraph"])
    data = undecided(why or "nothing to compare")
    if result:
        pipeline, together, one = (result.seconds[way] for way in (elsewhere.PIPELINE, elsewhere.TOGETHER, elsewhere.ALONE))
        data = undecided(
            "a small network on ranks that share a memory, against an all-reduce, one run each; VGG16 and parameter servers "
            f"may differ; {elsewhere.CONVERGENCE}, {result.processor}",
            f"a small network on two ranks: pipeline {pipeline:.0f} s, all-reduce {together:.0f} s; one rank: {one:.0f} s",
            KEPT,
        )  # fmt: skip
    servers, why = elsewhere.servers_to_target()
    words = ", ".join(f"{fast:.2f} and {slow:.2f} s ({net})" for net, fast, slow in servers or ())
    return {
        "three_times": undecided(FOUR, f"by the printed hours {hours.value:.2f} times"),
        "faster_than_data": data,
        "gap_grows": undecided(FOUR),
        "async_converges": found(
            all(fast < slow for _, fast, slow in servers), f"asynchronous and synchronous server to the same accuracy: {words}",
            f"4 workers in virtual time ({elsewhere.PROTOCOLS})", PREDICTED,
        ) if servers else undecided(why),
    }  # fmt: skip


def bytes_an_image(result):
    """Bytes that the hypergraph pipeline sends for an image, for each batch size of an `OnHosts`."""
    return [result.sent[times.HYPERGRAPH, batch] / batch for batch in result.batches]
