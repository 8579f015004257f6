"""What Laugier et al. 2018 claim, and what is found of it here: what is measured, and what is predicted.

What follows from the paper alone is in `laugier2018_follows.py`. Measured speedups count only where each rank has a core of its
own, or a host (`gridgrad study laugier2018-hosts`).
"""

from gridgrad.experiments.papers import laugier2018_follows as follows
from gridgrad.experiments.papers import laugier2018_foreseen as foreseen
from gridgrad.experiments.papers import laugier2018_formulas as formulas
from gridgrad.experiments.papers import laugier2018_kept as kept
from gridgrad.experiments.papers import laugier2018_steps as steps
from gridgrad.experiments.papers.claims import FOLLOWS, MEASURED, found, judged, undecided
from gridgrad.experiments.papers.items import KEPT, PREDICTED

KNOWN, VALUES = follows.KNOWN, follows.VALUES
NEAR = 1.25  # the largest factor by which a measured speedup may differ from the paper's
CLOSE = 0.9  # the least ratio that is very close to 1
NOTHING = "nothing was measured: `gridgrad reproduce laugier2018` does it"
NO_CORES = "needs 16 or 32 cores, or hosts"
LARGE, MIDDLE, SMALL = VALUES["model_model_size"], VALUES["integrated_model_size"], VALUES["model_least_size"]


def claims(tables):
    """All Claims of the paper. tables: those of `laugier2018.tables`."""
    return judged(KNOWN, follows.findings() | peaks(tables) | gains(tables) | integrated(tables) | times(tables) | data(tables)
                  | counted(tables) | foreseen.findings(tables))  # fmt: skip


# ----- speedups that were measured


def measured(tables, scheme):
    """{(data, model size): {ranks: speedup over one rank}} of "batch", "model" or "2d", where each rank had a core."""
    speedups = {}
    for line in tables.get("speedups", []):
        batch, model = formulas.sizes_of(line["grid"])
        kind = "2d" if batch > 1 and model > 1 else "batch" if batch > 1 else "model" if model > 1 else ""
        if kind == scheme and not line["oversubscribed"]:
            size = int(line["net"].removeprefix("mlp:").split(",")[0])
            speedups.setdefault((line["data"], size), {})[batch * model] = line["speedup"]
    return speedups


def by_data(speedups):
    """{data: {model size: {ranks: speedup}}}, sizes in order."""
    names = dict.fromkeys(name for name, _ in speedups)
    return {name: {size: one for (of, size), one in sorted(speedups.items()) if of == name} for name in names}


def listed(speedups, sizes=None):
    """Speedups in words."""
    return "; ".join(
        f"{data}, size {size}: {', '.join(f'{value:.3g} on {ranks} ranks' for ranks, value in sorted(one.items()))}"
        for data, of in by_data(speedups).items() for size, one in of.items() if sizes is None or size in sizes
    )  # fmt: skip


def best(speedups, size):
    """The largest speedup of a model size; None if it was not measured."""
    return max((value for (_, of), one in speedups.items() if of == size for value in one.values()), default=None)


def on_paper(tables, kind, size):
    """What is predicted for a printed number, in words."""
    line = next(line for line in tables["ratios"] if (line["what"], line["model size"]) == (kind, size))
    return "predicted: " + ", ".join(f"{line[where]:.3g} ({where})" for where in list(line)[-3:])


def peaks(tables):
    """The three speedups of the abstract, and their order."""
    batch, model = measured(tables, "batch"), measured(tables, "model")
    at_32 = {
        key: {VALUES["batch_ranks"]: one[VALUES["batch_ranks"]]} for key, one in batch.items() if VALUES["batch_ranks"] in one
    }
    reached, gained = best(at_32, LARGE), best(model, LARGE)
    both = [(key, ranks) for key in batch if key[1] == LARGE for ranks in batch[key] if ranks in model.get(key, {})]
    return {
        "batch_peak": found(
            near(reached, VALUES["batch_speedup"]), listed(at_32, [LARGE]), f"near is a factor of {NEAR}",
        ) if reached else undecided(
            "32 cores, or hosts, were not at hand; which of the predictions is right depends on what the paper leaves out",
            on_paper(tables, "batch", LARGE), PREDICTED,
        ),
        "model_peak": found(
            near(gained, VALUES["model_speedup"]), listed(model, [LARGE]),
            f"{'more' if gained > VALUES['model_speedup'] else 'less'} than the paper's; near is a factor of {NEAR}",
        ) if gained else undecided(NOTHING, on_paper(tables, "model", LARGE), PREDICTED),
        "batch_over_model": found(
            all(batch[key][ranks] > model[key][ranks] for key, ranks in both),
            "; ".join(f"{key[0]}, {ranks} ranks: {batch[key][ranks]:.3g} with batch and {model[key][ranks]:.3g} with model "
                      "parallelism" for key, ranks in both),
            "the ranks share the memory of one machine; with batch parallelism each of them still updates all weights",
        ) if both else undecided(NOTHING, on_paper(tables, "batch", LARGE), PREDICTED),
    }  # fmt: skip


def near(value, other):
    return 1 / NEAR <= value / other <= NEAR


def gains(tables):
    """Which sizes gain, and with how many ranks."""
    batch, model = measured(tables, "batch"), measured(tables, "model")
    if not (batch and model):
        names = ("model_gains_with_size", "constant_increase", "model_not_significant", "model_for_large", "batch_for_small",
                 "batch_gains_with_ranks")  # fmt: skip
        return dict.fromkeys(names, undecided(NOTHING))
    by_size = {name: [max(one.values()) for one in of.values()] for name, of in by_data(model).items()}
    sizes = sorted({size for _, size in model})
    large, small = ({key: one for key, one in which.items() if key[1] == size} for which, size in
                    ((model, sizes[-1]), (batch, sizes[0])))  # fmt: skip
    curves = {key: [1.0, *(value for _, value in sorted(one.items()))] for key, one in batch.items()}
    falling = {key: batch[key] for key, curve in curves.items() if any(b <= a for a, b in zip(curve, curve[1:]))}
    return {
        "model_gains_with_size": found(
            all(gained[-1] > gained[0] for gained in by_size.values()), listed(model, [sizes[0], sizes[-1]]),
        ),
        "constant_increase": found(
            all(b > a for gained in by_size.values() for a, b in zip(gained, gained[1:])), listed(model),
            "by the medians of the runs; small networks take as long as their messages, whatever their size",
        ),
        "model_not_significant": found(
            all(max(one.values()) < NEAR for one in large.values()), listed(large),
            f"a gain by a factor of {NEAR} counts as significant",
        ),
        "model_for_large": found(all(max(one.values()) > 1 for one in large.values()), listed(large)),
        "batch_for_small": found(
            all(max(one.values()) > 1 for one in small.values()), listed(small),
            "a step of the smallest network is so short that its messages take longer than what they save",
        ),
        "batch_gains_with_ranks": found(
            not falling, listed(falling or batch), "these get slower with more ranks" if falling else "",
        ),
    }  # fmt: skip


def integrated(tables):
    """Integrated parallelism beside batch parallelism."""
    predicted = lambda ranks: "2-D over batch on " + f"{ranks} ranks, predicted: " + ", ".join(  # noqa: E731
        f"{line[str(ranks)]:.3g} ({line['assumed']})" for line in tables["curves"]
        if (line["predicted"], line["model size"]) == ("2-D over batch", MIDDLE)
    )  # fmt: skip
    hosts, where = kept.speedups_on_hosts(MIDDLE)
    four = {hidden: of[follows.FOUR] / of["batch=4,model=1"] for hidden, of in hosts.items()
            if {follows.FOUR, "batch=4,model=1"} <= of.keys()}  # fmt: skip
    words = "; ".join(f"{ratio:.3g} with {hidden} hidden" for hidden, ratio in four.items())
    both = {
        key: (one, measured(tables, "batch").get(key, {})) for key, one in measured(tables, "2d").items() if key[1] == MIDDLE
    }
    ratios = {
        (key[0], ranks): one[ranks] / other[ranks] for key, (one, other) in both.items() for ranks in one if ranks in other
    }
    listing = "; ".join(f"{data}, {ranks} ranks: {ratio:.3g}" for (data, ranks), ratio in ratios.items())
    many = {key: ratio for key, ratio in ratios.items() if key[1] >= VALUES["approaches_from"]}
    return {
        "integrated_peak": found(
            all(CLOSE <= ratio <= 1 for ratio in ratios.values()), f"over batch parallelism, {listing}",
        ) if ratios else decided(
            four, lambda ratio: CLOSE <= ratio <= 1, f"over batch parallelism on 4 hosts: {words} ({where})",
            on_paper(tables, "2-D over batch", MIDDLE),
        ),
        "integrated_few": decided(
            four, lambda ratio: ratio < 1, f"over batch parallelism on 4 hosts: {words} ({where})", predicted(4)
        ),
        "integrated_many": found(
            all(ratio >= CLOSE for ratio in many.values()), f"over batch parallelism, {listing}",
        ) if many else undecided(NO_CORES, f"{predicted(16)}; {predicted(32)}", PREDICTED),
    }  # fmt: skip


def decided(four, holds, numbers, foreseen):
    """The Finding of ratios on four hosts, {hidden layers: ratio}: undecided without any, or where they disagree."""
    verdicts = {holds(ratio) for ratio in four.values()}
    if len(verdicts) == 1:
        return found(verdicts.pop(), numbers, "hosts emulated by one machine, whose cores they share", KEPT)
    if verdicts:
        return undecided("it depends on the number of hidden layers, which the paper does not give", numbers, KEPT)
    return undecided("needs four cores or hosts: `gridgrad study laugier2018-hosts` measures four", foreseen, PREDICTED)


# ----- times, bytes and sizes that were measured


def times(tables):
    """What a rank computes, and how long messages take."""
    spent = {(line["data"], line["net"], line["grid"]): line for line in tables.get("spent", [])}
    large = [line for (_, net, grid), line in spent.items() if size_of(net) >= MIDDLE and formulas.sizes_of(grid) == (2, 1)]
    sides = {
        (data, net): (line["compute ms"], spent[data, net, "batch=2,model=1"]["compute ms"])
        for (data, net, grid), line in spent.items()
        if grid == "batch=1,model=1" and (data, net, "batch=2,model=1") in spent and size_of(net) == LARGE
    }
    one, many = foreseen.products()
    computing, sending = foreseen.parts(LARGE, steps.RANKS, 1)
    return {
        "compute_below_messages": found(
            all(line["compute ms"] < line["messages ms"] for line in large), "; ".join(
                f"{line['data']}, size {size_of(line['net'])}, {line['grid']}: {line['compute ms']:.3g} ms computing and "
                f"{line['messages ms']:.3g} ms messages" for line in large
            ),
        ) if large else found(
            all(a < b for a, b in zip(computing, sending)), "; ".join(
                f"{1e3 * a:.3g} ms computing and {1e3 * b:.3g} ms messages ({where})"
                for a, b, where in zip(computing, sending, ("32 ranks on one node", "one rank a node"))
            ), f"with {steps.HIDDEN} hidden layers of {LARGE}: with 4 samples a rank, the update of all weights is most of "
            "computing", PREDICTED,
        ),
        "small_blocks": found(
            all(2 * two > one for one, two in sides.values()), "; ".join(
                f"{data}, size {LARGE}: half of the samples take {two / one:.0%} of the computing time"
                for (data, _), (one, two) in sides.items()
            ), "this includes the update, which does not shrink with the samples",
        ) if sides else found(
            many > one / steps.RANKS, f"products of 4 samples take {many / one:.0%} of the time of those of 100",
            "with 4 samples the weights have to be read for little work; the model knows memory and no caches", PREDICTED,
        ),
    }  # fmt: skip


def size_of(net):
    return int(net.removeprefix("mlp:").split(",")[0])


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
    batch = next((line for (name, size, grid), line in lines.items()
                  if name.startswith("ethylene") and (size, grid) == (LARGE, "batch=2,model=1")), None)  # fmt: skip
    both = [(line, lines[name, size, "batch=4,model=1"]) for (name, size, grid), line in lines.items()
            if (size, grid) == (MIDDLE, follows.FOUR) and (name, size, "batch=4,model=1") in lines]  # fmt: skip
    derived, right = formulas.derived_volume("batch", 2).value, follows.volume_of("batch=2,model=1")
    right = bytes_of(batch) / 2 / 1e6 if batch else right
    block = VALUES["batch_size"] // 2 * (steps.SHAPE[0] + steps.OUTPUTS) * 8  # bytes of a rank's part on a grid of 2 x 2
    ways = [line for line in tables.get("scatter", []) if line["grid"] == follows.FOUR and block / 2 <= line["block_bytes"]
            <= 4 * block]  # fmt: skip
    return {
        "batch_formula": found(
            near(derived, right), f"{derived:.1f} MB of a rank by the printed formula on 2 processes, {right:.2f} MB "
            f"{'counted in a run' if batch else 'in Algorithm 1'}",
            "the factor is (P - 1)/P, not P/(P - 1): with one process nothing moves; the latency counts once",
            **({} if batch else {"kind": FOLLOWS}),
        ),
        "integrated_sends_less": found(
            all(bytes_of(mixed) < bytes_of(pure) for mixed, pure in both), "; ".join(
                f"{mixed['data']}, size {MIDDLE}: {bytes_of(mixed) / 1e6:.2f} MB on 2 x 2, {bytes_of(pure) / 1e6:.2f} on 4 x 1"
                for mixed, pure in both
            ), "counted in runs, all ranks together",
        ) if both else undecided(NOTHING),
        "method_chosen": found(
            all(line["scatter us"] < line["scatter-broadcast us"] for line in ways), "; ".join(
                f"blocks of {line['block_bytes'] / 1024:g} KiB: {line['scatter us']:.0f} us from rank 0, "
                f"{line['scatter-broadcast us']:.0f} us by a scatter and a broadcast" for line in ways
            ), "on one machine, on a grid of 2 x 2. By the formulas of section 7 the first way is right for such blocks: they "
            "leave out that the sends of one rank follow one another",
        ) if ways else undecided(NOTHING),
    }  # fmt: skip


def bytes_of(line):
    return line["gradients_counted"] + line["model_counted"]
