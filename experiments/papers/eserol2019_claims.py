"""What Eserol 2019 claims, and what is found of it. The claims are in `published/eserol2019.toml`.

Those about partitions and what they send are judged here, those about time in `eserol2019_claims_times.py`.
"""

from gridgrad.experiments.papers import eserol2019_claims_times as of_times
from gridgrad.experiments.papers import eserol2019_elsewhere as elsewhere
from gridgrad.experiments.papers import eserol2019_search as searches
from gridgrad.experiments.papers import eserol2019_tables as rows
from gridgrad.experiments.papers import eserol2019_vgg16 as vgg16
from gridgrad.experiments.papers.cited import RATIO, published
from gridgrad.experiments.papers.claims import FOLLOWS, found, judged, undecided
from gridgrad.experiments.papers.items import KEPT, MEASURED

NEAR = 0.01  # volumes that differ by less, relative, count as equal
CLOSE = 1.25  # a factor within which volumes are about the same
EVEN = 1.1005  # max/avg
FITTED = "fitted: the works of the layers are not in the thesis, and those here were fitted to its Tables 5.1 and 5.5"
NO_SEARCH = "no partitions were searched for: `gridgrad reproduce eserol2019` does"


def claims(tables):
    """The Claims with what is found of each, contrary results first. tables: of `eserol2019.tables`."""
    findings = {
        **of_naive(tables), **of_hypergraphs(tables), **of_both_grains(tables), **of_data(tables), **of_network(tables),
        **of_times.findings(tables),
    }  # fmt: skip
    return judged(published(rows.PAPER), findings)


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


def off_by(ours, printed):
    """The relative difference; 0 where the thesis may have left the decimals out."""
    whole = float(printed).is_integer() and printed < 100
    return 0.0 if whole and int(ours) == printed else abs(ours / printed - 1)


def of_naive(tables):
    """Simple partitions: what was counted, beside what is printed."""
    star = {name: by_ranks(tables[name], "star") for name in ("5.2", "5.4", "5.6", "5.8")}
    printed = {name: by_ranks(tables[name], "volume, printed") for name in star}
    layers = [abs(star["5.2"][n] - volume) for n, volume in printed["5.2"].items()]
    equal = [abs(star["5.4"][n] - volume) for n, volume in printed["5.4"].items()]
    off = {n: off_by(star["5.6"][n], volume) for n, volume in printed["5.6"].items()}
    worst = max(off, key=off.get)
    less = {n: star["5.4"][n] / volume for n, volume in star["5.6"].items()}
    ratio = {n: star["5.8"][n] / volume for n, volume in star["5.6"].items()}
    named = published(rows.PAPER).tables
    theirs = RATIO(*(named[name].cited("volume", 128) for name in ("5.4", "5.6")))
    (grains,) = tables["grains"]
    works = {name: by_ranks(tables[name], "max/avg") for name in ("5.1", "5.5")}
    return {
        "layer_work": undecided(FITTED, f"max/avg {listed(works['5.1'].values())}"),
        "incremental_work": undecided(FITTED, f"max/avg {listed(works['5.5'].values())}"),
        "layer_volumes": found(
            max(layers) < 0.1, f"{listed(star['5.2'].values())}: at most {max(layers):.2f} off, as the thesis rounds down",
            "the cuts follow from works that were fitted", FOLLOWS,
        ),
        "horizontal": found(
            max(equal) < 1, f"{listed(star['5.4'].values())}: at most {max(equal):.2f} off, as decimals are left out",
            "by way of a star; the fully connected layers are divided, but not what they send", FOLLOWS,
        ),
        "incremental_volumes": found(
            off[worst] < NEAR, f"{listed(star['5.6'].values())}: at most {100 * off[worst]:.1f} % off (N = {worst})",
            "the thesis' cuts could not all be found, as the works of the layers are not in it", FOLLOWS,
        ),
        "incremental_less": found(
            min(less.values()) > 2, f"{listed(less.values())} times less; by the printed numbers {theirs.value:.3g} at N = 128",
            kind=FOLLOWS,
        ),
        "incremental_layers": found(
            all(star["5.6"][n] >= volume for n, volume in star["5.2"].items()),
            f"{listed(star['5.6'][n] for n in star['5.2'])} against {listed(star['5.2'].values())} ({numbers_of(star['5.2'])})",
            kind=FOLLOWS,
        ),
        "channel_volumes": found(
            all(1 / CLOSE < one < CLOSE for one in ratio.values()),
            f"{listed(star['5.8'].values())}, which is {listed(ratio.values())} times the filter-wise one", kind=FOLLOWS,
        ),
        "horizontal_same": found(
            off_by(grains["fine"], grains["coarse"]) < NEAR,
            f"N = {grains['N']}: {grains['coarse']:.4g} and {grains['fine']:.4g} (connectivity-1)", kind=FOLLOWS,
        ),
    }  # fmt: skip


def of_hypergraphs(tables):
    """Partitions that were searched for, beside those that the thesis prints and beside simple ones."""
    ours = {grain: {int(n): row for n, row in tables[grain].items()} for grain in ("coarse", "fine")}
    volumes = {grain: {n: row["volume_melements"] for n, row in some.items()} for grain, some in ours.items()}
    even = {grain: {n: row["max_over_avg"] for n, row in some.items()} for grain, some in ours.items()}
    layers, filters = (by_ranks(tables[name], "connectivity-1") for name in ("5.2", "5.6"))
    printed = {name: by_ranks(tables[name], "volume, printed") for name in ("5.2", "5.10", "5.12")}
    few = [n for n in layers if n in volumes["coarse"]]
    best = {n: volumes["coarse"][n] < min(layers[n], filters[n]) for n in few}
    their_layers = [n for n, volume in printed["5.2"].items() if volume < printed["5.10"][n]]
    against = (
        f"{numbers_of(few)}: {listed(volumes['coarse'][n] for n in few)} against {listed(layers[n] for n in few)} by layers"
    )
    against += f" and {listed(filters[n] for n in few)} by filters, one after another"
    many = len(ours["coarse"]) + len(ours["fine"])
    limits = [most <= (EVEN if n < 128 else searches.LOOSE * 1.001) for some in even.values() for n, most in some.items()]
    works = by_ranks(tables["5.1"], "max/avg")
    balanced = {n: even["coarse"][n] <= EVEN for n in few}
    return {
        "better_than_known": everywhere(
            best, layers, against,
            f"layer-wise partitions send less for {numbers_of(n for n in few if layers[n] <= volumes['coarse'][n])}, in the "
            f"thesis for {numbers_of(their_layers)} (Tables 5.2 and 5.10)",
        ) if few else follows_better(printed, their_layers),
        "no_expert": found(
            all(limits), f"{many} partitions for {numbers_of(volumes['coarse'])}, found by a program, each within its limit",
        ) if many else undecided(NO_SEARCH),
        "coarse_volumes": reached(ours["coarse"], printed["5.10"], "volume_melements", proved(tables)),
        "fine_volumes": reached(ours["fine"], printed["5.12"], "volume_melements"),
        "coarse_naive": undominated(tables, "coarse", volumes["coarse"], even["coarse"]),
        "fine_naive": undominated(tables, "fine", volumes["fine"], even["fine"]),
        "coarse_layers": everywhere(
            balanced, layers,
            f"{numbers_of(few)}: max/avg {listed(even['coarse'][n] for n in few)} against {listed(works[n] for n in few)} by "
            f"layers, which send less for {numbers_of(n for n in few if layers[n] < volumes['coarse'][n])}",
            "where there are more ranks than layers, the layers have no partition; at N = 128 the thesis' hypergraph partition "
            "is uneven as well, since a fully connected layer is one vertex",
        ),
        "layers_costly": found(
            not their_layers, printed_volumes(printed),
            "the imbalance is high from N = 8 on, but what layers send is the least of all partitions there", FOLLOWS,
        ),
    }  # fmt: skip


def follows_better(printed, layers):
    """The Finding of `better_than_known` from printed numbers alone."""
    reason = f"layer-wise partitions send less for {numbers_of(layers)}"
    return found(not layers, printed_volumes(printed), reason, FOLLOWS)


def printed_volumes(printed):
    """What Tables 5.2 and 5.10 print for the same numbers of ranks, in words."""
    few = printed["5.2"]
    return f"{numbers_of(few)}: Table 5.2 has {listed(few.values())}, Table 5.10 {listed(printed['5.10'][n] for n in few)}"


def proved(tables):
    """What a solver proves of the best partitions, in words."""
    found = [row for row in tables["proof"] if row["proved"]]
    words = ", ".join(f"{row['volume']:.4g} (N = {row['N']})" for row in found)
    return f"no coarse partition with this limit sends less than {words}, so PaToH's were not the best" if found else ""


def reached(ours, printed, column, reason=""):
    """The Finding of whether volumes that the thesis prints are reached, or undercut."""
    holds = {n: row[column] <= printed[n] for n, row in ours.items()}
    numbers = f"{numbers_of(ours)}: {listed(row[column] for row in ours.values())}"
    return everywhere(holds, printed, f"{numbers}, where the thesis has {listed(printed[n] for n in ours)}", reason)


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
    better = sum(even[1][n] < even[0][n] - NEAR for n in asked)
    numbers += (
        f"; max/avg with an imbalance of 0.03: {listed(even[1][n] for n in asked)} and {listed(even[0][n] for n in asked)}"
    )
    reason = "" if better > len(asked) / 2 else "fine partitions send less, but coarse ones are as even where that is asked for"
    return {"fine_better": found(less and better > len(asked) / 2, numbers, reason)}


def of_data(tables):
    """Data parallelism: Table 5.14."""
    *lines, mean = tables["5.14"]
    in_bytes, average = mean["reduction in bytes, derived %"], mean["reduction, %"]
    said = published(rows.PAPER).values["reduction"].value
    less = [line["reduction in bytes, derived %"] for line in lines]
    equal = sum(int(line["data parallel, GB"] + 1e-6) == line["data parallel, printed GB"] for line in lines)
    ours = [(grain, mean[f"our {grain} one: reduction, %"]) for grain in ("coarse", "fine")]
    words = "".join(f", with our {grain} ones {value:.1f} %" for grain, value in ours if value is not None)
    result = elsewhere.hosts().get(2)
    if result:
        spread, sizes = of_times.bytes_an_image(result), ", ".join(map(str, elsewhere.batches(result)))
        more = max(spread) / min(spread) - 1
        same = found(more < NEAR, f"{100 * more:.2g} % more for an image at most, of batches of {sizes}",
                     elsewhere.measured_by(), KEPT)  # fmt: skip
    else:
        volumes = {}
        for line in lines:
            volumes.setdefault(line["N"], set()).add(line["hypergraph, printed GB"])
        same = found(all(len(some) == 1 for some in volumes.values()), "Table 5.14 prints one number of GB for all batch sizes",
                     kind=FOLLOWS)  # fmt: skip
    return {
        "less_than_data": found(
            abs(in_bytes - said) < 1, f"{in_bytes:.1f} % in bytes, with the thesis' own partitions{words}",
            "the thesis divides elements of 4 bytes by bytes", FOLLOWS,
        ),
        "less_everywhere": found(min(less) > 0, f"at least {min(less):.0f} % less in bytes, in {len(less)} of {len(less)} cases"
                                 if min(less) > 0 else f"{min(less):.0f} % less in bytes", kind=FOLLOWS),
        "average": found(abs(average - said) < 0.05, f"{average:.2f} % by the printed GB", kind=FOLLOWS),
        "data_grows": found(
            equal == len(lines), f"the formula gives {equal} of {len(lines)} numbers of Table 5.14", kind=FOLLOWS
        ),
        "same_volume": same,
    }  # fmt: skip


def of_network(tables):
    """VGG16 itself, and what its hypergraph says."""
    *_, total = tables["5.13"]
    values, count = published(rows.PAPER).values, total["parameters"]
    mebibytes = count * vgg16.ITEM_BYTES / vgg16.MILLION
    megabytes, derived = total["elements"] * vgg16.ITEM_BYTES / 1e6, rows.memory_of_image().value
    wrong, (_, looked) = tables["columns"], rows.column_rows()
    hosts = elsewhere.hosts().values()
    surplus = [abs(one - 1) for result in hosts for one in elsewhere.surplus(result)]
    return {
        "parameters": found(
            count == values["parameters"].value and abs(mebibytes - values["parameter_MB"].value) < 1e-3,
            f"{count:,} parameters with biases, {mebibytes:.3f} MiB in float32", kind=FOLLOWS,
        ),
        "image_memory": found(
            abs(megabytes / values["image_MB"].value - 1) < 0.1,
            f"{megabytes:.1f} MB: {total['elements']:,} numbers of 4 bytes; {derived:.1f} MB by the thesis' own column",
            "93 MB does not follow from the column that it sums", FOLLOWS,
        ),
        "columns": found(
            not wrong, f"{len(wrong)} of {looked} numbers do not",
            "in Tables 5.5, 5.6 and 5.8 ranks without work are left out; the others contradict their row", FOLLOWS,
        ),
        "exact_model": found(
            max(surplus) < NEAR, f"bytes that were sent are within {100 * max(surplus):.2g} % of what the hypergraph says, for "
            f"{len(surplus)} pipelines", f"the rest is the loss; {elsewhere.measured_by()}", KEPT,
        ) if surplus else undecided("what pipelines send was not counted: `gridgrad study eserol2019-hosts` does"),
    }  # fmt: skip
