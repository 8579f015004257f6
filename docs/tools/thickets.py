"""The runs of a study in one Thicket: `python docs/tools/thickets.py FILE.json`, a file of `gridgrad sweep --export hatchet`.

Prints the median milliseconds of each node of the call trees, a column a grid.
"""

import argparse
import json
from pathlib import Path


def together(path):
    """The Thicket of all runs in a file, with what is known of each as its metadata."""
    import pandas
    from hatchet import GraphFrame
    from thicket import Thicket

    found = []
    for number, run in enumerate(json.loads(Path(path).read_text())):  # the number tells runs apart that took the same time
        one = Thicket.thicketize_graphframe(GraphFrame.from_literal(run["graph"]), f"run {number}")
        one.metadata = pandas.DataFrame([run["metadata"]], index=pandas.Index(one.profile, name="profile"))
        found.append(one)
    return Thicket.concat_thickets(found, disable_tqdm=True)


def main():
    parser = argparse.ArgumentParser(description="Print where the time of a step goes, on each grid.")
    parser.add_argument("trees", metavar="FILE.json", help="what gridgrad sweep --export hatchet wrote")
    thicket = together(parser.parse_args().trees)
    rows = thicket.dataframe.reset_index().merge(thicket.metadata.reset_index(), on="profile")
    rows["node"] = rows["node"].map(lambda node: " > ".join(one.frame["name"] for one in node.path()[-2:]))
    table = 1e3 * rows.pivot_table(index="node", columns="grid", values="time (inc)", aggfunc="median", sort=False)
    print(table.sort_index(axis="columns").round(4).to_string())


if __name__ == "__main__":
    main()
