"""python -m tests.orders: explore all orders of messages, and print a table; exit status 1 if one of them breaks a promise.

python -m tests.orders
python -m tests.orders server:asp:single --workers 3 --updates 1
python -m tests.orders server:asp:single --workers 3 --updates 1 --replay 0,2,1
"""

import os
import platform
import sys
import time
from datetime import date
from importlib.metadata import version

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("GRIDGRAD_KERNELS", "plain")  # so that nothing is measured

HEAD = """# Every order of messages

`python -m tests.orders --out orders.md` executes the code of update protocols, asynchronous pipelines and the commit of
checkpoints in every order of their messages that differs. *Orders*: how many those are. *Cut*: that were begun and turned out
to be another one's. *All*: how many there are if also orders are tried that differ only by exchanging what does not depend on
each other; that those lead to nothing else is compared. *Results*: what the orders lead to, several where the staleness of
gradients, a death, a kill or a signal may differ. `--dies` and `--kill` say that a worker, or the job, may die at any moment.
"""


def main():
    from tests.orders.cases import Row, case_of, parser, rows

    args = parser().parse_args()
    try:
        case = args.protocol and case_of(args)
    except ValueError as error:
        parser().error(str(error))
    if args.replay is not None:
        if not case:
            parser().error("name the case that is to be replayed")
        sys.exit(once(case, args.replay))
    sys.exit(table([Row(" ".join(sys.argv[1:]))] if case else rows(), args.out))


def once(case, choices):
    """Execute a case in one order and say what happens. Returns the exit status."""
    from tests.orders.machine import Violation
    from tests.orders.replay import replay

    try:
        found = replay(case, choices, print)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"violation: {found}" if isinstance(found, Violation) else f"no promise is broken; it leads to {found}")
    return int(isinstance(found, Violation))


def table(rows, out=None):
    """Explore cases and print a line for each. out: a file for the table, or None. Returns the exit status."""
    failed, began, width, lines = 0, time.monotonic(), max(len(row.line) for row in rows) + 1, []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    say(f"{'case':{width}}{'orders':>8}{'cut':>7}{'all':>8}{'results':>9}{'violations':>12}{'seconds':>9}")
    for row in rows:
        start = time.monotonic()
        found, every, wrong = row.explored()
        say(f"{row.line:{width}}{found.orders:8}{found.redundant:7}{every.orders if every else '-':>8}{len(found.results):9}"
            f"{len(wrong):12}{time.monotonic() - start:9.1f}")  # fmt: skip
        for lines_of_one in wrong:
            say("    " + lines_of_one.replace("\n", "\n    "))
        failed += bool(wrong)
    say(f"{len(rows)} cases, {failed} with violations, {time.monotonic() - began:.0f} s")
    if out:
        text = "\n".join(lines)
        out.write_text(f"{HEAD}\n{machine()}\n\n```\n{text}\n```\n")
    return int(failed > 0)


def machine():
    """Where the table was made, in a line."""
    from gridgrad.nn.kernels.processor import processor

    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "mpi4py"))
    return f"{date.today().isoformat()}, {processor().title}, Python {platform.python_version()}, {versions}, {sys.platform}."


if __name__ == "__main__":
    main()
