"""What Eserol 2019 says, and what is asked of the partitions here, beside what was computed."""

from gridgrad.experiments.papers import eserol2019_servers as servers
from gridgrad.experiments.papers import eserol2019_times as times
from gridgrad.experiments.papers import eserol2019_vgg16 as vgg16

MOST = {  # our own targets, not the thesis': volumes that our partitions should not exceed, by ranks
    "coarse": dict(zip(vgg16.RANKS, (15.4, 46, 243, 490, 970, 2000, 4350))),
    "fine": dict(zip(vgg16.RANKS, (15.4, 46, 230, 455, 780, 1270, 1960))),
}
SECONDS = {"coarse": 60, "fine": 30}  # of a search, our own too
REDUCTION = 80  # % over data parallelism in bytes, on average, our own too
NEAR = 0.01  # volumes that differ by less, relative, count as equal
CLOSE = 1.25  # a factor
TOLERANCE = f"Deviations in % count as equal below {100 * NEAR:g} %"
TITLE = f"What the thesis says, and what is asked of partitions here, which is not in the thesis. {TOLERANCE}"


def rows(tables):
    """A row for each claim of the thesis, then one for each target of this repository. tables: of `eserol2019.tables`."""
    claimed, asked = [*of_naive(tables), *of_hypergraph(), *of_bytes(tables)], []
    for grain in ("coarse", "fine"):
        if tables[grain]:
            claimed += of_search(tables, grain)
            asked += of_targets(tables, grain)
    claimed += [*of_both(tables), *of_times(tables)]
    return [
        *({"claim": claim, "published": published, "asked here": None, "ours": ours, "holds": holds}
          for claim, published, ours, holds in claimed),
        *({"claim": claim, "published": None, "asked here": target, "ours": ours, "holds": holds}
          for claim, target, ours, holds in asked),
    ]  # fmt: skip


def of_naive(tables):
    """Simple partitions: how many published numbers are met."""
    volumes = {name: tables[name] for name in ("5.2", "5.4", "5.6", "5.8")}
    largest = [row["max comm, published"] == row["max comm, star"] for some in volumes.values() for row in some]
    yield ("5.2, 5.4, 5.6, 5.8: the largest layer", f"{len(largest)} numbers", f"{sum(largest)} equal", all(largest))
    loads = [row[name] == row[f"{name}, published"] for row in tables["5.1"] for name in ("max", "min")]
    yield ("5.1: the largest and the least work", f"{len(loads)} numbers", f"{sum(loads)} equal", all(loads))
    layers = [abs(row["star"] - row["volume, published"]) for row in tables["5.2"]]
    yield ("5.2: volumes", "24.5 .. 273.5", f"at most {max(layers):.2f} off, as the thesis rounds down", max(layers) < 0.1)
    equal = [abs(row["star"] - row["volume, published"]) for row in tables["5.4"]]
    yield ("5.4: volumes of the horizontal partition", "484 .. 35,707", f"at most {max(equal):.2f} off", max(equal) < 1)
    for name, most in (("5.6", 32), ("5.8", 128)):
        off = {row["N"]: off_by(row["star"], row["volume, published"]) for row in tables[name] if row["N"] <= most}
        worst = max(off, key=off.get)
        yield (f"{name}: volumes to N = {most}", "42 ..", f"at most {off[worst]:.1%} off (N = {worst})", off[worst] < NEAR)
    off = {row["N"]: off_by(row["max"], row["max, published"]) for row in tables["5.5"] if row["N"] <= 32}
    worst = max(off, key=off.get)
    yield ("5.5: the largest work to N = 32", "21,524 ..", f"at most {off[worst]:.1%} off (N = {worst})", off[worst] < NEAR)
    ratio = tables["5.4"][-1]["star"] / tables["5.6"][-1]["star"]
    yield ("5.1.3: incremental partitions send much less than horizontal ones", "8.7 times less (N = 128)",
           f"{ratio:.1f} times less", ratio > 2)  # fmt: skip


def off_by(ours, published):
    """The relative difference; 0 where the thesis may have left the decimals out."""
    whole = float(published).is_integer() and published < 100
    return 0.0 if whole and int(ours) == published else abs(ours / published - 1)


def of_hypergraph():
    """The sizes of the hypergraphs, which the text implies."""
    for grain, implied in (("coarse", (4228, 4227)), ("fine", (1638726, 8453))):
        graph = vgg16.model(grain).hypergraph
        words = f"{graph.vertices:,} and {graph.nets:,}, {len(graph.pins):,} pins"
        yield (f"vertices and nets of the {grain} grain (from the text)", "{:,} and {:,}".format(*implied), words,
               (graph.vertices, graph.nets) == implied)  # fmt: skip


def of_bytes(tables):
    """The reduction over data parallelism."""
    mean = tables["5.14"][-1]
    mixed, theirs = mean["mixed units: reduction, %"], mean["their partition in bytes: reduction, %"]
    yield ("5.14: mean reduction over data parallelism, elements over bytes", "93.315 %", f"{mixed:.3f} %",
           abs(mixed - 93.315) < 0.01)  # fmt: skip
    yield ("5.14: the same partitions, both in bytes", "93.315 %", f"{theirs:.1f} %", False)


def of_search(tables, grain):
    """Volumes of our partitions beside those of the thesis."""
    ours = tables[grain]
    published = {row["N"]: row["volume, published"] for row in tables["5.10" if grain == "coarse" else "5.12"]}
    values = {int(n): row["volume_melements"] for n, row in ours.items()}
    words = ", ".join(f"{value:.4g}" for value in values.values())
    yield (f"{grain}: volumes at max/avg 1.10", ", ".join(f"{published[n]:g}" for n in values), words,
           all(value < published[n] for n, value in values.items()))  # fmt: skip
    if grain == "coarse":
        stars = {int(n): row["star_melements"] for n, row in ours.items()}
        yield (f"{grain}: the same by way of a star", "as above", ", ".join(f"{value:.4g}" for value in stars.values()),
               all(value < published[n] for n, value in stars.items()))  # fmt: skip
    thesis = [row for row in tables[f"balance, {grain}"] if row["of the published volume"]]
    if thesis:
        ratios = [row["of the published volume"] for row in thesis]
        within = all(row["max/avg"] <= 1.001 * row["max/avg, published"] for row in thesis)
        yield (f"{grain}: volumes at the balance of the thesis", "those of the thesis",
               f"{min(ratios):.2f} to {max(ratios):.2f} times the published ones", max(ratios) < 1 and within)  # fmt: skip


def of_targets(tables, grain):
    """What this repository asks of its partitions: volumes, balance, seconds of a search, and the reduction in bytes."""
    ours, most = tables[grain], MOST[grain]
    values = {int(n): row["volume_melements"] for n, row in ours.items()}
    yield (f"{grain}: volumes", f"at most {', '.join(f'{most[n]:g}' for n in values)}",
           ", ".join(f"{value:.4g}" for value in values.values()),
           all(value <= most[n] for n, value in values.items()))  # fmt: skip
    balance = {int(n): row["max_over_avg"] for n, row in ours.items()}
    even = max(value for n, value in balance.items() if n < 128 or len(balance) == 1)
    yield (f"{grain}: max/avg to N = 64", "at most 1.10", f"{even:.3f}", even <= 1.1005)
    seconds = [row["seconds"] for row in ours.values()]
    yield (f"{grain}: seconds of a search", f"at most {SECONDS[grain]}", f"{max(seconds):.1f}", max(seconds) <= SECONDS[grain])
    reduction = tables["5.14"][-1].get(f"our {grain} one in bytes: reduction, %")
    if reduction is not None:
        yield (f"{grain}: mean reduction over data parallelism, both in bytes", f"at least {REDUCTION} %", f"{reduction:.1f} %",
               reduction >= REDUCTION)  # fmt: skip


def of_both(tables):
    """What needs more than one kind of partition."""
    for row in tables["proof"]:
        yield (f"N = {row['N']}: no coarse partition sends less", f"{row['published']:g}",
               f"{row['volume']:.4f}, at least {row['bound']:.4f}", row["proved"])  # fmt: skip
    groups = [row for row in tables["dense groups"] if row["N"] == 128]
    for row in groups:
        yield ("N = 128, fully connected layers in groups of neurons: max/avg", "1.6", f"{row['max/avg']:.3f}",
               row["max/avg"] <= 1.1005)  # fmt: skip
    if tables["coarse"] and tables["fine"]:
        both = [(tables["coarse"][n]["volume_melements"], row["volume_melements"]) for n, row in tables["fine"].items()
                if n in tables["coarse"]]  # fmt: skip
        yield ("5.1.6: a fine partition sends no more than a coarse one", "smaller but for N = 2 and 8",
               ", ".join(f"{fine / coarse:.2f}" for coarse, fine in both) + " times", all(f <= c for c, f in both))  # fmt: skip


def of_times(tables):
    """Table 5.15: which method is faster, and by how much, published and predicted, in how many cases."""
    methods = times.LAYERS, times.FILTERS, times.HYPERGRAPH
    known, ours = (speedups(tables["5.15"], kind) for kind in ("published", "*predicted*"))
    asynchronous, waiting, spread, spread_waiting = servers.METHODS
    for section, claim, method, other, most in (
        ("5.2.2", "layer-wise is faster than a single processor", times.LAYERS, times.SINGLE, False),
        ("5.2.2", "layer-wise is faster than filter-wise", times.LAYERS, times.FILTERS, False),
        ("5.2.2", "the hypergraph is faster than filter-wise, for most N and batches", times.HYPERGRAPH, times.FILTERS, True),
        ("5.2.2", "the hypergraph is faster than layer-wise, in most cases", times.HYPERGRAPH, times.LAYERS, True),
        ("5.2.3", "a server spread over the workers is faster, synchronous", spread_waiting, waiting, True),
        ("5.2.3", "an asynchronous server is faster than a synchronous one, single", asynchronous, waiting, False),
        ("5.2.3", "an asynchronous server is faster than a synchronous one, spread", spread, spread_waiting, False),
    ):
        count, of = wins(known, method, other)
        found, cases = wins(ours, method, other)
        if cases:
            yield (f"{section}, *predicted*: {claim}", f"{count} of {of}", f"{found} of {cases}",
                   found > cases / 2 if most else found == cases)  # fmt: skip
    cases = [case for case, speedup in ours[times.HYPERGRAPH].items() if speedup]
    same = sum(order(known, methods, case) == order(ours, methods, case) for case in cases)
    if cases:
        yield (f"5.15, *predicted*: the order of {', '.join(methods[:2])} and {methods[2]}", f"{len(cases)} cases",
               f"{same} the same", same == len(cases))  # fmt: skip
    for name in (*methods, *servers.METHODS):
        ratios = [one / known[name][case] for case, one in ours[name].items() if one]
        if ratios:
            close = sum(1 / CLOSE <= ratio <= CLOSE for ratio in ratios)
            yield (f"5.15, *predicted*: speed-ups of {name} within a factor of {CLOSE}", f"{len(ratios)} numbers",
                   f"{close}, {min(ratios):.2f} to {max(ratios):.2f} times", close == len(ratios))  # fmt: skip


def speedups(rows, kind):
    """{method: {(ranks, column number): speed-up}} of Table 5.15. kind: how the columns' names end."""
    found = {}
    for row in rows:
        columns = [name for name in row if name.endswith(kind)]
        for ranks in times.RANKS if row["method"] == times.SINGLE else (row["N"],):
            found.setdefault(row["method"], {}).update({(ranks, at): row[name] for at, name in enumerate(columns)})
    return found


def wins(found, method, other):
    """(in how many cases a method is faster than another, in how many both are known). found: of `speedups`."""
    pairs = [(one, found[other][case]) for case, one in found[method].items()]
    pairs = [pair for pair in pairs if None not in pair]
    return sum(one > two for one, two in pairs), len(pairs)


def order(found, methods, case):
    """The places of the methods in a case, the fastest first."""
    return sorted(range(len(methods)), key=lambda place: -found[methods[place]][case])
