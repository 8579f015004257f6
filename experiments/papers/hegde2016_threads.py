"""Why two threads are sometimes more than twice as fast as one in Figure 4 of Hegde and Usmani 2016: by `study threads`.

If each of two cores has a cache of its own in which half of a matrix fits, but not the whole, the second core brings more than
its arithmetic: the whole then takes more than twice as long as a half on one core, too, and two processes that share nothing
but have half of the matrix each are as fast as two threads. Speed-ups above 2 at other sizes have other causes, and so have
those that two processes do not show. Where a layer shows them and NumPy's product alone does not, it is how the layer computes
products with one thread, see `nn/kernels.py`. What many timings do not show was the spread of few.
"""

from statistics import median, quantiles

from gridgrad.experiments.common.markdown import cell
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.hegde2016_kept import FOLDER
from gridgrad.experiments.papers.items import Item, Row
from gridgrad.nn.json_text import UNFIT, content_of_file

FILE = "hegde2016/threads.json"
COMMAND = "study threads"
LAYER, PRODUCT = WAYS = "layer", "product"  # a layer of this library, as in Figure 4; NumPy's product alone
ABOVE = 2.1  # the least ratio that counts as more than 2; its lower quartile must be above 2, too
ITEMSIZE = 4
NONE, CACHE, LIBRARY, OTHER = "none", "cache", "library", "other"


def summary(result):
    """Rows of ratios: a dict for each way, number of samples and n. result: what `study threads` writes.

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
        most = max(rows, key=lambda row: row["speedup"])
        return (
            f"With many timings in turns two threads are at most {cell(most['speedup'])} times as fast as one (n = "
            f"{most['n']}, {counted(most['samples'], 'sample')}), and nowhere more than twice, beyond the spread: larger "
            "ratios of Figure 4 are that of its ten timings."
        )
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


def sizes(rows):
    """The sizes of some rows, in words."""
    return ", ".join(map(str, sorted({row["n"] for row in rows})))


def kept():
    """What `study threads` has written, or None."""
    try:
        return content_of_file(FOLDER / FILE)
    except (*UNFIT, OSError):
        return None


def items():
    """The Item of this measurement, in a list; an empty one if there is none."""
    result = kept()
    return [item(result)] if result else []


def item(result):
    """The Item. result: what `study threads` writes."""
    rows = summary(result)
    alone = {(row["samples"], row["n"]): row for row in rows if row["way"] == PRODUCT}
    shown = [
        Row(f"n {row['n']}, {counted(row['samples'], 'sample')}", None, row["speedup"], None,
            f"{row['low']:.2f} to {row['high']:.2f}; NumPy's product alone {alone[row['samples'], row['n']]['speedup']:.2f}; "
            f"two processes {row['processes']:.2f}; on one core the whole takes {row['halves']:.2f} times as long as a half"
            + "; a half fits a core's own cache" * row["window"])
        for row in rows if row["way"] == LAYER
    ]  # fmt: skip
    processor = f"{result['versions']['processor']}, {result['versions']['blas']}, {caches_in_words(result)}"
    return Item(
        "Figure 4, looked into", "times as fast as one CPU thread two threads are, median and quartiles of many timings in "
        "turns",
        "section 3.2.2", tuple(shown),
        decision(rows), f"results/{FILE}", command=COMMAND, processor=processor,
        reason="The paper has no threads.",
    )  # fmt: skip


def caches_in_words(result):
    """The caches, and how many cores share each."""
    return ", ".join(
        f"L{cache['level']} {cache['bytes'] // 1024} KiB{' shared' * (cache['cores'] > 1)}"
        for cache in result["caches"] if cache["type"] != "Instruction"
    )  # fmt: skip
