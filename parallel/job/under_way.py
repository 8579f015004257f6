"""In which collective or message this process is: what a watchdog, which runs in a thread of its own, can know of a rank.

There is one record for a process, kept by the calls that a tally counts (`parallel/grid/tally.py`) and by `waiting.py`.
"""

from types import SimpleNamespace

# calls: those that this process has entered and not left, with `group`, `layer` and `kind`, the innermost last.
# entered: how many it has entered so far.
here = SimpleNamespace(calls=[], entered=0)
