"""Neural networks from scratch in NumPy and MPI, trained on process grids.

`gridgrad.nn` and `gridgrad.parallel` are for programs of your own, `gridgrad.datasets` reads published data sets and your own
tables and images, and `gridgrad.experiments` are the programs of the command `gridgrad`.
"""


def __getattr__(name):
    if name != "__version__":
        raise AttributeError(f"module 'gridgrad' has no attribute '{name}'")
    from importlib.metadata import version  # which takes longer to import than all else here

    return version("gridgrad")
