"""Neural networks from scratch in NumPy and MPI, trained on process grids.

`gridgrad.nn` and `gridgrad.parallel` are for programs of your own, `gridgrad.datasets` reads published data sets and your own
tables and images, and `gridgrad.experiments` are the programs of the command `gridgrad`.
"""

from importlib.metadata import version

__version__ = version("gridgrad")
