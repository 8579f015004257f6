"""In which collective or message this process is: what a watchdog, which runs in a thread of its own, can know of a rank.

There is one record for a process. A tally keeps it, through which all communication that is counted passes, and `waiting.py`.
"""

calls: list = []  # with `group`, `layer` and `kind`: those that this process has entered and not left, the innermost last
entered = 0  # how many it has entered so far
