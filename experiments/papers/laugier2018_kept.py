"""Kept results of two studies on Laugier et al. 2018: steps on several hosts, and the search over assumptions."""

from pathlib import Path

from gridgrad.nn.json_text import UNFIT, content_of_file

FOLDER = Path("results/laugier2018")
ENTRIES = {  # what a row of each study has
    "hosts": {"hidden layers", "model size", "grid", "speedup", "predicted speedup"},
    "search": {"model size", "grid", "logged speedup", "predicted speedup"},
}


def path(name):
    """The file of a study, "hosts" or "search"."""
    return str(FOLDER / f"{name}.json")


def report(name):
    """(the content of the file, ""), or (None, why there is none)."""
    file = FOLDER / f"{name}.json"
    if not file.exists():
        return None, f"There is no {file} yet: the study laugier2018-{name} writes it."
    try:
        found = content_of_file(file)
        fits = all(ENTRIES[name] <= row.keys() for row in found["rows" if name == "hosts" else "logs"])
        return (found, "") if fits else (None, f"{file} holds something else: measure again.")
    except UNFIT as error:
        return None, f"{file} holds no results of this study ({type(error).__name__})."


def where(found):
    """On which processor and which hosts a report was measured; empty without one."""
    return f"{found['versions']['processor']}, {found['link']}" if found else ""


def conclusion():
    """What the search says, in a paragraph; empty without its results."""
    found, _ = report("search")
    return found["conclusion"] if found else ""


def speedups_on_hosts(size):
    """{hidden layers: {grid: median speedup over one rank}} of a model size on hosts, and where; both empty without results."""
    found, _ = report("hosts")
    rows = {}
    for row in found["rows"] if found else ():
        if row["model size"] == size:
            rows.setdefault(row["hidden layers"], {})[row["grid"]] = row["speedup"]["median"]
    return rows, f"{path('hosts')}, {where(found)}" if rows else ""
