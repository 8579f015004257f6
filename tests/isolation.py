"""What tests that share a process must leave as they found it.

The state that belongs to the process is put back: environment variables, NumPy's handling of floating-point errors and
its global random state, filters of warnings. What a test must put back itself is checked, and it fails if it did not:
attributes of modules and classes (`monkeypatch` undoes them), and communicators, of which MPICH has two thousand.
"""

import gc
import os
import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

PACKAGES = "nn", "parallel", "datasets", "experiments"
MOST = 5000  # more communicators than MPICH has


@contextmanager
def left_as_found():
    """Around a test. AssertionError if it leaves behind what would show in the next one."""
    environment, random_state = dict(os.environ), np.random.get_state()
    attributes, communicators = attributes_of_modules(), communicators_in_use()
    try:
        with np.errstate(), warnings.catch_warnings():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        np.random.set_state(random_state)
    gc.collect()
    changed = [name for name, value in attributes_of_modules().items() if attributes.get(name, value) is not value]
    assert not changed, f"the test leaves {', '.join(changed)} changed: set them with monkeypatch"
    leaked = communicators_in_use() - communicators
    assert leaked <= 0, f"the test leaves {leaked} communicators behind: free its grids"


def attributes_of_modules():
    """{name: value} of all attributes of our modules, and of the classes in them, that no code sets once it is imported."""
    found = {"time.perf_counter": time.perf_counter}
    for module_name, module in list(sys.modules.items()):
        if module is not None and module_name.split(".")[0] in PACKAGES:
            for name, value in list(vars(module).items()):
                if name.startswith("_") and not callable(value):
                    continue  # a module's own state, such as the device in use
                found[f"{module_name}.{name}"] = value
                if isinstance(value, type) and value.__module__ == module_name:
                    found |= {f"{module_name}.{name}.{key}": inner for key, inner in list(vars(value).items())}
    return found


def communicators_in_use():
    """A number that grows by one with each communicator that this rank holds."""
    if MPI.get_vendor()[0] == "Open MPI":  # which gives the lowest free number to a new one
        probe = MPI.COMM_SELF.Dup()
        number = probe.py2f()
        probe.Free()
        return number
    return MOST - communicators_left()


def communicators_left():
    """How many more communicators the library gives this rank, at most MOST. Some milliseconds."""
    made = []
    try:
        while len(made) < MOST:
            made.append(MPI.COMM_SELF.Dup())
    except MPI.Exception:
        pass
    for comm in made:
        comm.Free()
    return len(made)
