"""What Eserol 2019 claims, and what is found of it. The claims are in `published/eserol2019.toml`.

Those about partitions and what they send are judged here, those about time in `claims_times.py`. Volumes are counted
in full, on partitions that were made here.
"""

from gridgrad.experiments.papers.cited import RATIO
from gridgrad.experiments.papers.claims import DIFFERS, FOLLOWS, HOLDS, contradictory, found, judged, undecided
from gridgrad.experiments.papers.eserol2019 import claims_times as of_times
from gridgrad.experiments.papers.eserol2019 import elsewhere, vgg16
from gridgrad.experiments.papers.eserol2019 import search as searches
from gridgrad.experiments.papers.eserol2019 import tables as rows
from gridgrad.experiments.papers.eserol2019.search import EVEN
from gridgrad.experiments.papers.eserol2019.vgg16 import KNOWN
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED

SAME = 0.05  # volumes that differ by no more, relative, count as equal to printed ones
EXACT = 0.01  # the same for what has to be equal but for a remainder
ABOUT = 1.25  # a factor within which two volumes are about the same
MUCH = 2  # a factor from which on a volume is much less
EVENER = 0.01  # of max/avg, by which one has to be less to count as more even
TENTH = 0.1  # of what is printed, up to which a size of memory counts as equal
FITTED = "fitted: the works of the layers are not in the thesis, and those here were fitted to its Tables 5.1 and 5.5"
CUTS = f"up to {100 * SAME:g} % off counts as equal; the cuts follow from works of the layers that were fitted"
NO_SEARCH = "no partitions were searched for: `gridgrad reproduce eserol2019` does"


def claims(tables):
    """The Claims with what is found of each, contrary results first. tables: of `eserol2019.tables`."""
    findings = {
        **of_naive(tables), **of_hypergraphs(tables), **of_both_grains(tables), **of_data(tables), **of_network(tables),
        **of_times.findings(tables),
    }  # fmt: skip
    return judged(KNOWN, findings)


def by_ranks(table, column):
    """{ranks: a number of ours} of the rows of a table that have it."""
    return {row["N"]: row[column] for row in table if row.get(column) is not None}


def listed(values):
    """Numbers as text."""
    return ", ".join(f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in values)


def numbers_of(ranks):
    """Some numbers of ranks as text."""
    return f"N = {', '.join(map(str, ranks))}"


def everywhere(holds, needed, numbers, reason=""):
    """The Finding of what has to hold for all numbers of ranks. holds: {ranks: whether}. needed: of which."""
    if not holds:
        return undecided(NO_SEARCH)
    lacking = [n for n in needed if n not in holds]
    if all(holds.values()) and lacking:
        return undecided(f"it holds as far as was searched, but {numbers_of(lacking)} was not searched for", numbers, MEASURED)
    return found(all(holds.values()), numbers, reason)


def of_naive(tables):
    """Simple partitions: what was counted, beside what is printed."""
    star = {name: by_ranks(tables[name], "star") for name in ("5.2", "5.4", "5.6", "5.8")}
    less = {n: star["5.4"][n] / volume for n, volume in star["5.6"].items()}
    ratio = {n: star["5.8"][n] / volume for n, volume in star["5.6"].items()}
    named = KNOWN.tables
    theirs = RATIO(*(named[name].cited("volume", 128) for name in ("5.4", "5.6")))
    (grains,) = tables["grains"]
    works = {name: by_ranks(tables[name], "max/avg") for name in ("5.1", "5.5")}
    about = all(1 / ABOUT < one < ABOUT for one in ratio.values())
    channel = as_printed(
        tables["5.8"], f"{CUTS}; up to {ABOUT:g} times counts as about the same",
        more=f"; {listed(ratio.values())} times the filter-wise one",
    )  # fmt: skip
    return {
        "layer_work": undecided(FITTED, f"max/avg {listed(works['5.1'].values())}", PREDICTED),
        "incremental_work": undecided(FITTED, f"max/avg {listed(works['5.5'].values())}", PREDICTED),
        "layer_volumes": as_printed(tables["5.2"], CUTS),
        "horizontal": as_printed(
            tables["5.4"],
            f"up to {100 * SAME:g} % off counts as equal; by way of a star; the fully connected layers are divided, but not "
            "what they send", bound=True,
        ),
        "incremental_volumes": as_printed(tables["5.6"], CUTS),
        "incremental_less": found(
            min(less.values()) > MUCH,
            f"{listed(less.values())} times less; by the printed numbers {theirs.value:.3g} at N = 128",
            f"more than {MUCH} times counts as much less",
        ),
        "incremental_layers": found(
            all(star["5.6"][n] >= volume for n, volume in star["5.2"].items()),
            f"{listed(star['5.6'][n] for n in star['5.2'])} against {listed(star['5.2'].values())} ({numbers_of(star['5.2'])})",
        ),
        "channel_volumes": channel if about else found(False, channel.numbers, channel.reason),
        "horizontal_same": found(
            abs(grains["fine"] / grains["coarse"] - 1) < EXACT,
            f"N = {grains['N']}: {grains['coarse']:.4g} and {grains['fine']:.4g} (connectivity-1)",
            f"up to {100 * EXACT:g} % counts as the same",
        ),
    }  # fmt: skip


def as_printed(table, reason, bound=False, more=""):
    """The Finding of whether a simple partition sends what the thesis prints.

    bound: whether it has to be the thesis' own partition, so that another volume is not that of other cuts. more: more numbers.
    """
    ours, printed = by_ranks(table, "star"), by_ranks(table, "volume, printed")
    off = {n: abs(ours[n] / volume - 1) for n, volume in printed.items()}
    worst = max(off, key=off.get)
    numbers = f"{listed(ours.values())}: at most {100 * off[worst]:.1f} % off (N = {worst}){more}"
    if off[worst] > SAME and not bound:
        return undecided(f"the thesis' cuts could not be found; {reason}", numbers, MEASURED)
    return found(off[worst] <= SAME, numbers, reason)


def of_hypergraphs(tables):
    """Partitions that were searched for, beside those that the thesis prints and beside simple ones."""
    ours = {grain: {int(n): row for n, row in tables[grain].items()} for grain in ("coarse", "fine")}
    volumes = {grain: {n: row["volume_melements"] for n, row in some.items()} for grain, some in ours.items()}
    even = {grain: {n: row["max_over_avg"] for n, row in some.items()} for grain, some in ours.items()}
    either = {n: max(row["volume_melements"], row["star_melements"]) for n, row in ours["coarse"].items()}
    printed = {name: by_ranks(tables[name], "volume, printed") for name in ("5.2", "5.10", "5.12")}
    their_layers = [n for n, volume in printed["5.2"].items() if volume < printed["5.10"][n]]
    many = len(ours["coarse"]) + len(ours["fine"])
    limits = [most <= (EVEN if n < 128 else searches.LOOSE * 1.001) for some in even.values() for n, most in some.items()]
    uneven = f"at N = 128 FC1 alone is {searches.LOOSE:.3g} times the mean, and no rank has more"
    return {
        "better_than_known": better(tables, volumes["coarse"], printed, their_layers),
        "no_expert": found(
            all(limits), f"{sum(limits)} of {many} partitions for {numbers_of(volumes['coarse'])}, found by a program, are as "
            "even as they have to be", f"max/avg of at most {EVEN:.2f}; {uneven}",
        ) if many else undecided(NO_SEARCH),
        "coarse_volumes": reached(
            either, printed["5.10"],
            "; ".join(filter(None, ("by way of a star or in connectivity-1, whichever is more", uneven, proved(tables)))),
        ),
        "fine_volumes": reached(
            volumes["fine"], printed["5.12"],
            f"in connectivity-1, since Table 5.12 can not be of a star from N = 32 on; {uneven}",
        ),
        "coarse_naive": undominated(tables, "coarse", volumes["coarse"], even["coarse"]),
        "fine_naive": undominated(tables, "fine", volumes["fine"], even["fine"]),
        "coarse_layers": beside_layers(tables, volumes["coarse"], even["coarse"]),
        "layers_costly": found(
            not their_layers, printed_volumes(printed),
            "the imbalance is high from N = 8 on, but what layers send is the least of all partitions there", FOLLOWS,
        ),
    }  # fmt: skip


def better(tables, volumes, printed, their_layers):
    """The Finding of whether coarse partitions send less than all simple ones. volumes: {ranks: connectivity-1}.

    printed: of Tables 5.2 and 5.10. their_layers: the ranks for which layer-wise partitions send less in the thesis.
    """
    theirs = f"in the thesis layers send less for {numbers_of(their_layers)} (Tables 5.2 and 5.10)"
    layers, filters = (by_ranks(tables[name], "connectivity-1") for name in ("5.2", "5.6"))
    simple = {n: min(layers[n], filters[n]) for n in layers if n in volumes}
    if not simple:
        return found(not their_layers, printed_volumes(printed), f"layers send less for {numbers_of(their_layers)}", FOLLOWS)
    holds = {n: volumes[n] < volume for n, volume in simple.items()}
    shown = [n for n in holds if not holds[n]] or list(holds)
    ours, others = (listed(some[n] for n in shown) for some in (volumes, simple))
    numbers = f"{numbers_of(shown)}: hypergraph partitions send {ours}, the better of layer-wise and filter-wise ones {others} "
    numbers += "(2^20 elements)"
    return everywhere(holds, layers, numbers, theirs if their_layers else "")


def printed_volumes(printed):
    """What Tables 5.2 and 5.10 print for the same numbers of ranks, in words."""
    few = printed["5.2"]
    return f"{numbers_of(few)}: {listed(few.values())} by layers, {listed(printed['5.10'][n] for n in few)} coarse"


def beside_layers(tables, volumes, even):
    """The Finding of whether coarse partitions are even, and send less than layer-wise ones for some ranks, for others more."""
    layers, works = by_ranks(tables["5.2"], "connectivity-1"), by_ranks(tables["5.1"], "max/avg")
    few = [n for n in layers if n in volumes]
    less, more = ([n for n in few if sign * volumes[n] < sign * layers[n]] for sign in (1, -1))
    numbers = (
        f"{numbers_of(few)}: max/avg {listed(even[n] for n in few)} against {listed(works[n] for n in few)} by layers, which "
        f"send more for {numbers_of(less)} and less for {numbers_of(more)}"
    )
    reason = (
        f"max/avg of at most {EVEN:.2f} counts as even; where there are more ranks than layers, the layers have no partition, "
        "and at N = 128 the thesis' hypergraph partition is uneven as well, since a fully connected layer is one vertex"
    )
    finding = everywhere({n: even[n] <= EVEN for n in few}, layers, numbers, reason)
    return found(bool(less and more), numbers, reason) if finding.verdict == HOLDS else finding


def proved(tables):
    """What a solver proves of the best partitions, in words."""
    best = [row for row in tables["proof"] if row["proved"]]
    words = ", ".join(f"{row['volume']:.4g} (N = {row['N']})" for row in best)
    return f"no coarse partition with this limit sends less than {words}, so PaToH's were not the best" if best else ""


def reached(volumes, printed, reason):
    """The Finding of whether partitions send at most what the thesis prints. volumes: of ours, {ranks: volume}."""
    holds = {n: volume <= printed[n] for n, volume in volumes.items()}
    numbers = f"{numbers_of(volumes)}: {listed(volumes.values())}, where the thesis has {listed(printed[n] for n in volumes)}"
    finding = everywhere(holds, printed, numbers, reason)
    # a search that finds no better ones does not show that there are none
    lacking = "our searches found none that send as little for all N"
    return undecided(f"{lacking}; {reason}", numbers, MEASURED) if finding.verdict == DIFFERS else finding


def undominated(tables, grain, volumes, even):
    """The Finding of whether no simple partition sends as little and is as even as ours."""
    names = ("5.5", "5.6") if grain == "coarse" else ("5.7", "5.8")
    balance, sent = by_ranks(tables[names[0]], "max/avg"), by_ranks(tables[names[1]], "connectivity-1")
    equal = by_ranks(tables["5.4"], "connectivity-1")  # whose work is even
    holds = {n: not (sent[n] <= volume and balance[n] <= even[n]) and equal[n] > volume for n, volume in volumes.items()}
    less = [n for n, volume in volumes.items() if volume < sent[n]]
    reason = "no simple partition sends as little and is as even" if all(holds.values()) else ""
    if grain == "coarse":
        reason += f"{'; ' * bool(reason)}the incremental one is as even as PaToH's with an imbalance of 0.2 and sends less for "
        reason += f"{numbers_of(printed_beaten())} (Tables 5.5, 5.6, A.3 and A.9)"
    numbers = f"less than the incremental one for {numbers_of(less)}, of {numbers_of(volumes)}"
    return everywhere(holds, sent, numbers, reason)


def printed_beaten():
    """The numbers of ranks for which the thesis' incremental partition is as even as its coarse one, and sends less."""
    work, volume, their_work, their_volume = (rows.printed(name) for name in ("5.5", "5.6", "A.3", "A.9"))
    even = {n: line["max"] / line["mean"] <= their_work[n]["max"] / their_work[n]["mean"] for n, line in work.items()}
    return [n for n, line in volume.items() if even[n] and line["volume"] <= their_volume[n]["volume"]]


def of_both_grains(tables):
    """The fine grain against the coarse one: volumes with an imbalance of 0.1, balance with 0.03."""
    coarse, fine = ({int(n): row["volume_melements"] for n, row in tables[grain].items()} for grain in ("coarse", "fine"))
    both = [n for n in fine if n in coarse]
    ratio = {n: fine[n] / coarse[n] for n in both}
    printed = {name: by_ranks(tables[name], "volume, printed") for name in ("5.10", "5.12")}
    more = [n for n, volume in printed["5.12"].items() if int(volume) > printed["5.10"][n]]
    if not both:
        return {"fine_better": undecided(NO_SEARCH)}
    numbers = f"{numbers_of(both)}: {listed(ratio.values())} times what coarse ones send; the thesis' fine one sends more for "
    numbers += numbers_of(more)
    less = all(one <= 1 + 1e-9 for one in ratio.values())
    even = [by_ranks(tables[name], "max/avg") for name in ("A.1", "A.4")]
    asked = [n for n in vgg16.RANKS if n in even[0] and n in even[1]]
    if less and len(asked) < len(vgg16.RANKS):
        lacking = "fine partitions send no more, but whether they are more even was not searched for with an imbalance of 0.03"
        return {"fine_better": undecided(lacking, numbers, MEASURED)}
    better = sum(even[1][n] < even[0][n] - EVENER for n in asked)
    numbers += (
        f"; max/avg with an imbalance of 0.03: {listed(even[1][n] for n in asked)} (fine) and "
        f"{listed(even[0][n] for n in asked)} (coarse)"
    )
    evener = better > len(asked) / 2
    reason = "coarse ones are as even where that is asked for; " * (not evener)
    reason += f"a max/avg that is less by {EVENER:g} counts as better, and has to be so for most N"
    return {"fine_better": found(less and evener, numbers, reason)}


def of_data(tables):
    """Data parallelism: Table 5.14."""
    *lines, mean = tables["5.14"]
    in_bytes, average = mean["reduction in bytes, derived %"], mean["reduction, %"]
    said = KNOWN.values["reduction"].value
    less = [line["reduction in bytes, derived %"] for line in lines]
    equal = sum(int(line["data parallel, GB"] + 1e-6) == line["data parallel, printed GB"] for line in lines)
    ours = {grain: mean[f"our {grain} one: reduction, %"] for grain in ("coarse", "fine")}
    words = " and ".join(f"{value:.1f} % ({grain})" for grain, value in ours.items() if value is not None)
    result = elsewhere.hosts().get(2)
    if result and len(result.batches) > 1:
        sent = of_times.bytes_an_image(result)
        more = max(sent) / min(sent) - 1
        same = found(
            more < EXACT, f"{100 * more:.2g} % more for an image at most, with {of_times.batches(result)}",
            f"up to {100 * EXACT:g} % counts as the same; a small network, {elsewhere.measured_by()}", KEPT,
        )  # fmt: skip
    else:
        same = undecided(f"{elsewhere.HOSTS} has only one batch size" if result else elsewhere.no_hosts())
    return {
        "less_than_data": found(
            abs(in_bytes - said) < 1, f"{in_bytes:.1f} % in bytes" + f"; with our partitions {words}" * bool(words),
            "the thesis divides elements of 4 bytes by bytes; less than 1 point off counts as equal", FOLLOWS,
        ),
        "less_everywhere": found(min(less) > 0, f"at least {min(less):.0f} % less in bytes, in {len(less)} of {len(less)} cases"
                                 if min(less) > 0 else f"{min(less):.0f} % less in bytes", kind=FOLLOWS),
        "average": found(
            abs(average - said) < 0.05, f"{average:.2f} % by the printed GB", "less than 0.05 % off counts as equal", FOLLOWS
        ),
        "data_grows": found(
            equal == len(lines), f"the formula gives {equal} of {len(lines)} numbers of Table 5.14", kind=FOLLOWS
        ),
        "same_volume": same,
    }  # fmt: skip


def of_network(tables):
    """VGG16 itself, and what its hypergraph says."""
    *_, total = tables["5.13"]
    values, count = KNOWN.values, total["parameters"]
    mebibytes = count * vgg16.ITEM_BYTES / vgg16.MEBI
    megabytes, derived = total["elements"] * vgg16.ITEM_BYTES / 1e6, rows.memory_of_image().value
    surplus = [abs(one - 1) for result in elsewhere.hosts().values() for one in result.surplus]
    return {
        "parameters": found(
            count == values["parameters"].value and abs(mebibytes - values["parameter_MB"].value) < 1e-3,
            f"{count:,} parameters with biases, {mebibytes:.3f} MiB in float32",
        ),
        "image_memory": found(
            abs(megabytes / values["image_MB"].value - 1) < TENTH,
            f"{megabytes:.1f} MB: {total['elements']:,} numbers of 4 bytes; {derived:.1f} MB by the thesis' own column",
            f"93 MB does not follow from the column that it sums; less than {100 * TENTH:g} % off counts as equal",
        ),
        "columns": of_columns(tables["columns"]),
        "exact_model": found(
            max(surplus) < EXACT,
            f"bytes sent by {len(surplus)} pipelines are within {100 * max(surplus):.2g} % of what the hypergraph says",
            f"up to {100 * EXACT:g} % counts as exact: the rest is the loss; a small network, {elsewhere.measured_by()}", KEPT,
        ) if surplus else undecided(elsewhere.no_hosts()),
    }  # fmt: skip


def of_columns(wrong):
    """The Finding of numbers that contradict others of their row. wrong: those of the table "columns"."""
    _, looked = rows.column_rows()
    if not wrong:
        return found(True, f"0 of {looked} numbers are others", kind=FOLLOWS)
    return contradictory(
        f"{len(wrong)} of {looked} numbers are not those that follow from the other columns",
        "in Tables 5.5 and 5.6 the thesis leaves out ranks without work, 1 for N = 64 and 6 for N = 128, and in Table 5.8 1 "
        "for N = 128, which explains the numbers there; of the others only one is explained: 51,308 for N = 2 in Table 5.1 "
        "repeats the row below; results/eserol2019/tables.md lists them",
    )
