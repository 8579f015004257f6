"""python -m tests.mutants: put faults into a copy of the code, one at a time, and see whether the tests notice them.

    make mutants
    python -m tests.mutants --kind field --folder nn

Faults that survive are printed, and exit status 1 says that there are any. A run that is interrupted goes on where it was;
faults that have survived are tried again when the code or the tests have changed.
"""

import argparse
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from tests.mutants.faults import ROOT, listed
from tests.mutants.ladder import Ladder
from tests.mutants.state import UNDECIDED, State
from tests.mutants.trials import Unusable, digest, files_of, new_copy

STATE = ROOT / "results/mutants.jsonl"


def main():
    parser = argparse.ArgumentParser(prog="mutants", description="Put faults into the code and see whether tests notice them.")
    parser.add_argument("--kind", action="append", metavar="KIND", help="only faults of this kind: the name of a file "
                        "tests/mutants/KIND.toml that lists them; may be given several times")  # fmt: skip
    parser.add_argument("--folder", action="append", metavar="FOLDER", help="only faults of this folder, such as parallel/sync")
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults whose file, text or replacement contains this")
    parser.add_argument("--quick", action="store_true", help="leave out the further tests, if the quick ones notice nothing")
    parser.add_argument("--jobs", type=int, default=1, choices=(1, 2), help="faults tried at a time (default: 1)")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE", help="what is known of faults")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing is left behind
    try:
        wanted = chosen(args)
        texts = {fault.file: (ROOT / fault.file).read_text() for fault in wanted}
        if args.list:
            for fault in wanted:
                print(f"{fault.file}:{fault.line(texts[fault.file])}: {fault.what}")
            sys.exit()
        state = State(args.state)
        try_all(wanted, state, args)
    except (ValueError, Unusable) as error:
        print(f"mutants: {error}", file=sys.stderr)
        sys.exit(2)
    survived = [fault for fault in wanted if state.result(fault) in ("survived", UNDECIDED)]
    for fault in survived:
        text = texts[fault.file]
        print(f"{fault.file}:{fault.line(text)}: {fault.what}", *fault.diff(text), sep="\n")
    print(f"{len(survived)} of {len(wanted)} were not found")
    sys.exit(bool(survived))


def chosen(args):
    """The faults that the options ask for, in an order that mixes the folders. ValueError if there are none."""
    found, kinds = listed(), args.kind
    known = {fault.kind for fault in found}
    if unknown := set(kinds or ()) - known:
        raise ValueError(f"there is no kind {min(unknown)}: there are {', '.join(sorted(known))}")
    found = [
        fault for fault in sorted(found, key=lambda fault: fault.key)
        if (not kinds or fault.kind in kinds) and (not args.folder or fault.file.rpartition("/")[0] in args.folder)
        and any(args.only in text for text in (fault.file, fault.old, fault.new, fault.what))
    ]  # fmt: skip
    if not found:
        raise ValueError("there are no such faults")
    return found


def try_all(faults, state, args):
    """Try the faults that are not settled, all with the quick tests first. Unusable if tests fail without any."""
    files = files_of(ROOT)
    ladder, code, lock = Ladder(ROOT, files), digest(ROOT, files), Lock()
    with ExitStack() as stack:
        copies, free = [stack.enter_context(new_copy(ROOT, files)) for _ in range(args.jobs)], SimpleQueue()
        for copy in copies:
            free.put(copy)
        for quick in (True,) if args.quick else (True, False):
            left = [fault for fault in faults if not state.is_settled(fault, code, quick)]
            print(f"{len(left)} of {len(faults)} faults are tried with {'quick' if quick else 'further'} tests", flush=True)
            begin, tried = time.monotonic(), []

            def one(fault, quick=quick, left=left, begin=begin, tried=tried):
                copy = free.get()
                try:
                    outcome = copy.outcome(fault, ladder.rungs(fault)[0 if quick else 1])
                finally:
                    free.put(copy)
                result = outcome.result if outcome.result != "unnoticed" else UNDECIDED if quick else "survived"
                with lock:
                    state.add({"fault": fault.key, "code": code, "file": fault.file, "what": fault.what, "result": result,
                               "by": outcome.by, "seconds": round(outcome.seconds, 1)})  # fmt: skip
                    tried.append(fault)
                    minutes = (time.monotonic() - begin) / len(tried) * (len(left) - len(tried)) / 60
                    print(f"{len(tried)}/{len(left)} {result:9} {outcome.seconds:5.0f} s {fault.file}: {fault.what} "
                          f"{outcome.by} ({minutes:.0f} min left)", flush=True)  # fmt: skip

            with ThreadPoolExecutor(args.jobs) as pool:
                try:
                    list(pool.map(one, left))
                except BaseException:
                    for copy in copies:
                        copy.stopped.set()
                    pool.shutdown(cancel_futures=True)
                    raise


if __name__ == "__main__":
    main()
