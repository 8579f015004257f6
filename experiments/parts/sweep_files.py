"""The files in which sweeps keep their reports, a line of JSON each: the runs that are done, and those of many jobs together.

A run is known by its network, its grid, the number of its repeat, and the settings that matter to a single run. Where a job was
killed or a disk was full a file may end in half a line, which counts as not written.
"""

import json
import os
from pathlib import Path

from gridgrad.nn.files.json_forms import COUNT, TEXT, check
from gridgrad.nn.files.json_text import content_of
from gridgrad.nn.kernels.processor import processor

LISTS = "nets", "grids", "ranks", "schemes", "repeats"  # settings that say which runs there are, and not how one goes
ELSEWHERE = "data_dir"  # the same data may be in another folder of another machine
REPORT = {"net": TEXT, "settings": {"grid": TEXT}, "repeat": COUNT, "sweep": {}}  # what `name_of` needs
REMEDY = "give another --out, or delete it"


def here():
    """What a run is measured on: the processor, and the BLAS threads of a rank that were asked for."""
    return {"processor": processor().title, "threads": os.environ.get("OMP_NUM_THREADS")}


def read(path):
    """The reports in a file of a sweep, in their order; none if there is no such file.

    ValueError, which names the file and the line, if a line that is not the last one is no report of a sweep.
    """
    path = Path(path)
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    reports = []
    for number, line in enumerate(lines, 1):
        try:
            report = content_of(line)
            check(report, REPORT)
        except ValueError as error:
            if number == len(lines):  # behind the last line break: nothing, or half a line
                break
            raise ValueError(f"{path}, line {number}, is no report of a sweep ({error}): {REMEDY}") from None
        reports.append(report)
    return reports


def how(settings):
    """The settings of a sweep that matter to a single run, as a text."""
    return json.dumps({k: v for k, v in settings.items() if k not in LISTS and k != ELSEWHERE}, sort_keys=True)


def name_of(report):
    """(network, grid, repeat, settings) by which the run of a report is known."""
    return report["net"], report["settings"]["grid"], report["repeat"], how(report["sweep"])


def done(reports, settings):
    """{(net, grid, repeat): report} of the reports with these settings from a machine like this one."""
    same = [report for report in reports if how(report["sweep"]) == how(settings) and report.get("machine") == here()]
    return {name_of(report)[:3]: report for report in same}


def part_name(path, part):
    """The file of one part of a sweep: `results/s-2-of-4.jsonl` for `results/s.jsonl` and the part (2, 4)."""
    path = Path(path)
    return path.with_name(f"{path.stem}-{part[0]}-of-{part[1]}{path.suffix}")


def gather(paths):
    """The reports of several files, each run once; ValueError if two files disagree about a run, or one holds nothing."""
    found = {}
    for path in paths:
        if not Path(path).exists():
            raise ValueError(f"there is no file {path}: name the files that sweeps have written")
        reports = read(path)
        if not reports:
            raise ValueError(f"{path} holds no report: leave it out")
        for report in reports:
            name = name_of(report)
            earlier, origin = found.setdefault(name, (report, path))
            if earlier != report:
                net, grid, repeat, _ = name
                raise ValueError(f"{origin} and {path} disagree about {net} on {grid}, repeat {repeat}: leave one of them out")
    return [report for report, _ in found.values()]


def lines(reports):
    """The text of a file with these reports."""
    return "".join(json.dumps(report) + "\n" for report in reports)
