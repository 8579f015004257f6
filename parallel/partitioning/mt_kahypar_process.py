"""The process of Mt-KaHyPar: `python mt_kahypar_process.py IN.npz OUT.npy`. It starts fast, as it imports no gridgrad."""

import sys

import mtkahypar
import numpy as np


def main(given, out):
    with np.load(given) as file:
        given = {name: file[name] for name in file.files}
    k, offsets, pins = int(given["k"]), given["offsets"].tolist(), given["pins"].tolist()
    mtkahypar.set_seed(int(given["seed"]))
    library = mtkahypar.initialize(1, False)  # one thread
    context = library.context_from_preset(getattr(mtkahypar.PresetType, str(given["preset"])))
    context.set_partitioning_parameters(k, float(given["epsilon"]), mtkahypar.Objective.KM1)
    context.set_individual_target_block_weights(given["limits"].tolist())
    context.logging = False
    nets = [pins[start:stop] for start, stop in zip(offsets[:-1], offsets[1:])]
    weights, costs = given["weights"].tolist(), given["costs"].tolist()
    graph = library.create_hypergraph(context, len(weights), len(nets), nets, weights, costs)
    if (given["fixed"] >= 0).any():
        graph.add_fixed_vertices(given["fixed"].tolist(), k)
    partition = graph.partition(context)
    if given["cycles"]:
        partition.improve_partition(context, int(given["cycles"]))
    np.save(out, np.array(partition.get_partition(), np.int64))


if __name__ == "__main__":
    main(*sys.argv[1:])
