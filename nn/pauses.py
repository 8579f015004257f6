"""Moments within the work of a layer at which something else may have its turn: what is under way elsewhere, say."""


class Pauses:
    """Called between two pieces of work. action: what is done then; None: nothing."""

    action = None

    def __call__(self):
        if self.action:
            self.action()


pause = Pauses()  # of this process, which does one thing at a time
