"""Cases that failed once, made small: (check, Case), in the order in which they were found."""

from tests.random_networks.case import Case

FOUND = [
    # A branch that is not the last and hands on the gradient that it gets lost it.
    ("serial", Case(layers=[("Linear", 3), ("Concat", [], [("Linear", 2)])], shape=(2,))),
    ("serial", Case(layers=[("Conv2d", 2, 3), ("Concat", [("ReLU",)], [("Conv2d", 1)])], shape=(5, 4, 1))),
    ("serial", Case(layers=[("Linear", 3), ("Concat", [("Dropout", 0.5)], [("Linear", 2)], [])], shape=(2,))),
    ("training", Case(layers=[("Linear", 3), ("Concat", [], [("Linear", 2)])], shape=(2,), grid={"model": 2})),
    # Every rank computed the whole gradient of outputs that all of them had.
    ("training", Case(layers=[("Concat", [], [("Linear", 1), ("Tanh",)])], shape=(1,), grid={"model": 2}, plan=("out",))),
    ("training", Case(layers=[("Residual", [], [("Linear", 5), ("Tanh",)])], shape=(5,), grid={"batch": 2, "model": 2})),
    ("training", Case(layers=[("Residual", [], [("Linear", 5)]), ("ReLU",)], shape=(5,), grid={"model": 3}, plan="laugier")),
    # An asynchronous pipeline of a partition in which a rank has no work looped for ever.
    ("training", Case(layers=[("Linear", 2), ("Tanh",), ("Linear", 1)], shape=(3,), grid={"batch": 1, "model": 4},
                      plan="hypergraph", owners="coarse", pipeline="async:2:bound=0")),
    # The halo of the neighbouring channels was cut for the whole minibatch, beside batch in a pipeline.
    ("training", Case(layers=[("Linear", 5), ("LocalResponseNorm", 3, 0.3), ("Linear", 4)], shape=(3,),
                      grid={"batch": 2, "model": 2}, plan="hypergraph", owners="coarse", pipeline="gpipe")),
    # Branches without weights in front of the first weights have no gradients to keep.
    ("training", Case(layers=[("Residual", [], [("Tanh",)]), ("Linear", 5), ("Linear", 4)], shape=(3,), grid={"stage": 2},
                      pipeline="zb-h1", cuts=(2,))),
    ("training", Case(layers=[("Concat", [("Tanh",)], []), ("Linear", 5), ("Tanh",), ("Linear", 4)], shape=(3,),
                      grid={"stage": 2}, pipeline="zbv", cuts=(1, 2, 3), micro_batches=3)),
    # Gradients were priced that nobody needs: those in front of the first weights of a branch.
    ("predictions", Case(layers=[("Concat", [("Linear", 4)], [("Tanh",)]), ("Linear", 2)], shape=(6,), grid={"model": 2})),
    ("predictions", Case(layers=[("Tanh",), ("Residual", [("Conv2d", 2, 3, 1, 1)], []), ("Linear", 2)], shape=(6, 4, 2),
                         grid={"height": 2, "model": 2}, plan=("in",))),
    ("predictions", Case(layers=[("Tanh",), ("Residual", [("Linear", 3)], [("Linear", 2), ("Linear", 3)])], shape=(4,),
                         grid={"model": 2}, plan=("in", "out"), ranks_per_node=1)),
    # Branches of a partition that have no weights all pass on what every rank has.
    ("training", Case(layers=[("Concat", [], [("LeakyReLU", 0.5)]), ("Linear", 7)], shape=(11,), grid={"model": 3, "batch": 1},
                      plan="hypergraph", owners="coarse")),
    ("training", Case(layers=[("Concat", [("ReLU",), ("Linear", 3)], [])], shape=(4,), grid={"model": 2, "batch": 1},
                      plan="hypergraph", owners="fine")),
    # A checkpoint of a partition has blocks of some rows and some columns, which HDF5 does not select at once.
    ("resuming", Case(layers=[("SparseLinear", 7, True, 3), ("Tanh",), ("SparseLinear", 5, True, 4)], shape=(9,),
                      grid={"batch": 1, "model": 2}, plan="hypergraph", owners="coarse")),
    # A partition has nothing of a sparse layer without weights, and so has its checkpoint.
    ("resuming", Case(layers=[("Linear", 1), ("SparseLinear", 3, False, 76)], shape=(3,), grid={"batch": 1, "model": 2},
                      plan="hypergraph", owners="fine", seed=5)),
    # Ranks of an asynchronous pipeline had the same BatchNorm in front of the partition, and waited for each other to sum its
    # gradients.
    ("stale", Case(layers=3 * [("Tanh",), ("BatchNorm", 1e-5, 0.0), ("SparseLinear", 7, False, 32), ("Linear", 1)], shape=(5,),
                   grid={"model": 3}, plan="hypergraph", owners="layers", pipeline="async:2:bound=2", loss="mse",
                   batch_sizes=(5, 5, 5, 2), seed=695002)),
    # Copies of a redundant layer drifted apart, whose gradients were rounded with those of layers with blocks of other sizes.
    ("copies", Case(layers=[("Linear", 7), ("Tanh",), ("Linear", 5), ("Tanh",), ("Linear", 3)], shape=(3,),
                    grid={"batch": 2, "model": 2}, plan=("out", "redundant"), reduce_dtype="float16")),
    # Memory of the master's own kernels, and of their gradient, was not predicted; here there are no samples beside.
    ("predictions", Case(layers=[("Conv2d", 5, (2, 3), (1, 1), ((1, 0), (1, 1)), True), ("Conv2d", 6, (5, 3), (2, 1), 0, True)],
                         shape=(7, 2, 2), grid={"batch": 2, "model": 2}, plan="marques", shares={"batch": (0, 2)},
                         batch_sizes=(2, 7, 7), seed=586751)),
    # A rank without any weights left out a collective call of the norm of all gradients, which the others waited for.
    ("relocating", Case(layers=[("BatchNorm", 0.01, 1.0), ("Conv2d", 1, (1, 5), (1, 1), ((0, 0), (4, 0)), True)],
                        shape=(3, 3, 1), grid={"batch": 1, "model": 3}, plan="hypergraph", owners="fine", update="sharded",
                        optimizer=("adam", {"clip_norm": 1.0, "eps": 0.001}), batch_sizes=(2, 4, 4), seed=156897)),
    # A product of a fine partition was said to copy all inputs of its rank, not only its own.
    ("predictions", Case(layers=[("Linear", 7), ("Tanh",), ("Linear", 2)], shape=(7, 7, 3), grid={"batch": 1, "model": 3},
                         plan="hypergraph", owners="fine", batch_sizes=(3,), seed=1)),
]  # fmt: skip
