"""What this project asks of its own partitions of VGG16, which is nothing that Eserol 2019 says."""

from gridgrad.experiments.papers.eserol2019 import vgg16
from gridgrad.experiments.papers.eserol2019.search import EVEN

MOST = {  # volumes that partitions should not exceed, by ranks
    "coarse": dict(zip(vgg16.RANKS, (15.4, 46, 243, 490, 970, 2000, 4350))),
    "fine": dict(zip(vgg16.RANKS, (15.4, 46, 230, 455, 780, 1270, 1960))),
}
SECONDS = {"coarse": 60, "fine": 30}  # of a search
REDUCTION = 80  # % over data parallelism in bytes, on average
TITLE = "What this project asks of its own partitions: no number of the thesis"


def rows(tables):
    """A row for each target that can be judged by these tables, those of `eserol2019.tables`."""
    found = []
    for grain in ("coarse", "fine"):
        if tables[grain]:
            found += of_grain(tables, grain)
    for row in tables["dense groups"]:
        if row["N"] == 128:
            found.append(target("N = 128, neurons in groups: max/avg", "at most 1.10", row["max/avg"], row["max/avg"] <= EVEN))
    return found


def of_grain(tables, grain):
    """Volumes, balance, seconds of a search, and the reduction over data parallelism."""
    ours, most = tables[grain], MOST[grain]
    volumes = {int(n): row["volume_melements"] for n, row in ours.items()}
    yield target(
        f"{grain}: volumes", f"at most {', '.join(f'{most[n]:g}' for n in volumes)}",
        ", ".join(f"{value:.4g}" for value in volumes.values()), all(value <= most[n] for n, value in volumes.items()),
    )  # fmt: skip
    even = max(row["max_over_avg"] for n, row in ours.items() if n != "128" or len(ours) == 1)
    yield target(f"{grain}: max/avg to N = 64", "at most 1.10", even, even <= EVEN)
    for row in tables["searches"]:  # each of one processor
        if (row["grain"], row["max/avg allowed"]) == (grain, 1.1):
            seconds, most = max(value for name, value in row.items() if name.startswith("N =") and value), SECONDS[grain]
            yield target(f"{grain}: seconds of a search on {row['on']}", f"at most {most}", seconds, seconds <= most)
    less = tables["5.14"][-1][f"our {grain} one: reduction, %"]
    if less is not None:
        yield target(f"{grain}: mean reduction over data parallelism, %", f"at least {REDUCTION}", less, less >= REDUCTION)


def target(what, asked, ours, met):
    return {"what": what, "asked": asked, "ours": ours, "met": met}
