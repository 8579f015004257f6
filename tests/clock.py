"""A clock for tests of what depends on time: it goes on by what is slept, and by what a test says."""


class Clock:
    """Stands for the module `time`, or for one of its clocks, such as `clock.perf_counter`. now: its time in seconds.

    tick: by which it goes on whenever somebody looks, where times must not be equal. naps: what was slept so far.
    """

    def __init__(self, now=0.0, tick=0.0):
        self.now, self.tick, self.naps = now, tick, []

    def monotonic(self):
        self.now += self.tick
        return self.now

    perf_counter = time = monotonic

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds
