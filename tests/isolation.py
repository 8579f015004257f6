"""What tests that share a process must leave as they found it.

The state that belongs to the process is put back: environment variables, NumPy's handling of floating-point errors and
its global random state, filters of warnings, the table of kernels. What a test must put back itself is checked, and it fails
if it did not: attributes of modules and classes (`monkeypatch` undoes them), and communicators, of which MPICH has two
thousand.
"""

import gc
import os
import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from gridgrad.nn.kernels import kernel_table

MOST = 5000  # communicators: more than MPICH has
SOME = 100  # more than the gaps that a test leaves in the numbers of the communicators


class LeftBehind(Exception):
    """What a test has left behind that would show in the next one."""


@contextmanager
def left_as_found():
    """Around a test. Raises LeftBehind."""
    environment, random_state = dict(os.environ), np.random.get_state()
    table = kernel_table.kernels()
    attributes, communicators = attributes_of_modules(), communicators_in_use()
    try:
        with np.errstate(), warnings.catch_warnings():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        np.random.set_state(random_state)
        kernel_table.use(table)
    gc.collect()
    changed = changes(attributes, attributes_of_modules())
    if changed:
        raise LeftBehind(f"the test leaves {', '.join(changed)} changed: set them with monkeypatch")
    leaked = communicators_in_use() - communicators
    if leaked > 0:
        raise LeftBehind(f"the test leaves {leaked} communicators behind: free its grids")


def changes(before, after):
    """The names of what differs. before, after: what `attributes_of_modules` returned; modules may be imported in between."""
    rows = [name for name in before.keys() ^ after.keys() if name.endswith("]") and name.rpartition("[")[0] in before]
    return sorted(rows + [name for name, value in after.items() if before.get(name, value) is not value])


def attributes_of_modules():
    """{name: value} of all attributes of our modules, and of the classes in them, that no code sets once it is imported.

    Of the tables among them, which are dicts, also each row.
    """
    found = {"time.perf_counter": time.perf_counter}
    for module_name, module in list(sys.modules.items()):
        if module is not None and module_name.split(".")[0] == "gridgrad":
            for name, value in list(vars(module).items()):
                if name.startswith("_") and not callable(value):
                    continue  # a module's own state, such as the device in use
                found[f"{module_name}.{name}"] = value
                if isinstance(value, dict):
                    found |= {f"{module_name}.{name}[{key!r}]": row for key, row in list(value.items())}
                if isinstance(value, type) and value.__module__ == module_name:
                    found |= {f"{module_name}.{name}.{key}": inner for key, inner in list(vars(value).items())}
    return found


def communicators_in_use():
    """A number that grows by one with each communicator that this rank holds. Takes some milliseconds."""
    open_mpi = MPI.get_vendor()[0] == "Open MPI"
    made = duplicates(SOME if open_mpi else MOST)
    # Open MPI gives the lowest free number to a new one, and first fills the gaps. MPICH comes to its end.
    number = made[-1].py2f() if open_mpi else -len(made)
    for comm in made:
        comm.Free()
    return number


def duplicates(most):
    """So many communicators, or as many as the library gives this rank."""
    made = []
    try:
        while len(made) < most:
            made.append(MPI.COMM_SELF.Dup())
    except MPI.Exception:
        pass
    return made
