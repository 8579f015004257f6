"""In which collective or message this process is: what a watchdog, which runs in a thread of its own, can know of a rank.

There is one record for a process. A tally keeps it, through which all communication that is counted passes, and `waiting.py`.
"""

_open: list[tuple] = []  # (group, layer, kind) of each one that this process has entered and not left, the innermost last
_entered = 0  # how many it has entered so far


def enter(group, layer, kind):
    """Note that this process enters a collective, or waits for a message. `leave` must follow."""
    global _entered
    _entered += 1
    _open.append((group, layer, kind))


def leave():
    """Note that this process leaves the one that it entered last."""
    _open.pop()


def innermost():
    """((group, layer, kind) of the one in which this process is, or None; how many it has entered so far)."""
    return (_open[-1] if _open else None), _entered
