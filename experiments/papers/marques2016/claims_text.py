"""What follows for the claims of Marques 2016 from its own numbers, from counting, and from the model of its section 5.4."""

from pathlib import Path

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.papers.claims import FOLLOWS, contradictory, found, undecided
from gridgrad.experiments.papers.items import KEPT, PREDICTED
from gridgrad.experiments.papers.marques2016 import appendix, scaling
from gridgrad.experiments.papers.marques2016.runs import NETWORKS, MarquesRun
from gridgrad.experiments.papers.marques2016.scaling import KNOWN, PRINTED, SUMMED, said
from gridgrad.experiments.papers.other_results import kept, where
from gridgrad.nn.layers.conv import Conv2d

NEAR = 0.1  # numbers that differ by less, relative, count as the same
EXACT = 0.01  # the same, of numbers that are computed from each other
STABLE = 0.25  # what a speedup may still change by that is called stable, or almost the same
LOSS = 0.01  # a speedup that is so much below the greatest one has lost nothing
BELIEVED = 2  # times the sum of the peaks of the GPUs, up to which they may convolve together
NEAR_WORDS, EXACT_WORDS, STABLE_WORDS = (
    f"a difference of less than {100 * most:g} % counts as none" for most in (NEAR, EXACT, STABLE)
)
ROOFLINE = Path("results/roofline.json")
NO_GPU = "no GPU was at hand, and three would be needed"
LARGE = "500:1500"


def findings():
    """{name of a claim: Finding}."""
    return of_text() | of_contradictions() | of_gpus() | of_nodes() | of_rates() | of_appendix()


def near(a, b, most=NEAR):
    """Whether two numbers differ by no more than a part."""
    return abs(a / b - 1) < most


def value(name):
    return KNOWN.values[name].value


def speedup(table, *key):
    return said(table, "speedup", *key).value


def of_text():
    """Whether what the text computes from its own numbers is so."""
    part, later = (said("computation of CPUs", "percent", 64, cpus).value for cpus in (1, 4))
    four = speedup("speedups of CPUs", LARGE, 64, 4)
    slower = four / (1 + 4 * said("communication of CPUs", "percent", LARGE, 64, 4).value / 100)
    last = said("computation of CPUs", "percent", 1024, 1).value
    seconds = [row["seconds"] for row in KNOWN.tables["performance values"].lines()]
    together = 1 / (1 / seconds[0] + 1 / seconds[2])
    shares = {net: share_of_convolutions(net) for net in NETWORKS}
    two = {
        column: [row["speedup"] for row in KNOWN.tables[name].lines() if row[column] == 2]
        for name, column in (("5.1", "CPUs"), ("5.2", "GPUs"))
    }
    return {
        "both devices end together": found(
            near(together, value("seconds of both devices"), EXACT)
            and near(seconds[0] / together, value("speedup of both devices"), EXACT),
            f"1/(1/10 + 1/20) = {together:.2f} seconds, {seconds[0] / together:.2f} times as fast",
            f"without any communication; {EXACT_WORDS}", FOLLOWS,
        ),
        "few parameters": found(
            max(shares.values()) < 0.1,
            "; ".join(f"{net} {100 * share:.0f} %" for net, share in shares.items()) + " of the parameters are of convolutions",
            "of the network as it is described, its fully connected layer taken to have 10 outputs; the thesis cites the 5 % "
            "from papers on other networks", FOLLOWS,
        ),
        "25 % become 56 %": found(
            near(part * four, later), f"{part} % times {four} are {part * four:.0f} %", NEAR_WORDS, FOLLOWS
        ),
        "a fifth of the rate": found(
            near(slower, value("speedup at a fifth of the rate")), f"2.27/(1 + 4 x 19 %) = {slower:.2f}", NEAR_WORDS, FOLLOWS
        ),
        "at most 7.76": found(
            near(100 / last, speedup("greatest speedup of CPUs", 1024)), f"1/{last} % = {100 / last:.2f}",
            f"the arithmetic alone: the part itself was not found here; {NEAR_WORDS}", FOLLOWS,
        ),
        "two devices reach 2": found(
            all(near(max(speedups), 2) for speedups in two.values()),
            f"the best are {max(two['CPUs']):.2f} and {max(two['GPUs']):.2f} in Tables 5.1 and 5.2",
            f"the least of the four networks are {min(two['CPUs']):.2f} and {min(two['GPUs']):.2f}; {NEAR_WORDS}", FOLLOWS,
        ),
        "uneven batches lose information": found(
            False, "the sum of the gradients of all samples, over their number, is the same however they are divided",
            "means of the devices have to be weighted by their numbers of samples; `tests/experiments/test_shares.py` trains "
            "the same network with uneven shares as on one rank", FOLLOWS,
        ),
    }  # fmt: skip


def share_of_convolutions(network):
    """The part of the parameters of a network that is in its convolutions."""
    net = published(MarquesRun(network, 64).net)
    sizes = {layer: sum(parameter.size for parameter in layer.parameters) for layer in net.layers}
    return sum(size for layer, size in sizes.items() if isinstance(layer, Conv2d)) / sum(sizes.values())


def of_contradictions():
    """Passages of the text that contradict each other."""
    small = speedup("speedups of CPUs", "50:500", 64, 2)
    least, most = (said("speedups at any batch size", word, "50:500", 2).value for word in ("least", "most"))
    best = speedup("5.1", "50:500", 2)
    pairs = [(speedup("speedups of CPUs", "150:800", 64, cpus), speedup("speedups of CPUs, repeated", cpus)) for cpus in (2, 3)]
    three = {speedup("speedups of CPUs", LARGE, 1024, 3), speedup("5.1", LARGE, 3), value("500:1500 on 3 CPUs in section 5.3")}
    other, sixth = speedup("greatest speedup of CPUs", 1024), value("greatest speedup of CPUs in section 5.4")
    networks = len({row["network"] for row in KNOWN.tables["5.3"].lines()})
    low, high = (
        {n: speedup("speedups of GPUs", f"batch 64, {word} of the networks", n) for n in (2, 3)} for word in ("least", "most")
    )
    cases = [(case, n, speedup("speedups of GPUs", f"{case}, batch 64", n)) for case in ("50:500", "150:800") for n in (2, 3)]
    outside = [f"{case} with {one:.2f} on {n} GPUs" for case, n, one in cases if not low[n] <= one <= high[n]]
    _, times = times_of_phones()
    return {
        "one speedup of 50:500": contradictory(
            f"{small:.2f} is not among {least} to {most}, nor is {best:.2f}", "one batch size can not be outside of all of them"
        ),
        "one speedup of 150:800": contradictory(" and ".join(f"{first:.2f} against {again:.2f}" for first, again in pairs)),
        "one speedup of 500:1500": contradictory(
            ", ".join(f"{one:.2f}" for one in sorted(three)), "they differ by less than 1 %"
        ),
        "6.70 and 7.76": contradictory(f"{other:.2f} and {sixth:.2f}, of the same network and batch size"),
        "Table 5.3 is of one network": contradictory(f"Table 5.3 has {networks} networks"),
        "speedups of GPUs agree": contradictory(
            "outside are " + ", ".join(outside),
            "50:500 is in section 5.2.1 and may not be meant, 150:800 is on the same page",
        ),
        "phones take 15 times as long": contradictory(
            f"by Table II neither: {min(times):.1f} to {max(times):.1f} times as long"
        ),
        "energy is power times time": contradictory("; ".join(wrong_energies()), EXACT_WORDS),
    }


def of_gpus():
    """Claims about GPUs, most of which take GPUs."""
    whole, limit = speedup("5.2", LARGE, 3), value("greatest speedup of GPUs")
    together = (1 - 1 / limit) / (1 / whole - 1 / limit)  # how fast all three convolve, the first one at 1, if nothing is sent
    model = [scaling.derived(equation)["GPUs, largest network"].speedup(3) for equation in scaling.EQUATIONS]
    words = ", ".join(f"{row['speedup']:.2f}" for row in KNOWN.tables["5.2"].lines() if row["GPUs"] == 3)
    return {
        "best on GPUs": undecided(NO_GPU),
        "communication of GPUs": undecided(NO_GPU),
        "a CPU beats a GPU": undecided(NO_GPU),
        "GPUs over CPUs": undecided(NO_GPU),
        "GPUs gain less with more kernels": undecided(NO_GPU, f"Table 5.2 has {words} on 3 GPUs: they fall too"),
        "2.15 allows 2.00": found(
            together < BELIEVED * sum(scaling.GPUS),
            f"even if nothing were sent, three GPUs would have to convolve {together:.1f} times as fast as the first one; with "
            f"the bytes of equation 5.1 at 5 MB/s {min(model):.2f} to {max(model):.2f} is predicted",
            f"by the peaks of their vendor the three are {sum(scaling.GPUS):g} times as fast as the first one; up to "
            f"{BELIEVED} times that would count as possible", PREDICTED,
        ),
    }  # fmt: skip


def of_nodes():
    """Claims of section 5.4, by the equation as printed and as the algorithm sends; the algorithm decides."""
    clusters = {equation: scaling.derived(equation) for equation in scaling.EQUATIONS}
    cpus, gpus = [name for name in clusters[SUMMED] if name.startswith("CPUs")], "GPUs, largest network"
    at = {
        (equation, name): {nodes: cluster.speedup(nodes) for nodes in range(1, 33)}
        for equation, found_ in clusters.items() for name, cluster in found_.items()
    }  # fmt: skip

    def words(names, nodes):
        """The speedups of clusters on numbers of nodes, by both equations."""
        of = lambda equation, name: " and ".join(f"{at[equation, name][n]:.2f} on {n}" for n in nodes)  # noqa: E731
        return "; ".join(f"{name}: {of(SUMMED, name)}, as printed {of(PRINTED, name)}" for name in names)

    why = "Algorithm 4.1 sends the input to each slave; equation 5.1 as printed counts it once, and that makes the difference"
    stable = f"{why}; up to {100 * STABLE:g} % count as stable"
    most = {name: max(range(1, 33), key=at[SUMMED, name].get) for name in (*cpus, gpus)}
    best = (f"{at[SUMMED, name][nodes]:.2f} on {nodes} {name[:4]}" for name, nodes in most.items())
    last = (f"{at[SUMMED, name][32]:.2f}" for name in most)
    sent = {nodes: [scaling.sent(*scaling.LARGEST, clusters[SUMMED][cpus[1]].speeds_of(nodes), equation) for equation in
                    (SUMMED, PRINTED)] for nodes in (4, 32)}  # fmt: skip
    ratios = {nodes: one / other for nodes, (one, other) in sent.items()}
    four, theirs = at[SUMMED, cpus[0]][4], speedup("speedups of CPUs", "50:500", 64, 4)
    return {
        "scalable": found(
            all(at[SUMMED, name][32] > (1 - LOSS) * at[SUMMED, name][most[name]] for name in most),
            f"at best {', '.join(best)}; on 32 nodes {', '.join(last)}",
            f"of the smallest network, the largest one, and that on GPUs; {why}: {words((*cpus, gpus), (8, 32))}; less than "
            f"{100 * LOSS:g} % count as no loss", PREDICTED,
        ),
        "stable from 8 nodes": found(
            all(near(at[SUMMED, name][32], at[SUMMED, name][8], STABLE) for name in cpus), words(cpus, (8, 32)), stable,
            PREDICTED,
        ),
        "little after 4 CPUs": found(
            all(max(at[SUMMED, name].values()) < (1 + STABLE) * at[SUMMED, name][4] for name in cpus),
            words(cpus, (4, 8, 32)),
            f"with more nodes it even falls, where each slave is sent the input; up to {100 * STABLE:g} % more count as little",
            PREDICTED,
        ),
        "GPUs stagnate from 8 nodes": found(
            near(at[SUMMED, gpus][32], at[SUMMED, gpus][8], STABLE), words([gpus], (8, 32)), stable, PREDICTED
        ),
        "the equation predicts communication": found(
            all(ratio < 1 + NEAR for ratio in ratios.values()),
            "for 500:1500 at batch 1024 the algorithm sends "
            + " and ".join(f"{ratio:.2f} times the bytes of the printed equation on {n} nodes" for n, ratio in ratios.items()),
            f"with the input for each slave, the constants of 500:1500 predict {four:.2f} for 50:500 on 4 CPUs, printed are "
            f"{theirs:.2f}; {NEAR_WORDS}", FOLLOWS,
        ),
    }  # fmt: skip


def by_both(answer, reason=""):
    """The Finding of what equation 5.1 predicts as printed and for each slave, undecided where the two do not agree.

    answer: a function that makes of {figure: {MiB/s: Cluster}} (whether the claim holds, its numbers).
    """
    both = {
        equation: answer({name: clusters for name, (clusters, _) in scaling.of_rates(equation).items()})
        for equation in scaling.EQUATIONS
    }
    numbers = "; ".join(f"{words}, by equation {equation}" for equation, (_, words) in both.items())
    (printed, _), (summed, _) = both.values()
    if printed == summed:
        return found(printed, numbers, reason, PREDICTED)
    apart = "equation 5.1 as printed and for each slave do not say the same"
    return undecided("; ".join(filter(None, (apart, reason))), numbers, PREDICTED)


def of_rates():
    """Claims of section 5.5."""
    low_and_high = "5.13a low and mid range CPUs", "5.13b high-end CPUs"
    assumed = f"a high-end device is taken to be {scaling.FASTER} times as fast as the fastest laptop"

    def on_32(figures):
        low, high = (figures[name][5].speedup(32) for name in low_and_high)
        return near(high, low, STABLE), f"{low:.2f} and {high:.2f} on 32 CPUs at 5 MiB/s"

    def needed(figures):
        speedups = [{n: figures[name][5].speedup(n) for n in range(1, 33)} for name in low_and_high]
        low, high = (next(n for n in one if one[n] > 0.9 * max(one.values())) for one in speedups)
        return high < low, f"{high} against {low} CPUs for nine tenths of the greatest speedup on up to 32"

    def slow(figures):
        most = figures["5.14a low and mid range GPUs"][1].speedup(32)
        return most < 1, f"{most:.2f} at 1 MiB/s on 32 GPUs"

    def mobile(figures):
        few, many = (figures["5.15 mobile GPUs"][125].speedup(n) for n in (32, 128))
        goal = figures["5.14a low and mid range GPUs"][125].speedup(32)
        words = f"{few:.2f} with 31 and {many:.2f} with 127 mobile GPUs, {goal:.2f} with 31 desktop GPUs"
        return few < (1 - NEAR) * goal, words

    return {
        "low and high-end devices": by_both(on_32, f"{assumed}; {STABLE_WORDS}"),
        "high-end devices need fewer nodes": by_both(needed, assumed),
        "GPUs on a slow network": by_both(slow),
        "mobile GPUs": by_both(mobile, f"at 125 MiB/s; the thesis names no rate; {NEAR_WORDS}"),
        "bound by memory": undecided(NO_GPU, *near_the_peak()),
    }


def roofline():
    """(what `summary --measure` has measured on a CPU core, why there is nothing): see `of_roofline`."""
    return kept(ROOFLINE, of_roofline)


def of_roofline(report):
    """What this project uses of that report: operations and bytes a second, of the convolutions of the thesis forward."""
    points = [
        (point["layer"].removeprefix("marques-"), point["algorithm"], point["flops"] / point["seconds"]["median"])
        for point in report["points"]
        if point["layer"].startswith("marques") and point["pass"] == "forward" and point["algorithm"] != "matrix product"
    ]  # fmt: skip
    bandwidths = {line["name"]: line["bytes_per_second"] / 1 for line in report["bandwidths"]}
    return {
        "peak": report["flops_per_second"] / 1, "bandwidths": bandwidths, "points": points,
        "processor": report["versions"]["processor"], "where": where(ROOFLINE, report["versions"]),
    }  # fmt: skip


def near_the_peak():
    """(numbers, kind) of the roofline that was measured on a CPU core; nothing if there is none."""
    found_, _ = roofline()
    if not found_ or not found_["points"]:
        return ()
    rates = [rate / found_["peak"] for *_, rate in found_["points"]]
    reached = f"{min(rates):.2f} to {max(rates):.2f} times its peak"
    return f"on a CPU core these convolutions reach {reached} ({found_['where']})", KEPT


def times_of_phones():
    """({device: seconds of an epoch}, [how many times as long as the desktop GPU each phone takes]) by Table II."""
    seconds = {row["device"]: appendix.seconds_of(row["time"]) for row in KNOWN.tables["II"].lines()}
    gpu, *phones = seconds
    return seconds, [seconds[name] / seconds[gpu] for name in phones]


def wrong_energies():
    """The energies of Appendix A that are not power times time, in words."""
    seconds, _ = times_of_phones()
    products = [(row["device"], row["W"], row["Wh"]) for row in KNOWN.tables["II"].lines()]
    watts = value("W of the whole platform")
    products += [(row["device"], watts, row["Wh"]) for row in KNOWN.tables["whole platform"].lines()]
    for device, power, printed in products:
        ours = power * seconds[device] / 3600
        if not near(ours, printed, EXACT):
            yield f"{device}: {power:g} W for {seconds[device]} s are {ours:.4f} Wh, printed are {printed:.4f}"


def of_appendix():
    """Claims of Appendix A."""
    rows = {row["device"]: row for row in KNOWN.tables["II"].lines()}
    gpu, *phones = rows
    parts = {name: 100 * rows[name]["Wh"] / rows[gpu]["Wh"] for name in phones}
    weights = {row["width"]: row["weights"] for row in KNOWN.tables["III"].lines()}
    many = [rows[gpu]["Wh"] / rows[name]["Wh"] for name in phones]
    return {
        "error of the autoencoder": undecided("1,500 epochs were not trained", *error()),
        "energy of phones": found(
            all(near(part, rows[name]["percent of the GPU"], EXACT) for name, part in parts.items()),
            ", ".join(f"{name} {part:.2f} %" for name, part in parts.items()) + ", by the Wh of Table II",
            f"but not all of these Wh follow from power and time, see that claim; {EXACT_WORDS}", FOLLOWS,
        ),
        "weights": found(
            all(appendix.weights_of(width) == printed for width, printed in weights.items()),
            "784 w + 250 w + 2500 weights and w + 260 biases are these numbers", "", FOLLOWS,
        ),
        "100 phones": found(
            min(many) < 100 < max(many), f"the energy of the GPU is that of {min(many):.0f} to {max(many):.0f} phones",
            "100 is among them", FOLLOWS,
        ),
    }  # fmt: skip


def error():
    """(numbers, kind) of the autoencoder that was trained here; nothing if there is none."""
    found_, _ = appendix.autoencoder()
    return (f"{found_['error']:.2f} % here after {found_['epochs']} epochs ({found_['where']})", KEPT) if found_ else ()
