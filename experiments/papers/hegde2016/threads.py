"""Whether a second core's cache is why two threads are more than twice as fast as one in Figure 4: by kept times.

If each of two cores has a cache of its own in which half of a matrix fits, but not the whole, the second core brings more than
its arithmetic: the whole then takes more than twice as long as a half on one core, too, and two processes that share nothing
but have half of the matrix each are as fast as two threads. Speed-ups above 2 at other sizes have other causes, and so have
those that two processes do not show. Where a layer shows them and NumPy's product alone does not, it is how the layer computes
products with one thread, see `nn/kernels/kernel_table.py`. Figure 4 may be of another processor, with other caches: then this
says nothing of its ratios.
"""

from statistics import median, quantiles

from gridgrad.experiments.common.tables import cell, counted
from gridgrad.experiments.papers.hegde2016.kept import file
from gridgrad.experiments.papers.items import Item, ItemRow
from gridgrad.experiments.papers.other_results import kept

NAME = "hegde2016/threads"
LAYER, PRODUCT = "layer", "product"  # a layer of this library, as in Figure 4; NumPy's product alone
TWO = "2 CPU threads"  # a device of Figure 4
ABOVE = 2.1  # the least ratio that counts as more than 2; its lower quartile must be above 2, too
ITEMSIZE = 4
NONE, CACHE, LIBRARY, OTHER = "none", "cache", "library", "other"


def summary(result):
    """Rows of ratios: a dict for each way, number of samples and n. result: the content of the kept file.

    speedup: of two threads over one, with its quartiles. halves: how many times as long as a half the whole takes on one core.
    processes: the speed-up of two processes that have a half each. window: whether a half fits a core's own cache and the whole
    does not.
    """
    found = []
    for row in result["rows"]:
        ratios = {
            side: [one / other for one, other in zip(row["one"], row[side], strict=True)] for side in ("two", "half", "pair")
        }
        low, _, high = quantiles(ratios["two"], n=4)
        found.append({
            "way": row["way"], "samples": row["samples"], "n": row["n"], "speedup": median(ratios["two"]), "low": low,
            "high": high, "halves": median(ratios["half"]), "processes": median(ratios["pair"]),
            "window": any(half_fits(row["n"], size) for size in own_caches(result)),
        })  # fmt: skip
    return found


def own_caches(result):
    """The bytes of the caches that one core has for itself and its data."""
    return [cache["bytes"] for cache in result["caches"] if cache["cores"] == 1 and cache["type"] != "Instruction"]


def half_fits(n, size):
    """Whether half of a matrix of n x n fits into so many bytes, and the whole does not."""
    return ITEMSIZE * n * n / 2 <= size < ITEMSIZE * n * n


def is_above(row):
    """Whether two threads are more than twice as fast as one, beyond the spread."""
    return row["speedup"] >= ABOVE and row["low"] > 2


def cause(row, rows):
    """NONE, CACHE, LIBRARY or OTHER: what a row says of a speed-up above 2. rows: all of them."""
    if not is_above(row):
        return NONE
    if row["window"] and min(row["halves"], row["processes"]) > 2:
        return CACHE
    alone = [one for one in rows if (one["way"], one["samples"], one["n"]) == (PRODUCT, row["samples"], row["n"])]
    return OTHER if any(map(is_above, alone)) else LIBRARY


def decision(rows):
    """What the rows decide, in words."""
    above = [row for row in rows if is_above(row)]
    if not above:
        return nowhere(rows)
    cached, library, others = ([row for row in above if cause(row, rows) == one] for one in (CACHE, LIBRARY, OTHER))
    parts = []
    if cached:
        parts.append(
            f"at n = {sizes(cached)} half of the matrix fits a core's own cache and the whole does not, and one core alone, "
            "and two processes, show the same: it is the cache of the second core"
        )
    if library:
        parts.append(
            f"at n = {sizes(library)} NumPy's product alone does not show it: it is how a layer computes with one thread"
        )
    if others:
        parts.append(f"at n = {sizes(others)} it is not a core's own cache, and the cause is open")
    return f"Two threads are more than twice as fast as one: {'; '.join(parts)}."


def nowhere(rows):
    """The same where no speed-up is above 2."""
    fits = [row for row in rows if row["window"]]
    text = (
        "Timed in turns, two threads are nowhere more than twice as fast as one, beyond the spread; the largest median is "
        f"{largest(rows)}."
    )
    if fits:
        text += (
            f" So the cache of the second core brings no such gain here: where half of the matrix fits a core's own cache and "
            f"the whole does not (n = {sizes(fits)}), the largest is {largest(fits)}."
        )
    return text


def largest(rows):
    """The largest median speed-up of some rows, in words."""
    most = max(rows, key=lambda row: row["speedup"])
    return f"{cell(most['speedup'])} (n = {most['n']}, {counted(most['samples'], 'sample')})"


def sizes(rows):
    """The sizes of some rows, in words."""
    return ", ".join(map(str, sorted({row["n"] for row in rows})))


def of_figure_4(tables, rows, processor):
    """What the rows say of the largest speed-up of two threads in Figure 4, if it is above 2; else nothing.

    tables: of `hegde2016.tables`. processor: that of the rows.
    """
    ours = [row for row in tables.get("dense_speedups", []) if row["device"] == TWO]
    if not ours or (most := max(ours, key=lambda row: row["speedup"]))["speedup"] <= 2:
        return ""
    theirs = tables["versions"][TWO]["processor"]
    same = [row for row in rows if (row["way"], row["samples"], row["n"]) == (LAYER, most["batch"], most["n"])]
    here = "".join(f"; here they are {row['speedup']:.2f} (quartiles {row['low']:.2f} to {row['high']:.2f})" for row in same)
    text = (
        f" In our Figure 4 they are {cell(most['speedup'])} times as fast at n = {most['n']}, "
        f"{counted(most['batch'], 'sample')}, where a matrix has {ITEMSIZE * most['n'] ** 2 / 1e6:.1f} MB: a median of ratios "
        f"from {most['min']:.2f} to {most['max']:.2f}{here}."
    )
    other = f" But that was on another processor ({theirs}), where this was not looked into: there the cause is open."
    return text + other * (theirs != processor)


def items(tables):
    """The Item of this measurement, in a list; an empty one if there is none. tables: of `hegde2016.tables`."""
    found, _ = kept(file(NAME), lambda result: item(result, tables))
    return [found] if found else []


def item(result, tables):
    """The Item. result: the content of the kept file. tables: of `hegde2016.tables`."""
    rows = summary(result)
    alone = {(row["samples"], row["n"]): row for row in rows if row["way"] == PRODUCT}
    shown = [
        ItemRow(f"n {row['n']}, {counted(row['samples'], 'sample')}", None, row["speedup"], None,
            f"{row['low']:.2f} to {row['high']:.2f}; NumPy's product alone {alone[row['samples'], row['n']]['speedup']:.2f}; "
            f"two processes {row['processes']:.2f}; on one core the whole takes {row['halves']:.2f} times as long as a half"
            + "; a half fits a core's own cache" * row["window"])
        for row in rows if row["way"] == LAYER
    ]  # fmt: skip
    processor = result["versions"]["processor"]
    return Item(
        "Figure 4, looked into", "times as fast as one CPU thread two threads are, median and quartiles of many timings in "
        "turns", "section 3.2.2", tuple(shown), decision(rows) + of_figure_4(tables, rows, processor), f"{file(NAME)}",
        processor=f"{processor}, {result['versions']['blas']}, {caches_in_words(result)}",
        reason="The paper measures no threads.",
    )  # fmt: skip


def caches_in_words(result):
    """The caches, and how many cores share each."""
    return ", ".join(
        f"L{cache['level']} {cache['bytes'] // 1024} KiB{' shared' * (cache['cores'] > 1)}"
        for cache in result["caches"] if cache["type"] != "Instruction"
    )  # fmt: skip
