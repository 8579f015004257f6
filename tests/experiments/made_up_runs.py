"""Made-up measurements of `reproduce grabaskas2018`."""

from gridgrad.experiments.papers.grabaskas2018.runs import runs


def measured(seconds=lambda run: 2.0 / run.nodes, accuracy=lambda run: 50.0, wanted=None):
    """Made-up results of runs: those of a full measurement on 1 and 2 nodes, by default."""
    found = {}
    for run in wanted if wanted is not None else runs([1, 2], full=True):
        found[run.key] = {"seconds": seconds(run), "oversubscribed": run.nodes > 2, "processor": "a processor"}
        found[run.key] |= {"accuracy": accuracy(run)} if run.test else {}
    return found
