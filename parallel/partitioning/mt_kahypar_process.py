"""The process of Mt-KaHyPar: `python mt_kahypar_process.py IN.npz OUT.npy`. It starts fast, as it imports no gridgrad."""

import sys
from itertools import pairwise

import mtkahypar
import numpy as np


def main(given, out):
    with np.load(given) as file:
        given = {name: file[name].tolist() for name in file.files}
    mtkahypar.set_seed(given["seed"])
    library = mtkahypar.initialize(1, False)  # one thread
    context = library.context_from_preset(getattr(mtkahypar.PresetType, given["preset"]))
    context.set_partitioning_parameters(given["k"], given["epsilon"], mtkahypar.Objective.KM1)
    context.set_individual_target_block_weights(given["limits"])
    context.logging = False
    nets = [given["pins"][start:stop] for start, stop in pairwise(given["offsets"])]
    graph = library.create_hypergraph(context, len(given["weights"]), len(nets), nets, given["weights"], given["costs"])
    if max(given["fixed"]) >= 0:
        graph.add_fixed_vertices(given["fixed"], given["k"])
    partition = graph.partition(context)
    if given["cycles"]:
        partition.improve_partition(context, given["cycles"])
    np.save(out, np.array(partition.get_partition(), np.int64))


if __name__ == "__main__":
    main(*sys.argv[1:])
