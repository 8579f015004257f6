"""What Laugier et al. 2018 claim, and what is found of it here: what is measured, and what is predicted.

What follows from the paper alone is in `follows.py`, what the cost model says in `foreseen.py`. The
rule by which speedups decide a claim is in `speedups.py`.
"""

from functools import partial
from itertools import pairwise

from gridgrad.experiments.papers.claims import HOLDS, MEASURED, found, judged, undecided
from gridgrad.experiments.papers.items import PREDICTED
from gridgrad.experiments.papers.laugier2018 import follows, foreseen, formulas, steps
from gridgrad.experiments.papers.laugier2018.formulas import NEAR, size_of
from gridgrad.experiments.papers.laugier2018.speedups import ONE, agreed, of_logs, sources

KNOWN, VALUES = follows.KNOWN, follows.VALUES
CLOSE = 0.9  # the least ratio that is very close to 1
NOTHING = "nothing was measured: `gridgrad reproduce laugier2018` does it"
LARGE, MIDDLE, SMALL = VALUES["model_model_size"], VALUES["integrated_model_size"], VALUES["model_least_size"]
MANY = VALUES["approaches_from"]  # ranks
ON_RANKS, WITH_SIZE = "on {} ranks", "with size {}"


def claims(tables):
    """All Claims of the paper. tables: those of `laugier2018.tables`."""
    return judged(KNOWN, follows.findings() | peaks(tables) | gains(tables) | integrated(tables) | times(tables) | data(tables)
                  | counted(tables) | foreseen.findings())  # fmt: skip


# ----- speedups


def predicted(tables, kind, size):
    """What is predicted for a printed number, in words."""
    line = next(line for line in tables["ratios"] if (line["what"], line["model size"]) == (kind, size))
    return "; ".join(f"{where}: {line[where]:.2g}" for where in list(line)[-3:])


def peaks(tables):
    """The speedups of the abstract over one process, and their order."""
    known = sources(tables)
    most, printed, printed_batch = VALUES["batch_ranks"], VALUES["model_speedup"], VALUES["batch_speedup"]
    logged = next(one for source in of_logs() for ranks, one in source.best(LARGE, batch=True).items() if ranks == most)

    def over_model(source):
        batch, model = (source.best(LARGE, **{axis: True}) for axis in ("batch", "model"))
        return {(ranks,): batch[ranks].over(model[ranks]) for ranks in batch if ranks in model}

    def at_32(source):
        return {key: one for key, one in on_ranks(source, LARGE, batch=True).items() if key == (most,)}

    def reaches(one, _):
        """Whether a peak is that of the paper; of a lower one that is open, since on more ranks it may be higher."""
        return None if one.most < printed / NEAR else one.between(printed / NEAR, printed * NEAR)

    return {
        "batch_peak": agreed(
            with_cores(known), at_32, lambda one, _: one.between(printed_batch / NEAR, printed_batch * NEAR),
            ON_RANKS, f"up to a factor of {NEAR} counts as near",
            undecided(f"needs {most} cores or hosts; the logs of its code have {logged.median:.3g} with airfoil",
                      predicted(tables, "batch", LARGE), PREDICTED),
            main=True,
        ),
        "model_peak": agreed(
            with_cores(known), partial(peak, size=LARGE, model=True), reaches, ON_RANKS,
            f"up to a factor of {NEAR} counts as near", undecided(NOTHING, predicted(tables, "model", LARGE), PREDICTED),
            main=True,
        ),
        "batch_over_model": agreed(
            known, over_model, lambda one, _: one.above(NEAR), ON_RANKS,
            f"far more is above a factor of {NEAR}", undecided(NOTHING, predicted(tables, "batch", LARGE), PREDICTED),
            main=True,
        ),
    }  # fmt: skip


def with_cores(known):
    """The Sources whose ranks had a core of their own."""
    return [source for source in known if source.own]


def on_ranks(source, size, **axes):
    """{(ranks,): Speedup} of a model size."""
    return {(ranks,): one for ranks, one in source.best(size, **axes).items()}


def peak(source, size, **axes):
    """The greatest of `on_ranks`, and no other."""
    return dict(sorted(on_ranks(source, size, **axes).items(), key=lambda pair: pair[1].median)[-1:])


def gains(tables):
    """Which sizes gain, and with how many ranks."""
    known, missing = with_cores(sources(tables)), undecided(NOTHING)

    def by_size(source):
        return {size: one for size in source.sizes(model=True) for one in peak(source, size, model=True).values()}

    def grown(source):
        of = by_size(source)
        return {(LARGE, SMALL): of[LARGE].over(of[SMALL])} if {LARGE, SMALL} <= of.keys() else {}

    def steps_of_size(source):
        of = by_size(source)
        return {(large, small): of[large].over(of[small]) for small, large in pairwise(of)}

    def steps_of_ranks(source):
        of = {size: {1: ONE} | source.best(size, batch=True) for size in source.sizes(batch=True)}
        return {(size, many, few): one[many].over(one[few]) for size, one in of.items() for few, many in pairwise(one)}

    more = lambda one, *_: one.above(1)  # noqa: E731
    large, small = partial(peak, size=LARGE, model=True), partial(peak, size=SMALL, batch=True)
    return {
        "model_gains_with_size": agreed(
            known, grown, more, "with size {} over that with {}", f"the speedup with size {LARGE:,} over that with {SMALL}",
            missing, main=True,
        ),
        "constant_increase": agreed(
            known, steps_of_size, more, "with size {} over {}",
            "a rise or a fall counts where all runs of one size are above all of the other", missing,
        ),
        "model_not_significant": agreed(
            known, large, lambda one, _: one.below(NEAR), ON_RANKS, f"with size {LARGE:,}; above {NEAR} times counts as "
            "significant", missing,
        ),
        "model_for_large": agreed(known, large, more, ON_RANKS, f"with size {LARGE:,}; above 1 is an advantage", missing),
        "batch_for_small": agreed(known, small, more, ON_RANKS, f"with size {SMALL}; above 1 works well", missing),
        "batch_gains_with_ranks": agreed(
            known, steps_of_ranks, more, "with size {} on {} over {} ranks", "above 1 is faster", missing
        ),
    }  # fmt: skip


def integrated(tables):
    """Integrated parallelism beside batch parallelism on as many ranks."""
    known = sources(tables)

    def over_batch(source, least=0, below=None):
        both, batch = (source.best(MIDDLE, batch=True, model=model) for model in (True, False))
        return {(ranks,): both[ranks].over(batch[ranks]) for ranks in both
                if ranks in batch and least <= ranks < (below or ranks + 1)}  # fmt: skip

    def best(source):
        return dict(sorted(over_batch(source).items(), key=lambda pair: pair[1].median)[-1:])

    def close(one, ranks):
        """Of few ranks only a ratio above 1 says something: the paper's own came close to 1 with more."""
        return one.between(CLOSE, 1) if ranks >= MANY else False if one.least > 1 else None

    def curve(ranks):
        return "; ".join(
            f"{line['assumed']}: {line[str(ranks)]:.3g} on {ranks} ranks" for line in tables["curves"]
            if (line["predicted"], line["model size"]) == ("2-D over batch", MIDDLE)
        )  # fmt: skip

    hosts = "needs four cores or hosts: `gridgrad sweep laugier2018-hosts.toml` measures four"
    at_least = f"at least {CLOSE} times counts as close"
    return {
        "integrated_peak": agreed(
            known, best, close, ON_RANKS,
            f"on fewer than {MANY} ranks only a ratio above 1 decides, against the claim; {CLOSE} and more count as very close",
            undecided(f"needs {MANY} or {VALUES['integrated_most_ranks']} cores or hosts",
                      predicted(tables, "2-D over batch", MIDDLE), PREDICTED), main=True,
        ),
        "integrated_few": agreed(
            known, partial(over_batch, below=MANY), lambda one, _: one.below(1), ON_RANKS,
            "times batch parallelism; the hosts share the cores of one machine", undecided(hosts, curve(4), PREDICTED),
        ),
        "integrated_many": agreed(
            known, partial(over_batch, least=MANY), lambda one, _: one.above(CLOSE), ON_RANKS,
            f"times batch parallelism; {at_least}",
            undecided(f"needs {MANY} cores or hosts; {at_least}", f"{curve(16)}; {curve(32)}", PREDICTED),
        ),
    }  # fmt: skip


# ----- times, bytes and sizes that were measured


def times(tables):
    """Whether a rank computes for less time than its messages take; the prediction counts unless runs contradict it."""
    large = [line for line in tables.get("spent", []) if size_of(line["net"]) >= MIDDLE
             and formulas.sizes_of(line["grid"]) == (2, 1)]  # fmt: skip
    foretold = foreseen.compute_below_messages()
    if not large:
        return {"compute_below_messages": foretold}
    numbers = "; ".join(
        f"{line['data']}, size {size_of(line['net'])}, {line['grid']}: {line['compute ms']:.3g} ms computing and "
        f"{line['messages ms']:.3g} ms messages" for line in large
    )  # fmt: skip
    less = {line["compute ms"] < line["messages ms"] for line in large}
    if less == {True} and foretold.verdict == HOLDS:
        return {"compute_below_messages": found(True, numbers, f"predicted for Cori: {foretold.numbers}", MEASURED)}
    reason = f"2 ranks that share a memory say little of {steps.RANKS} processes; predicted: {foretold.numbers}"
    return {"compute_below_messages": undecided(reason, numbers, MEASURED)}


def data(tables):
    """Table 1."""
    sizes = {line["data"]: line for line in tables.get("data", [])}
    printed = {line["data"]: line for line in KNOWN.tables["1"].lines()}
    words = "; ".join(
        f"{name}: {line['samples']:,} samples, {line['inputs']} inputs, outputs: {line['outputs']}"
        for name, line in sizes.items()
    )
    right = [
        all(sizes[name][column] == value for column, value in line.items()) for name, line in printed.items() if name in sizes
    ]
    if len(right) == len(printed) or not all(right):
        return {"dataset_sizes": found(all(right), words)}
    reason = "the file of ethylene was not at hand: a made-up one of its size stands for it"
    return {"dataset_sizes": undecided(reason if sizes else NOTHING, words, MEASURED)}


def counted(tables):
    """Bytes that were counted in runs, and the two ways of section 7, timed."""
    lines = {(line["data"], size_of(line["net"]), line["grid"]): line for line in tables.get("counted", [])}
    both = [(line, lines[name, size, "batch=4,model=1"]) for (name, size, grid), line in lines.items()
            if (size, grid) == (MIDDLE, follows.FOUR) and (name, size, "batch=4,model=1") in lines]  # fmt: skip
    block = VALUES["batch_size"] // 2 * (steps.SHAPE[0] + steps.OUTPUTS) * 8  # bytes of a rank's part on a grid of 2 x 2
    ways = [line for line in tables.get("scatter", []) if line["grid"] == follows.FOUR and block / 2 <= line["block_bytes"]
            <= 4 * block]  # fmt: skip
    crowded = any(line["oversubscribed"] for line in tables.get("speedups", []) if line["grid"] == follows.FOUR)
    numbers = "; ".join(
        f"blocks of {line['block_bytes'] / 1024:g} KiB: {line['scatter us']:.0f} us from rank 0, "
        f"{line['scatter-broadcast us']:.0f} us by a scatter and a broadcast" for line in ways
    )  # fmt: skip
    return {
        "integrated_sends_less": found(
            all(bytes_of(mixed) < bytes_of(pure) for mixed, pure in both), "; ".join(
                f"{mixed['data']}, size {MIDDLE}: {bytes_of(mixed) / 1e6:.2f} MB on 2 x 2, {bytes_of(pure) / 1e6:.2f} on 4 x 1"
                for mixed, pure in both
            ), "counted in runs, all ranks together",
        ) if both else undecided(NOTHING),
        "method_chosen": undecided(NOTHING) if not ways else undecided(
            "four ranks shared fewer cores; by the formulas of section 7 the first way is right for such blocks", numbers,
            MEASURED,
        ) if crowded else found(
            all(line["scatter us"] < line["scatter-broadcast us"] for line in ways), numbers,
            "on one machine, on a grid of 2 x 2. By the formulas of section 7 the first way is right for such blocks: they "
            "leave out that the sends of one rank follow one another",
        ),
    }  # fmt: skip


def bytes_of(line):
    """All bytes of a line of the table `counted`."""
    return line["gradients_counted"] + line["model_counted"]
