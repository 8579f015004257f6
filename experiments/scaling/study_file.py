"""The file of a sweep while the sweep runs: what it has already, and each new run as soon as it is done.

What the file has of other settings, other code or another machine does not compare with the study. It lies in FILE.others,
from where it comes back when the sweep is again as it was. However the sweep ends, each run is in one of the two files, or for
a moment in both, which counts once.
"""

import sys
from contextlib import contextmanager
from pathlib import Path

from gridgrad.experiments.common.options import user_input
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.scaling import records
from gridgrad.experiments.scaling.order import BUSY, by_point, settled
from gridgrad.nn.files.whole_files import Lock, resolved


class StudyFile:
    """The records of a Study in a file. path: of the file. environment: what `environment.here` returned.

    anew: whether runs that are there already are measured again. Each is kept until the new run with its number is there.

    runs: the records that count, in the order in which they were measured. Points that failed, or of which all runs that were
    allowed were beside other programs, are tried again.
    """

    def __init__(self, path, study, environment, anew=False):
        self.path, self.others_path, self.study = Path(path), Path(f"{path}.others"), study
        with user_input():
            here, beside = records.read(self.path), records.read(self.others_path)
        mine, self.predicted, others = records.of_study(here + beside, study, environment)
        mine = [record for record in mine if not record.get("failed")]
        again = {key for key, records_of in by_point(mine).items() if anew or settled(records_of, study) == BUSY}
        self.replaced = [record for record in mine if records.key_of(record) in again]
        self.runs = [record for record in mine if records.key_of(record) not in again]
        if here or beside:
            back, _, _ = records.of_study(beside, study, environment)
            is_ours = beside or others  # else what may be at FILE.others has no records, and is somebody else's
            if is_ours:
                self._write_others(others + back)  # none of these is only in memory while the other file is written
            self._write()
            if is_ours:
                self._write_others(others)

    def add(self, record):
        """Add a run that is done, in place of one with its number."""
        key = records.key_of(record), record["repeat"]
        self.runs[:] = [one for one in self.runs if (records.key_of(one), one["repeat"]) != key] + [record]
        self._write()

    def end(self):
        """Drop old runs of points that have been measured anew."""
        done = by_point(self.runs)
        self.replaced = [record for record in self.replaced if not settled(done.get(records.key_of(record), []), self.study)]
        self._write()  # also without runs, as where a sweep has more parts than points

    def _write(self):
        new = {(records.key_of(record), record["repeat"]) for record in self.runs}
        old = [record for record in self.replaced if (records.key_of(record), record["repeat"]) not in new]
        numbers = {point.key: number for number, point in enumerate(self.study.points)}
        measured = sorted(self.runs + old, key=lambda record: (numbers[records.key_of(record)], record["repeat"]))
        write_text(self.path, records.lines(measured + self.predicted))

    def _write_others(self, others):
        if others:
            write_text(self.others_path, records.lines(others))
        else:
            self.others_path.unlink(missing_ok=True)


@contextmanager
def locked(path):
    """Within it no other sweep writes the file `path`: see Lock. UserError if another one does so already."""
    with user_input():
        lock = Lock(f"{resolved(path)}.lock", f"another sweep writes {path}", "wait for its end, or give another --out")
    if lock.note:
        print(lock.note, file=sys.stderr)
    with lock:
        yield
