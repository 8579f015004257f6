"""Random networks, trained in random ways, and what is true of all of them.

A Case (`case.py`) is a network (`layers.py`) and a way to train it: a grid, a plan, shares, owners, a pipeline, a reduction, an
optimizer. It is a plain value, which follows from a seed, and prints itself as the expression that makes it. `every.py` has the
table of what is checked. The tests here check a few hundred cases with fixed seeds, and all cases that ever failed
(`found.py`). Serial networks, drawn with more options (`wider.py`), are also compared with PyTorch's (`pytorch.py`). This
checks fresh ones for half an hour, and makes each one that fails as small as it can (`shrink.py`):

    python -m tests.random_networks --seed 7 --minutes 30
"""
