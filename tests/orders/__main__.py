"""python -m tests.orders: explore all orders of messages, and print a table; exit status 1 if one of them breaks a promise.

python -m tests.orders
python -m tests.orders server:asp:single --workers 3 --updates 1
python -m tests.orders server:asp:single --workers 3 --updates 1 --replay 0,2,1
"""

import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("GRIDGRAD_KERNELS", "plain")  # so that nothing is measured


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
    sys.exit(table([Row(" ".join(sys.argv[1:]))] if case else rows()))


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


def table(rows):
    """Explore cases and print a line for each. Returns the exit status."""
    failed, began, width = 0, time.monotonic(), max(len(row.line) for row in rows) + 1
    print(f"{'case':{width}}{'orders':>8}{'cut':>7}{'all':>8}{'results':>9}{'violations':>12}{'seconds':>9}", flush=True)
    for row in rows:
        start = time.monotonic()
        found, every, wrong = row.explored()
        print(f"{row.line:{width}}{found.orders:8}{found.redundant:7}{every.orders if every else '-':>8}{len(found.results):9}"
              f"{len(wrong):12}{time.monotonic() - start:9.1f}", flush=True)  # fmt: skip
        for lines in wrong:
            print("    " + lines.replace("\n", "\n    "), flush=True)
        failed += bool(wrong)
    print(f"{len(rows)} cases, {failed} with violations, {time.monotonic() - began:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    main()
