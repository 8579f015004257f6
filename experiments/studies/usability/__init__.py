"""What making a training parallel costs its author: by our one call, by hand with mpi4py, with PyTorch.

`serial.py` and `torch_serial.py` are the trainings that a user has; each other program is one of them made parallel, prints
the same losses on any number of ranks (every rank prints, in all of them), and is measured by what it adds.
"""
