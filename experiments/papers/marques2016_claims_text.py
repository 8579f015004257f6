"""What follows for the claims of Marques 2016 from its own numbers, from counting, and from the model of its section 5.4."""

import json
from pathlib import Path

from gridgrad.experiments.common import published_networks
from gridgrad.experiments.papers import marques2016_appendix as appendix
from gridgrad.experiments.papers import marques2016_scaling as scaling
from gridgrad.experiments.papers.claims import FOLLOWS, found, undecided
from gridgrad.experiments.papers.items import KEPT, PREDICTED
from gridgrad.experiments.papers.marques2016_runs import NETWORKS, Run
from gridgrad.experiments.papers.marques2016_scaling import KNOWN, PRINTED, SUMMED, said
from gridgrad.nn.conv import Conv2d

NEAR = 0.1  # numbers that differ by less, relative, count as the same
EXACT = 0.01  # the same, of numbers that are computed from each other
STABLE = 0.25  # what a speedup may still change by that is called stable, or almost the same
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
    two = [row["speedup"] for name, column in (("5.1", "CPUs"), ("5.2", "GPUs")) for row in KNOWN.tables[name].lines()
           if row[column] == 2]  # fmt: skip
    alone = sorted({row["network"] for row in KNOWN.tables["5.3"].lines()})
    return {
        "both devices end together": found(
            near(together, value("seconds of both devices"), EXACT) and near(seconds[0] / together, 1.5, EXACT),
            f"1/(1/10 + 1/20) = {together:.2f} seconds, {seconds[0] / together:.2f} times as fast",
            "without any communication", FOLLOWS,
        ),
        "few parameters": found(
            max(shares.values()) < 0.1,
            "; ".join(f"{net} {100 * share:.0f} %" for net, share in shares.items()) + " of the parameters are of convolutions",
            "of the network as it is described, its fully connected layer taken to have 10 outputs; the thesis cites the 5 % "
            "from papers on other networks", FOLLOWS,
        ),
        "25 % become 56 %": found(near(part * four, later), f"{part} % times {four} are {part * four:.0f} %", "", FOLLOWS),
        "a fifth of the rate": found(
            near(slower, value("speedup at a fifth of the rate")), f"2.27/(1 + 4 x 19 %) = {slower:.2f}", "", FOLLOWS
        ),
        "at most 7.76": found(
            near(100 / last, speedup("greatest speedup of CPUs", 1024)), f"1/{last} % = {100 / last:.2f}",
            "the arithmetic alone: the part itself was not found here", FOLLOWS,
        ),
        "two devices reach 2": found(
            min(two) > 1.8, f"Tables 5.1 and 5.2 have {min(two):.2f} to {max(two):.2f} on two devices", "", FOLLOWS
        ),
        "uneven batches lose information": found(
            False, "the sum of the gradients of all samples, over their number, is the same however they are divided",
            "means of the devices have to be weighted by their numbers of samples; `tests/experiments/test_shares.py` trains "
            "the same network with uneven shares as on one rank", FOLLOWS,
        ),
        "Table 5.3 is of one network": found(len(alone) == 1, f"Table 5.3 has {len(alone)} networks", "", FOLLOWS),
    }  # fmt: skip


def share_of_convolutions(network):
    """The part of the parameters of a network that is in its convolutions."""
    net = published_networks.published(Run(network, 64).net)
    sizes = {layer: sum(parameter.size for parameter in layer.parameters) for layer in net.layers}
    return sum(size for layer, size in sizes.items() if isinstance(layer, Conv2d)) / sum(sizes.values())


def of_contradictions():
    """Numbers of the text that should be one."""
    small = speedup("speedups of CPUs", "50:500", 64, 2)
    least, most = (said("speedups at any batch size", word, "50:500", 2).value for word in ("least", "most"))
    best = speedup("5.1", "50:500", 2)
    pairs = [(speedup("speedups of CPUs", "150:800", 64, cpus), speedup("speedups of CPUs, repeated", cpus)) for cpus in (2, 3)]
    three = {speedup("speedups of CPUs", LARGE, 1024, 3), speedup("5.1", LARGE, 3), value("500:1500 on 3 CPUs in section 5.3")}
    other, sixth = speedup("greatest speedup of CPUs", 1024), value("greatest speedup of CPUs in section 5.4")
    return {
        "one speedup of 50:500": found(
            least <= small <= most and best == most, f"{small:.2f} is not among {least} to {most}, nor is {best:.2f}",
            "one batch size can not be outside of all of them", FOLLOWS,
        ),
        "one speedup of 150:800": found(
            all(first == again for first, again in pairs),
            " and ".join(f"{first:.2f} against {again:.2f}" for first, again in pairs), "", FOLLOWS,
        ),
        "one speedup of 500:1500": found(len(three) == 1, ", ".join(f"{one:.2f}" for one in sorted(three)), "", FOLLOWS),
        "6.70 and 2.15": found(
            near(sixth, other), f"{sixth:.2f} here, {other:.2f} in section 5.1.3, of the same network and batch size",
            "the 2.15 of GPUs can not be checked", FOLLOWS,
        ),
    }  # fmt: skip


def of_gpus():
    """Claims about GPUs, most of which take GPUs."""
    least, most = ({n: speedup("speedups of GPUs", f"batch 64, {word} of the networks", n) for n in (2, 3)}
                   for word in ("least", "most"))  # fmt: skip
    cases = [(case, n, speedup("speedups of GPUs", f"{case}, batch 64", n)) for case in ("50:500", "150:800") for n in (2, 3)]
    outside = [one for one in cases if not least[one[1]] <= one[2] <= most[one[1]]]
    whole, limit = speedup("5.2", LARGE, 3), value("greatest speedup of GPUs")
    together = (1 - 1 / limit) / (1 / whole - 1 / limit)  # how fast all three convolve, the first one at 1, if nothing is sent
    model = [scaling.derived(equation)["GPUs, largest network"].speedup(3) for equation in scaling.EQUATIONS]
    falls = [[row["speedup"] for row in KNOWN.tables["5.2"].lines() if row["GPUs"] == gpus] for gpus in (2, 3)]
    words = ", ".join(f"{one:.2f}" for one in falls[1])
    return {
        "best on GPUs": undecided(NO_GPU),
        "communication of GPUs": undecided(NO_GPU),
        "a CPU beats a GPU": undecided(NO_GPU),
        "GPUs over CPUs": undecided(NO_GPU),
        "GPUs gain less with more kernels": undecided(NO_GPU, f"Table 5.2 has {words} on 3 GPUs, which falls"),
        "speedups of GPUs agree": found(
            not outside, "outside are " + ", ".join(f"{case} with {one:.2f} on {n} GPUs" for case, n, one in outside),
            "50:500 is in section 5.2.1 and may not be meant, 150:800 is on the same page", FOLLOWS,
        ),
        "2.15 allows 2.00": found(
            together < 2 * sum(scaling.GPUS),
            f"even if nothing were sent, three GPUs would have to convolve {together:.1f} times as fast as the first one; with "
            f"the bytes of equation 5.1 at 5 MB/s {min(model):.2f} to {max(model):.2f} is predicted",
            f"by the peaks of their vendor the three are {sum(scaling.GPUS):g} times as fast as the first one", PREDICTED,
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
    most = {name: max(range(1, 33), key=at[SUMMED, name].get) for name in (*cpus, gpus)}
    sent = {nodes: [scaling.sent(*scaling.LARGEST, clusters[SUMMED][cpus[1]].speeds_of(nodes), equation) for equation in
                    (SUMMED, PRINTED)] for nodes in (4, 32)}  # fmt: skip
    ratios = {nodes: one / other for nodes, (one, other) in sent.items()}
    four, theirs = at[SUMMED, cpus[0]][4], speedup("speedups of CPUs", "50:500", 64, 4)
    return {
        "scalable": found(
            all(at[SUMMED, name][32] > 0.99 * at[SUMMED, name][most[name]] for name in (*cpus, gpus)),
            words((*cpus, gpus), (8, 32)) + f"; the best number is {', '.join(map(str, most.values()))} nodes", why, PREDICTED,
        ),
        "stable from 8 nodes": found(
            all(near(at[SUMMED, name][32], at[SUMMED, name][8], STABLE) for name in cpus), words(cpus, (8, 32)), why, PREDICTED
        ),
        "little after 4 CPUs": found(
            all(max(at[SUMMED, name].values()) < (1 + STABLE) * at[SUMMED, name][4] for name in cpus),
            words(cpus, (4, 8, 32)), "with more nodes it even falls, where each slave is sent the input", PREDICTED,
        ),
        "GPUs stagnate from 8 nodes": found(
            near(at[SUMMED, gpus][32], at[SUMMED, gpus][8], STABLE), words([gpus], (8, 32)), why, PREDICTED
        ),
        "the equation predicts communication": found(
            all(ratio < 1 + NEAR for ratio in ratios.values()),
            "for 500:1500 at batch 1024 the algorithm sends "
            + " and ".join(f"{ratio:.2f} times the bytes of the printed equation on {n} nodes" for n, ratio in ratios.items()),
            f"with the input for each slave, the constants of 500:1500 predict {four:.2f} for 50:500 on 4 CPUs, printed are "
            f"{theirs:.2f}", FOLLOWS,
        ),
    }  # fmt: skip


def of_rates():
    """Claims of section 5.5, by equation 5.1 as printed."""
    by_rate = {name: clusters for name, (clusters, _) in scaling.of_rates().items()}
    low, high = (by_rate[f"5.13{name} CPUs"][5] for name in ("a low and mid range", "b high-end"))
    at_32 = [low.speedup(32), high.speedup(32)]
    needed = [next(n for n in range(1, 33) if one.speedup(n) > 0.9 * one.speedup(32)) for one in (low, high)]
    slow = by_rate["5.14a low and mid range GPUs"][1].speedup(32)
    mobile, desktop = by_rate["5.15 mobile GPUs"][125], by_rate["5.14a low and mid range GPUs"][125]
    few, many, goal = mobile.speedup(32), mobile.speedup(128), desktop.speedup(32)
    assumed = f"a high-end device is taken to be {scaling.FASTER} times as fast as the fastest laptop"
    return {
        "low and high-end devices": found(
            near(at_32[1], at_32[0], STABLE), f"{at_32[0]:.2f} and {at_32[1]:.2f} on 32 CPUs at 5 MiB/s", assumed, PREDICTED
        ),
        "high-end devices need fewer nodes": found(
            needed[1] < needed[0], f"{needed[1]} against {needed[0]} CPUs for nine tenths of the speedup on 32", assumed,
            PREDICTED,
        ),
        "GPUs on a slow network": found(slow < 1, f"{slow:.2f} at 1 MiB/s on 32 GPUs", "by equation 5.1", PREDICTED),
        "mobile GPUs": found(
            few < (1 - NEAR) * goal, f"{few:.2f} with 31 and {many:.2f} with 127 mobile GPUs, {goal:.2f} with 31 desktop GPUs",
            "at 125 MiB/s; the thesis names no rate", PREDICTED,
        ),
        "bound by memory": undecided(NO_GPU, *of_roofline()),
    }  # fmt: skip


def of_roofline():
    """(numbers, kind) of the roofline that was measured on a CPU core; nothing if there is none."""
    if not ROOFLINE.exists():
        return ()
    kept = json.loads(ROOFLINE.read_text())
    peak = kept["flops_per_second"]
    points = [point["flops"] / point["seconds"]["median"] / peak for point in kept["points"]
              if point["layer"].startswith("marques") and point["pass"] == "forward"]  # fmt: skip
    if not points:
        return ()
    where = f"{ROOFLINE}, {kept['versions']['processor']}"
    return f"on a CPU core these convolutions reach {min(points):.2f} to {max(points):.2f} times its peak ({where})", KEPT


def of_appendix():
    """Claims of Appendix A."""
    seconds = {row["device"]: appendix.seconds_of(row["time"]) for row in KNOWN.tables["II"].lines()}
    rows = {row["device"]: row for row in KNOWN.tables["II"].lines()}
    gpu, *phones = rows
    parts = {name: 100 * rows[name]["Wh"] / rows[gpu]["Wh"] for name in phones}
    products = [(name, rows[name]["W"] * seconds[name] / 3600, rows[name]["Wh"]) for name in rows]
    platforms = KNOWN.tables["whole platform"].lines()
    watts = value("W of the whole platform")
    products += [(f"{row['device']}'s platform", watts * seconds[row["device"]] / 3600, row["Wh"]) for row in platforms]
    wrong = [f"{name}: {ours:.4f}, printed {theirs:.4f} Wh" for name, ours, theirs in products if not near(ours, theirs, EXACT)]
    times = [seconds[name] / seconds[gpu] for name in phones]
    weights = {row["width"]: row["weights"] for row in KNOWN.tables["III"].lines()}
    many = [rows[gpu]["Wh"] / rows[name]["Wh"] for name in phones]
    return {
        "error of the autoencoder": undecided("1,500 epochs were not trained", *error()),
        "energy of phones": found(
            all(near(part, rows[name]["percent of the GPU"], EXACT) for name, part in parts.items()),
            ", ".join(f"{name} {part:.2f} %" for name, part in parts.items()) + ", by the Wh of Table II",
            "but not all of these Wh follow from power and time, see that claim", FOLLOWS,
        ),
        "energy is power times time": found(
            not wrong, "; ".join(wrong) if wrong else "all of them do", "the others do" if wrong else "", FOLLOWS
        ),
        "phones take 15 times as long": found(
            all(near(one, 15) for one in times) and all(near(one, 10) for one in times),
            f"{min(times):.1f} to {max(times):.1f} times as long by Table II", "", FOLLOWS,
        ),
        "weights": found(
            all(appendix.weights_of(width) == printed for width, printed in weights.items()),
            "784 w + 250 w + 2500 weights and w + 260 biases are these numbers", "", FOLLOWS,
        ),
        "100 phones": found(
            min(many) < 100 < max(many), f"the energy of the GPU is that of {min(many):.0f} to {max(many):.0f} phones", "",
            FOLLOWS,
        ),
    }  # fmt: skip


def error():
    """(numbers, kind) of the autoencoder that was trained here; nothing if there is none."""
    if not appendix.AUTOENCODER.exists():
        return ()
    kept = json.loads(appendix.AUTOENCODER.read_text())
    epochs = kept["settings"]["pretrain_epochs"] + kept["settings"]["epochs"]
    where = f"{appendix.AUTOENCODER}, {kept['versions']['processor']}"
    return f"{kept['test_error']:.2f} % here after {epochs} epochs ({where})", KEPT
