"""python -m tests.mutants: put faults into a copy of the code, one at a time, and see whether the tests notice them.

    make mutants
    python -m tests.mutants --kind field --folder nn
    python -m tests.mutants --kind mechanical --sample 350 --seed 1

Exit status 1 if a fault has survived. A run that is interrupted goes on where it was; faults that have survived are tried again
when the code or the tests have changed.
"""

import argparse
import queue
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.mutants import mechanical, report
from tests.mutants.faults import MECHANICAL, ROOT, listed
from tests.mutants.ladder import Ladder
from tests.mutants.report import UNDECIDED
from tests.mutants.trials import Trials, Unusable, digest, files_of, is_code, new_copy

RESULTS = ROOT / "results"


def main():
    parser = argparse.ArgumentParser(prog="mutants", description="Put faults into the code and see whether tests notice them.")
    parser.add_argument("--kind", action="append", metavar="KIND", help="only faults of this kind: mechanical, or the name of "
                        "a file tests/mutants/KIND.toml that lists them; may be given several times")  # fmt: skip
    parser.add_argument("--folder", action="append", metavar="FOLDER", help="only faults of this folder, such as parallel/sync")
    parser.add_argument("--only", metavar="TEXT", help="only faults whose file, text or replacement contains this")
    parser.add_argument("--sample", type=int, default=350, metavar="N", help="how many mechanical faults (default: 350)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample and of the order (default: 1)")
    parser.add_argument("--first", type=int, metavar="N", help="stop after so many faults")
    parser.add_argument(
        "--quick", action="store_true", help="leave out the further tests, for what the quick ones do not notice"
    )
    parser.add_argument("--jobs", type=int, default=1, choices=(1, 2), help="faults tried at a time (default: 1)")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--state", type=Path, default=RESULTS / "mutants.jsonl", metavar="FILE", help="what is known of faults")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "mutants.md", metavar="FILE", help="the report on a run of all kinds"
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing is left behind
    try:
        every = all_faults(args.kind, args.sample, args.seed)
        wanted = chosen(every, args)
        texts = {fault.file: (ROOT / fault.file).read_text() for fault in every}
        if args.list:
            for fault in wanted:
                print(f"{fault.file}:{fault.line(texts[fault.file])}: {fault.what}")
            sys.exit()
        state, equivalent = report.State(args.state), mechanical.unnoticed_ones()
        try:
            try_all([fault for fault in wanted if fault.key not in equivalent], state, args)
        finally:
            if not args.kind:
                report.write(args.out, every, state, equivalent, texts)
    except (ValueError, Unusable) as error:
        print(f"mutants: {error}", file=sys.stderr)
        sys.exit(2)
    survived = [fault for fault in wanted if fault.key not in equivalent and state.result(fault) in ("survived", UNDECIDED)]
    print(f"{len(survived)} of {len(wanted)} were not found" + f": see {args.out}" * (not args.kind))
    sys.exit(bool(survived))


def all_faults(kinds, number, seed):
    """All faults of some kinds, by default of all. ValueError for an unknown kind."""
    found = listed()
    known = {MECHANICAL, *(fault.kind for fault in found)}
    if unknown := set(kinds or ()) - known:
        raise ValueError(f"there is no kind {sorted(unknown)[0]}: there are {', '.join(sorted(known))}")
    if not kinds or MECHANICAL in kinds:
        found += mechanical.sample(number, seed)
    return [fault for fault in found if not kinds or fault.kind in kinds]


def chosen(faults, args):
    """Those of some faults that the options ask for, in an order that mixes the folders. ValueError if there are none."""
    found = [
        fault for fault in sorted(faults, key=lambda fault: fault.key)
        if (not args.folder or fault.file.rpartition("/")[0] in args.folder)
        and (not args.only or any(args.only in text for text in (fault.file, fault.old, fault.new, fault.what)))
    ]  # fmt: skip
    if not found:
        raise ValueError("there are no such faults")
    return found[: args.first]


def try_all(faults, state, args):
    """Try the faults that are not settled, all with the quick tests first. Unusable if tests fail without any."""
    files = files_of(ROOT)
    ladder, lock = Ladder(ROOT, files), threading.Lock()
    code = digest(ROOT, filter(is_code, files))
    helpers = digest(ROOT, (name for name in files if is_code(name) and name not in ladder.tests))
    checksums = {path: f"{helpers} {digest(ROOT, [path])}" for path in ladder.tests}
    seconds = {test: took for (test, of), took in state.seconds.items() if checksums.get(test.partition("::")[0]) == of}

    def passed(test, took):
        with lock:
            seconds[test] = took
            state.add({"test": test, "code": checksums[test.partition("::")[0]], "seconds": round(took, 1)})

    with ExitStack() as stack:
        copies = [stack.enter_context(new_copy(ROOT, files)) for _ in range(args.jobs)]
        trials = [Trials(copy, seconds, passed, say) for copy in copies]
        for quick in (True,) if args.quick else (True, False):
            left = [fault for fault in faults if not state.is_settled(fault, code, quick)]
            say(f"{len(left)} of {len(faults)} faults are to be tried with {'quick' if quick else 'further'} tests")
            progress = Progress(state, code, UNDECIDED if quick else "survived", len(left), lock)
            beside_each_other(trials, [(fault, ladder.rungs(fault)[0 if quick else 1]) for fault in left], progress.note)


def say(line):
    print(line, flush=True)


class Progress:
    """Notes what becomes of faults. state: a State. code: a checksum. unnoticed: what to call a fault that no test has noticed.
    left: how many faults there are. lock: held while something is noted."""

    def __init__(self, state, code, unnoticed, left, lock):
        self.state, self.code, self.unnoticed, self.left, self.lock = state, code, unnoticed, left, lock
        self.begin, self.tried = time.monotonic(), 0

    def note(self, fault, outcome):
        result = self.unnoticed if outcome.result == "unnoticed" else outcome.result
        with self.lock:
            self.state.add({"fault": fault.key, "code": self.code, "file": fault.file, "what": fault.what, "result": result,
                            "by": outcome.by, "seconds": round(outcome.seconds, 1)})  # fmt: skip
            self.tried += 1
            each = (time.monotonic() - self.begin) / self.tried
            say(f"{self.tried}/{self.left} {result:9} {outcome.seconds:5.0f} s {fault.file}: {fault.what} {outcome.by} "
                f"({each:.0f} s each, {each * (self.left - self.tried) / 60:.0f} min left)")  # fmt: skip


def beside_each_other(trials, tasks, note):
    """Try faults, as many at a time as there are Trials. tasks: (fault, rungs). note: called as note(fault, outcome)."""
    waiting, failed = queue.SimpleQueue(), []
    for task in tasks:
        waiting.put(task)

    def work(one):
        while not failed:
            try:
                fault, rungs = waiting.get_nowait()
                note(fault, one.of(fault, rungs))
            except queue.Empty:
                return
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in trials]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        for one in trials:
            one.copy.stop()
        for thread in threads:
            thread.join()
        raise
    if failed:
        raise failed[0]


if __name__ == "__main__":
    main()
