"""Neural networks from scratch in NumPy and MPI, trained on process grids.

`load` gives a network that was trained, and `save` keeps one of a script's own. `gridgrad.nn` and `gridgrad.parallel` are for
programs of your own, `gridgrad.datasets` reads published data sets and your own tables and images, and `gridgrad.experiments`
are the programs of the command `gridgrad`.
"""


def __getattr__(name):
    if name in ("load", "save"):
        from gridgrad import parallel

        return getattr(parallel, name)
    if name != "__version__":
        raise AttributeError(f"module 'gridgrad' has no attribute '{name}'")
    from importlib.metadata import version  # which takes longer to import than all else here

    return version("gridgrad")
