"""Claims of Hegde and Usmani 2016 that kept results of other programs decide, each from the file of one program."""

from pathlib import Path

from gridgrad.experiments.papers.claims import found, undecided
from gridgrad.experiments.papers.items import KEPT
from gridgrad.nn.json_text import UNFIT, content_of_file

FOLDER = Path("results")
ABOUT = 1.1  # the most by which a time may exceed what it is said to be about
BETTER = 1.05  # the least by which a rate is better than another one
LOSS = 1  # percentage points of accuracy that a faster way may lose


class NotMeasuredError(Exception):
    """Results do not have the measurement that is named."""


def decided_by(name, find):
    """The Finding that a function makes of the content of results/NAME.json; one that is undecided where that is not there.

    find: what it raises for other content than it expects makes the Finding undecided too.
    """
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return undecided(f"there is no {path}")
    try:
        return find(content_of_file(path))
    except NotMeasuredError as error:
        return undecided(f"in {path} there is no {error}")
    except (*UNFIT, StopIteration, OSError) as error:
        return undecided(f"{path} does not hold what would decide it ({type(error).__name__})")


def source(name, versions):
    """The words for where a number is from."""
    return f"results/{name}.json, {versions['processor']}"


def findings():
    """{name of a claim: Finding}."""
    return {
        "images_at_once": decided_by("bench", images_at_once),
        "data_parallelism": decided_by("convergence", data_parallelism),
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


def images_at_once(content):
    """Two ranks that share the images of a minibatch, beside two that never communicate."""
    start = "2 ranks / 2 ranks with nothing to say: "
    ratios = {name.removeprefix(start): row["wall"]["median"] for name, row in content["ratios"].items() if start in name}
    words = ", ".join(f"{ratio:.2f} ({name})" for name, ratio in ratios.items())
    return found(
        max(ratios.values()) <= ABOUT,
        f"a training step of two ranks takes {words} of the time of two that never communicate "
        f"({source('bench', content['versions'])})",
        "the ranks do sum their gradients, which costs little within one machine", KEPT,
    )  # fmt: skip


def data_parallelism(content):
    """Serial and batch-parallel training to one accuracy."""
    seconds, words = seconds_of_ways(content)
    ratio = seconds["serial"] / seconds["batch=2"]
    return found(
        ratio > 1,
        f"to 65 % of the training images of CIFAR-10 {seconds['batch=2']:.1f} s on two ranks and {seconds['serial']:.1f} s on "
        f"one: {ratio:.2f} times as fast ({words})",
        "steps are shorter, but more of them are needed", KEPT,
    )  # fmt: skip


def backpropagation(content):
    """A pipeline whose stages update their layers while others compute, beside one that waits at the end of each step."""
    seconds, words = seconds_of_ways(content)
    waits, waits_not = seconds["stage=2, 1f1b"], seconds["stage=2, async:2"]
    return found(
        waits_not < waits,
        f"to 65 % of the training images of CIFAR-10 {waits_not:.1f} s with a pipeline of two stages that propagate and update "
        f"asynchronously, {waits:.1f} s with one whose updates are synchronous ({words})",
        "the paper has this as an outlook", KEPT,
    )  # fmt: skip


def seconds_of_ways(content):
    """({way: seconds to its target}, the source) of the training on CIFAR-10."""
    first = next(one for one in content if one["dataset"] == "cifar10" and one["settings"]["target"] == 65)
    return {way["way"]: way["seconds"] for way in first["ways"]}, source("convergence", first["versions"])


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
        f"parallelism: {words} ({source('crossover', content['versions'])})",
        "the network fits on one machine; on a slow link it is faster to send activations of small batches than all gradients",
        KEPT,
    )  # fmt: skip


def runs_on_sorted_samples(content, names):
    """([the run with each of these protocols], the result they are of): of the last training on sorted MNIST with all."""
    for one in reversed(content):
        if one["time"] == "virtual" and one["dataset"] == "mnist" and one["sorted"]:
            runs = {run["protocol"]: run for run in one["runs"] if run["straggler"] == 1}
            if runs.keys() >= set(names):
                return [runs[name] for name in names], one
    raise NotMeasuredError(f"training on sorted samples of MNIST with all of {', '.join(names)}")


def representative(content):
    """Accuracies after one mean of workers that had sorted samples, with and without the shuffle."""
    runs, one = runs_on_sorted_samples(content, ("parallel-sgd:shuffle", "parallel-sgd", "sync"))
    with_it, without, together = (run["score"] for run in runs)
    return found(
        together - with_it < with_it - without,
        f"test accuracy on sorted MNIST, {one['workers']} workers, {one['epochs']} epochs: {with_it:.1f} % after ShuffleSGD, "
        f"{without:.1f} % without it, {together:.1f} % with synchronous SGD ({source('protocols', one['versions'])})",
        "afterwards each class has the same number of samples on all workers, to one", KEPT,
    )  # fmt: skip


def rounds(content):
    """Accuracies after several rounds, with and without an exchange of halves between them, and after one."""
    runs, one = runs_on_sorted_samples(content, ("parallel-sgd", "parallel-sgd:epoch", "parallel-sgd:exchange", "sync"))
    single, apart, moved, together = (run["score"] for run in runs)
    return found(
        moved > single and moved > apart,
        f"test accuracy on MNIST sorted by label, {one['workers']} workers, {one['epochs']} epochs: {moved:.1f} % where pairs "
        f"exchange halves between rounds, {apart:.1f} % with rounds and no exchange, {single:.1f} % in one round, "
        f"{together:.1f} % with synchronous SGD ({source('protocols', one['versions'])})",
        "the loss is that of a network, which is not convex", KEPT,
    )  # fmt: skip


def practical(content):
    """Accuracy and time with an exchange of halves after each epoch, beside those of synchronous SGD."""
    (moved, together), one = runs_on_sorted_samples(content, ("parallel-sgd:exchange", "sync"))
    return found(
        together["score"] - moved["score"] <= LOSS and moved["seconds"] < together["seconds"],
        f"test accuracy on MNIST sorted by label, {one['workers']} workers, {one['epochs']} epochs: {moved['score']:.1f} % "
        f"after {moved['seconds']:.3g} s in virtual time, {together['score']:.1f} % after {together['seconds']:.3g} s with "
        f"synchronous SGD ({source('protocols', one['versions'])})",
        f"it has to be faster, and to lose no more than {LOSS} percentage point", KEPT,
    )  # fmt: skip


def shuffle_bottleneck(content):
    """The share of the shuffle in the time of ParallelSGD, and in what it sends."""
    (with_it, without), one = runs_on_sorted_samples(content, ("parallel-sgd:shuffle", "parallel-sgd"))
    time, sent = (1 - without[name] / with_it[name] for name in ("seconds", "bytes"))
    return found(
        time > 0.5,
        f"of {with_it['seconds']:.2f} s that {one['epochs']} epochs of {one['samples']:,} images of MNIST take on "
        f"{one['workers']} workers, in virtual time, the shuffle takes {100 * time:.1f} % "
        f"({source('protocols', one['versions'])})",
        f"it is {100 * sent:.0f} % of all bytes that are sent, and so the bottleneck of communication; but gradients take most "
        "of the time",
        KEPT,
    )


def no_waiting(content):
    """Steps with one slow worker, with and without it, of synchronous training and of an asynchronous server, in jobs."""
    one = next(one for one in content if one["time"] == "on this machine" and one["straggler"] > 1)
    seconds = {(run["protocol"], run["straggler"] > 1): run["seconds"]["median"] for run in one["runs"]}
    slower = {name: seconds[name, True] / seconds[name, False] for name in ("sync", "server:asp", "downpour:4:4")}
    words = ", ".join(f"{slower[name]:.2f} times as long with {name}" for name in slower)
    return found(
        max(slower["server:asp"], slower["downpour:4:4"]) * BETTER < slower["sync"],
        f"where one of {one['workers']} workers computes {one['straggler']:g} times as slowly a step of {one['net']} takes "
        f"{words} ({source('protocols', one['versions'])})",
        "the others go on, and do more of the work", KEPT,
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
        f"update {update:.2f} times ({source('protocols', first['versions'])})",
        "an update passes over all parameters; but a convolution uses each of its parameters at many places, so T does not "
        "follow from their number", KEPT,
    )  # fmt: skip


def limit_of(content):
    """What the study of servers measured of the number of workers that one server can serve."""
    return next(one for one in content if one["part"] == "limit" and not one["link"])


def measured_limit():
    """The same from the kept file; None where it holds none."""
    try:
        return limit_of(content_of_file(FOLDER / "servers.json"))
    except (*UNFIT, StopIteration, OSError):
        return None


def server_rate(content):
    """The updates a second that any number of workers reach, beside 1/tau."""
    one = limit_of(content)
    most = max(one["rows"], key=lambda row: row["measured"])
    return found(
        most["measured"] <= ABOUT / one["tau"],
        f"at most {most['measured']:.0f} updates a second, with {most['workers']} workers; 1/tau is {1 / one['tau']:.0f} "
        f"({source('servers', one['versions'])})",
        "the server and the workers share two cores, so it stays below", KEPT,
    )  # fmt: skip


def server_workers(content):
    """The updates a second of T/tau workers, beside those of more."""
    one = limit_of(content)
    ratio = one["compute"] / one["tau"]
    rates = {row["workers"]: row["measured"] for row in one["rows"]}
    here = rates[round(ratio)]
    gains = {workers: rate / here for workers, rate in rates.items() if workers > round(ratio)}
    enough = min(k for k in rates if all(rates[more] <= BETTER * rates[k] for more in rates if more > k))
    return found(
        max(gains.values()) <= BETTER,
        f"T = {1e3 * one['compute']:.1f} ms, tau = {1e3 * one['tau']:.1f} ms, T/tau = {ratio:.1f}: {here:.0f} updates a second "
        f"with {round(ratio)} workers, {rates[round(ratio) + 1]:.0f} with one more; from {enough} on there are no more "
        f"({source('servers', one['versions'])})",
        "there is such a number, but a worker also waits for its own update, and does not compute meanwhile. So more workers "
        "are needed than T/tau: (T + tau)/tau by the paper's own terms, and somewhat more as a message takes time, too", KEPT,
    )  # fmt: skip
