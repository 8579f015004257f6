"""Claims of Hegde and Usmani 2016 that kept results of other programs decide, each from the file of one program."""

from pathlib import Path

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.cited import published
from gridgrad.experiments.papers.claims import found, undecided
from gridgrad.experiments.papers.items import KEPT, PREDICTED
from gridgrad.experiments.papers.other_results import kept, where

FOLDER = Path("results")
ABOUT = 1.1  # the most by which a time may exceed what it is said to be about
BETTER = 1.05  # the least by which a rate is better than another one
LOSS = 1  # percentage points of accuracy that a faster way may lose
EPOCHS = published("hegde2016").values["epochs"].value


def file(name):
    """The file of a program."""
    return FOLDER / f"{name}.json"


def source(name, content):
    """The words for where a number is from: the file of a program, and the processor that its content names."""
    return where(file(name), content["versions"])


def decided_by(name, find):
    """The Finding that a function makes of the content of a program's file; an undecided one if that does not hold it."""
    finding, why = kept(file(name), find)
    return finding or undecided(why)


def findings():
    """{name of a claim: Finding}."""
    return {
        "images_at_once": decided_by("bench", images_at_once),
        "data_parallelism": decided_by("bench", data_parallelism),
        "model_parallelism": decided_by("crossover", model_parallelism),
        "representative": decided_by("protocols", representative),
        "rounds": decided_by("protocols", rounds),
        "practical": decided_by("protocols", practical),
        "shuffle_bottleneck": decided_by("protocols", shuffle_bottleneck),
        "no_waiting": decided_by("protocols", no_waiting),
        "both_linear": decided_by("protocols", both_linear),
        "backpropagation": decided_by("convergence", backpropagation),
        "server_rate": decided_by("servers", server_rate),
        "server_workers": decided_by("servers", server_workers),
    }


def ratios_of_bench(content, start):
    """{network: {"median", "min", "max"} of the ratios of the rounds} of what `bench` names with these words at the start."""
    return {name.removeprefix(start): row["wall"] for name, row in content["ratios"].items() if name.startswith(start)}


def steps_of_two_ranks(content):
    """({network: the ratios of a training step of two ranks over one of one rank}, where they are from)."""
    return ratios_of_bench(content, "2 ranks / 1 rank: "), source("bench", content)


def over_a_half(content):
    """The time of a training step of two ranks over half of that of one: (the ends of the networks' range, all in words)."""
    ratios, place = steps_of_two_ranks(content)
    times = {name: 2 * row["median"] for name, row in ratios.items()}
    ends = min(times.values()), max(times.values())
    return ends, f"{', '.join(f'{time:.2f} ({name})' for name, time in times.items())}; {place}"


def images_at_once(content):
    """Two ranks that share the images of a minibatch, beside two that never communicate."""
    ratios = ratios_of_bench(content, "2 ranks / 2 ranks with nothing to say: ")
    words = ", ".join(f"{row['median']:.2f} ({name})" for name, row in ratios.items())
    return found(
        max(row["median"] for row in ratios.values()) <= ABOUT,
        f"a training step of two ranks takes {words} of the time of two that never communicate ({source('bench', content)})",
        f"up to {ABOUT} counts as the same time. The ranks do sum their gradients, which costs little within one machine", KEPT,
    )  # fmt: skip


def data_parallelism(content):
    """Steps of two ranks over those of one with the same minibatches, and training to one accuracy."""
    ratios, place = steps_of_two_ranks(content)
    words = ", ".join(f"{row['median']:.2f} ({name})" for name, row in ratios.items())
    trained, _ = kept(file("convergence"), trained_to_an_accuracy)
    return found(
        max(row["max"] for row in ratios.values()) < 1,
        f"a training step of two ranks takes {words} of the time of one rank ({place})",
        "each step has to be faster in all rounds, with the same minibatches" + (f"; {trained}" if trained else ""), KEPT,
    )  # fmt: skip


def trained_to_an_accuracy(content):
    """Serial and batch-parallel training to one accuracy, in words."""
    seconds, place = seconds_of_ways(content)
    return (
        f"trained once, in steps of half an epoch, to 65 % of the training images of CIFAR-10 two ranks took "
        f"{seconds['batch=2']:.1f} s and one {seconds['serial']:.1f} s ({place})"
    )


def backpropagation(content):
    """A pipeline whose stages update their layers while others compute, beside one that waits at the end of each step."""
    seconds, place = seconds_of_ways(content)
    waits, waits_not = seconds["stage=2, 1f1b"], seconds["stage=2, async:2"]
    return found(
        waits_not * BETTER < waits,
        f"to 65 % of the training images of CIFAR-10 {waits_not:.1f} s with a pipeline of two stages that propagate and update "
        f"asynchronously, {waits:.1f} s with one whose updates are synchronous ({place})",
        f"it has to be {100 * (BETTER - 1):.0f} % faster; both were trained once. The paper has this as an outlook", KEPT,
    )  # fmt: skip


def seconds_of_ways(content):
    """({way: seconds to its target}, where they are from) of the training on CIFAR-10."""
    first = next(one for one in content if one["dataset"] == "cifar10" and one["settings"]["target"] == 65)
    return {way["way"]: way["seconds"] for way in first["ways"]}, source("convergence", first)


def model_parallelism(content):
    """Steps with all ranks along the axis `model` beside those with all along `batch`, by batch size."""
    seconds = {(row["grid"], row["batch_size"]): row["seconds"]["median"] for row in content["rows"]}
    ranks, sizes = content["ranks"], sorted({size for _, size in seconds})
    ratios = {size: seconds[f"batch={ranks},model=1", size] / seconds[f"batch=1,model={ranks}", size] for size in sizes}
    faster = [size for size, ratio in ratios.items() if ratio > BETTER]
    words = ", ".join(f"{ratio:.3g} (batch {size})" for size, ratio in ratios.items())
    return found(
        not faster,
        f"with model parallelism a step of {content['net']} on {content['link']} is so many times as fast as with data "
        f"parallelism: {words} ({source('crossover', content)})",
        f"more than {BETTER} counts as faster. The network fits on one machine; on a slow link it is faster to send "
        "activations of small batches than all gradients", KEPT,
    )  # fmt: skip


def on_sorted_samples(*names):
    """Makes a function of a training and of its runs with these protocols one of the content of the file of `protocols`.

    The training is the last one on sorted MNIST that has all of them. Without one the Finding is undecided, and says so.
    """

    def decorated(find):
        def of_content(content):
            for one in reversed(content):
                if one["time"] == "virtual" and one["dataset"] == "mnist" and one["sorted"]:
                    runs = {run["protocol"]: run for run in one["runs"] if run["straggler"] == 1}
                    if runs.keys() >= set(names):
                        return find(one, *(runs[name] for name in names))
            return undecided(f"{file('protocols')} has no training on sorted samples of MNIST with all of {', '.join(names)}")

        return of_content

    return decorated


def training(one):
    """What was trained, in words."""
    return f"on MNIST sorted by label, {one['workers']} workers, {one['epochs']} epochs"


@on_sorted_samples("parallel-sgd:shuffle", "parallel-sgd", "sync")
def representative(one, shuffled, unmoved, together):
    """Accuracies after one mean of workers that had sorted samples, with and without the shuffle."""
    with_it, without, most = (run["score"] for run in (shuffled, unmoved, together))
    return found(
        most - with_it < with_it - without,
        f"test accuracy {training(one)}: {with_it:.1f} % after ShuffleSGD, {without:.1f} % without it, {most:.1f} % with "
        f"synchronous SGD ({source('protocols', one)})",
        "it has to be nearer to that of synchronous SGD than to that without it. Afterwards each class has the same number of "
        "samples on all workers, to one", KEPT,
    )  # fmt: skip


@on_sorted_samples("parallel-sgd", "parallel-sgd:epoch", "parallel-sgd:exchange", "sync")
def rounds(one, *runs):
    """Accuracies after several rounds, with and without an exchange of halves between them, and after one."""
    single, apart, moved, together = (run["score"] for run in runs)
    return found(
        moved > max(single, apart) + LOSS,
        f"test accuracy {training(one)}: {moved:.1f} % where pairs exchange halves between rounds, {apart:.1f} % with rounds "
        f"and no exchange, {single:.1f} % in one round, {together:.1f} % with synchronous SGD ({source('protocols', one)})",
        f"it has to be better by more than {counted(LOSS, 'percentage point')}; each was trained once. The loss is that of a "
        "network, which is not convex", KEPT,
    )  # fmt: skip


@on_sorted_samples("parallel-sgd:exchange", "sync")
def practical(one, moved, together):
    """Accuracy and simulated time with an exchange of halves after each epoch, beside those of synchronous SGD."""
    near = together["score"] - moved["score"] <= LOSS
    numbers = (
        f"test accuracy {training(one)}: {moved['score']:.1f} % after {moved['seconds']:.3g} simulated seconds, "
        f"{together['score']:.1f} % after {together['seconds']:.3g} with synchronous SGD ({source('protocols', one)})"
    )
    if one["epochs"] < EPOCHS:
        return undecided(f"the paper speaks of about {EPOCHS} epochs", numbers, PREDICTED)
    return found(
        near and moved["seconds"] < together["seconds"], numbers,
        f"it has to be faster, and to lose no more than {counted(LOSS, 'percentage point')}. The network was trained, and the "
        f"time simulated, from measured times of minibatches and updates, on a link of {one['settings']['rate']:g} Mbit/s",
        PREDICTED if near else KEPT,
    )  # fmt: skip


@on_sorted_samples("parallel-sgd:shuffle", "parallel-sgd")
def shuffle_bottleneck(one, with_it, without):
    """The share of the shuffle in the simulated time of ParallelSGD, and in what it sends."""
    time, sent = (1 - without[name] / with_it[name] for name in ("seconds", "bytes"))
    return found(
        time > 0.5,
        f"of {with_it['seconds']:.2f} simulated seconds that {one['epochs']} epochs of {one['samples']:,} images of MNIST take "
        f"on {one['workers']} workers the shuffle takes {100 * time:.1f} % ({source('protocols', one)})",
        f"it has to be more than half. It is {100 * sent:.0f} % of all bytes that are sent, and so the bottleneck of "
        "communication; but gradients take most of the time", PREDICTED,
    )  # fmt: skip


def no_waiting(content):
    """Steps with one slow worker, with and without it, of synchronous training and of an asynchronous server, in jobs."""
    one = next(one for one in content if one["time"] == "on this machine" and one["straggler"] > 1)
    seconds = {(run["protocol"], run["straggler"] > 1): run["seconds"]["median"] for run in one["runs"]}
    slower = {name: seconds[name, True] / seconds[name, False] for name in ("sync", "server:asp", "downpour:4:4")}
    servers, workers, slow = (slower["server:asp"], slower["downpour:4:4"]), one["workers"], one["straggler"]
    return found(
        max(servers) * BETTER < slower["sync"],
        f"a step takes {slower['sync']:.2f} times as long with synchronous SGD, {servers[0]:.2f} and {servers[1]:.2f} times "
        f"with a server ({source('protocols', one)})",
        f"one of {workers} workers is {slow:g} times as slow: without any waiting it would be "
        f"{workers / (workers - 1 + 1 / slow):.2f} times; a server has to stay {100 * (BETTER - 1):.0f} % below synchronous "
        "SGD", KEPT,
    )  # fmt: skip


def both_linear(content):
    """Seconds of a minibatch and of an update of two networks beside their parameters."""
    measured = {one["net"].partition(",")[0]: one for one in content if one.get("seconds") and not one["sorted"]}
    first, second = (measured[name] for name in ("mnist-cnn", "cifar-cnn"))
    gradient, update = (first["seconds"][name] / second["seconds"][name] for name in ("compute", "update"))
    parameters = first["parameters"] / second["parameters"]
    return found(
        all(1 / 2 < ratio / parameters < 2 for ratio in (gradient, update)),
        f"mnist-cnn has {parameters:.2f} times the parameters of cifar-cnn; a minibatch takes {gradient:.2f} times as long, an "
        f"update {update:.2f} times ({source('protocols', first)})",
        "both ratios have to be within a factor of 2 of that of the parameters. An update passes over all parameters; but a "
        "convolution uses each of its parameters at many places, so T does not follow from their number", KEPT,
    )  # fmt: skip


def limit_of(content):
    """What the study of servers measured of the number of workers that one server can serve."""
    return next(one for one in content if one["part"] == "limit" and not one["link"])


def server_rate(content):
    """The updates a second that any number of workers reach, beside 1/tau."""
    one = limit_of(content)
    most = max(one["rows"], key=lambda row: row["measured"])
    return found(
        most["measured"] <= ABOUT / one["tau"],
        f"at most {most['measured']:.0f} updates a second, with {most['workers']} workers; 1/tau is {1 / one['tau']:.0f} "
        f"({source('servers', one)})",
        f"up to {ABOUT} times 1/tau counts as no more than 1/tau. The server and the workers share two cores, so it stays "
        "below", KEPT,
    )  # fmt: skip


def server_workers(content):
    """The updates a second of T/tau workers, beside those of more: whether these are more in every round."""
    one = limit_of(content)
    rows = {row["workers"]: row for row in one["rows"]}
    busy = round(one["compute"] / one["tau"])
    here, more = rows[busy], rows[busy + 1]
    enough = next(k for k in sorted(rows) if all(rows[n]["least"] <= rows[k]["most"] for n in rows if n > k))
    needed = f"it takes {counted(enough - busy, 'worker')} more than T/tau" if enough > busy else "more bring nothing more"
    return found(
        enough <= busy,
        f"{here['measured']:.0f} updates/s by T/tau = {busy}, {more['measured']:.0f} by {busy + 1}; {source('servers', one)}",
        f"{needed}, beyond the spread of the rounds", KEPT,
    )  # fmt: skip
