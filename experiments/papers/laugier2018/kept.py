"""Kept results of two studies on Laugier et al. 2018: steps on several hosts, and the search over assumptions."""

from pathlib import Path

from gridgrad.experiments.papers import other_results

FOLDER = Path("results/laugier2018")


def path(name):
    """The file of a study, "hosts" or "search"."""
    return str(FOLDER / f"{name}.json")


def of(name, choose):
    """(what a function finds in the report of a study, ""), or (None, a sentence why there is nothing)."""
    found, why_not = other_results.kept(path(name), choose)
    return found, why_not and f"Nothing is kept: {why_not}."


def where(report):
    """On which processor and which hosts a report was measured."""
    return f"{report['versions']['processor']}, {report['link']}"


def origin():
    """The words for the source of what was measured on hosts: the file and the processor."""
    words, why_not = of("hosts", lambda report: other_results.where(path("hosts"), report["versions"]))
    return words or path("hosts")
