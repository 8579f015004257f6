"""What is known of faults."""

import json

UNDECIDED = "undecided"  # not noticed by the quick tests


class State:
    """The last trial of each fault: a file of JSON lines, to which a line is added with each one. path: of the file.

    trials: {key of a fault: its last trial}.
    """

    def __init__(self, path):
        lines = path.read_text().splitlines() if path.exists() else []
        self.path, self.trials = path, {one["fault"]: one for one in map(json.loads, lines) if "fault" in one}

    def add(self, trial):
        self.trials[trial["fault"]] = trial
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as file:
            file.write(json.dumps(trial) + "\n")

    def result(self, fault):
        """The result of the last trial of a fault; None if there was none."""
        return self.trials.get(fault.key, {}).get("result")

    def is_settled(self, fault, code, quick=False):
        """Whether a fault need not be tried again: it was found, or survived with this code and these tests.

        quick: whether it only need not be tried again with the quick tests.
        """
        same = code == self.trials.get(fault.key, {}).get("code")
        return self.result(fault) in ("found", "unimportable", *(("survived", UNDECIDED)[: 1 + quick] if same else ()))
