"""The document of `protocols`: tables of trainings with update protocols, in virtual time and in jobs."""

from gridgrad.experiments.common.markdown import lines
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.plots.style import measured_on
from gridgrad.experiments.studies.protocols.protocol_runs import reached

UNITS = {"accuracy": " %", "mse": ""}

TEXT = """# Update protocols

Written by `gridgrad study protocols`. `sync` trains synchronously, with an all-reduce of the gradients in each step, and so
does `powersgd:R`, which compresses them. As Downpour's workers take plain steps, it has no momentum, and a learning rate of
lr / (1 - momentum), with which steps are as long on average. Bytes and messages are those of all workers; an all-reduce of W
workers is 2 (W - 1) messages of each. Staleness is the number of gradients of other workers that were applied between the
parameters of which a gradient was computed and itself, and the effective batch the samples whose gradients make one update of
the parameters that workers agree on.

In *virtual time* the network is trained in earnest, but how long that takes follows from the seconds of a worker's minibatch
and of an update, both measured on one core with one BLAS thread, and from the rate and the delay of the links between workers.
There the all-reduce of `sync` goes around a ring when backward is complete, and the small products of PowerSGD take no time.
The network that is tested on the way to a target has the mean of the workers' parameters or, with servers, those that they
serve, and is tested on some of the test samples; the test at the end is on all of them.
"""


def document(results):
    """All results of a file as Markdown."""
    yield TEXT
    for one in results:
        yield from tables(one)


def tables(one):
    """A result as Markdown, without the words that all results have in common."""
    yield f"## {title(one)}\n"
    yield conditions(one) + "\n"
    for factor in dict.fromkeys(run["straggler"] for run in one["runs"]):
        yield f"The last worker computes {factor:g} times as slowly:\n" if factor > 1 else "All workers are equally fast:\n"
        rows = [run for run in one["runs"] if run["straggler"] == factor]
        yield lines([row(run, one) for run in rows]) + "\n"
        for run in rows:
            if run["diverged"]:
                yield f"`{run['protocol']}` diverged: {run['diverged']}\n"


def title(result):
    """What was trained, in words."""
    made_up, order = " (made up)" * bool(result["synthetic"]), ", sorted by label" * bool(result["sorted"])
    length = f"{result['steps']} steps on" if result["epochs"] is None else f"{result['epochs']} epochs of {result['samples']}"
    samples, time = f"{length} samples of {result['dataset']}{made_up}{order}", result["time"] == "virtual"
    return f"{result['net']}, {samples}, {result['workers']} workers in {'virtual time' if time else 'jobs'}"


def conditions(result):
    """A sentence about how."""
    settings = result["settings"]
    how = (
        f"Global batch {result['batch_size']}, learning rate {result['lr']:g} ({result['schedule']}), momentum "
        f"{result['momentum']:g}; {measured_on(result['versions'])}."
    )
    if result["time"] != "virtual":
        rounds = counted(settings["rounds"], "round")
        return f"{how} Jobs ({result['time']}) in {rounds}: the median, and the range."
    seconds = result["seconds"]
    return (
        f"{how} Virtual time: {1e3 * seconds['compute']:.3g} ms for a minibatch of {result['share']} samples, "
        f"{1e6 * seconds['update']:.3g} us for an update of {result['parameters']} parameters, {settings['rate']:g} Mbit/s and "
        f"{settings['delay']:g} us. {settings['evaluated']} samples are tested on the way."
    )


def row(run, result):
    """A training as a dict of what is in the cells of its row."""
    target, score = result["settings"]["target"], result["score"]
    done, stale = run["diverged"] is None, run.get("staleness")
    cells = {"protocol": f"`{run['protocol']}`" + " (diverged)" * (not done)}
    if result["time"] == "virtual":
        if target is not None:
            at, goal = reached(run["history"], target, score), f"{target:g}{UNITS[score]}"
            cells |= {f"epochs to {goal}": at and f"{at['epoch']:.2f}", f"seconds to {goal}": at and f"{at['seconds']:.3g}"}
        sync = next((one for one in result["runs"] if (one["protocol"], one["straggler"]) == ("sync", run["straggler"])), {})
        cells |= {"seconds": done and f"{run['seconds']:.3g}", f"test {score}": done and scored(run["score"], score)}
        cells |= {"sync by it": done and sync.get("seconds") and f"{sync['seconds'] / run['seconds']:.2f}"}
        cells |= {"messages a step": done and f"{run['messages']:.3g}"}
        cells |= {"effective batch": done and f"{run['effective_batch']:g}"}
    else:
        cells |= {"ms a step": done and spread(run["seconds"], lambda seconds: f"{1e3 * seconds:.1f}")}
        cells |= {f"test {score}": done and spread(run["score"], lambda value: scored(value, score))}
    cells |= {
        "kB a step": done and f"{run['bytes'] / 1e3:.4g}",
        "staleness": stale and f"{stale['mean']:.2f}, at most {stale['max']}",
        "minibatches of each worker": done and ", ".join(map(str, run["turns"])),
    }
    return {head: text or None for head, text in cells.items()}


def scored(value, score):
    """A score as text."""
    return f"{value:.2f} %" if score == "accuracy" else f"{value:.4f}"


def spread(of, text):
    """A median with its range as text."""
    return f"{text(of['median'])} ({text(of['min'])} - {text(of['max'])})"
