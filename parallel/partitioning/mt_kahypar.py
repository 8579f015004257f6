"""Partitions of hypergraphs by Mt-KaHyPar (Gottesbüren et al.), which is installed with `pip install mtkahypar`. It runs in a
process of its own, this file without the rest of gridgrad, because it ends its process when something goes wrong. Its weights
and costs are 32 bits wide, so larger ones are scaled down; what it returns is checked with the exact ones."""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np

PRESETS = "DETERMINISTIC", "HIGHEST_QUALITY"  # the second takes longer and is often better
LARGEST = 1 << 30  # what the sum of all weights may be in the library, and that of all costs in all parts
PROCESS = Path(__file__)  # python mt_kahypar.py IN.npz OUT.npy


class Overfilled(ValueError):
    """A partition has a part with too much work. parts: the partition."""

    def __init__(self, words, parts):
        super().__init__(words)
        self.parts = parts


class NotInstalled(ValueError):
    """There is no Mt-KaHyPar."""


def partition(graph, k, epsilon=0.1, speeds=None, seed=0, preset="DETERMINISTIC", cycles=0, limit_s=600):
    """The part of each vertex, int64 (V,), so that the volume is small and no part has more work than `graph.limits` says.
    Equal arguments give the same partition. ValueError, also NotInstalled or Overfilled, for bad ones or if it fails."""
    limits, fixed = graph.limits(k, epsilon, speeds)
    if k == 1:
        return np.zeros(graph.vertices, np.int64)
    if find_spec("mtkahypar") is None:
        raise NotInstalled("hypergraphs are partitioned by Mt-KaHyPar, which is not installed: pip install mtkahypar")
    weights, scale = _scaled(graph.weights, LARGEST)
    costs, _ = _scaled(graph.costs, LARGEST // k)
    given = {"k": k, "epsilon": epsilon, "seed": seed, "preset": preset, "cycles": cycles, "offsets": graph.offsets,
             "pins": graph.pins, "weights": weights, "costs": costs, "limits": np.ceil(limits / scale).astype(int),
             "fixed": fixed}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gridgrad-") as folder:
        files = Path(folder, "in.npz"), Path(folder, "out.npy")
        np.savez(files[0], **given)
        try:
            command = [sys.executable, "-P", str(PROCESS), *map(str, files)]
            finished = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, errors="replace")
        except subprocess.TimeoutExpired:
            words = f"Mt-KaHyPar did not end within {limit_s:g} seconds: divide the work into fewer vertices"
            raise ValueError(words) from None
        if finished.returncode or not files[1].exists():
            lines = (finished.stderr or finished.stdout).strip().splitlines() or ["it said nothing"]
            raise ValueError(f"Mt-KaHyPar failed with status {finished.returncode}: {lines[-1][:200]}")
        parts = graph.check_parts(np.load(files[1]), k)
    filled = graph.part_weights(parts, k) / limits
    if filled.max() > 1.001:  # some more is due to the scale
        raise Overfilled(f"Mt-KaHyPar gave part {filled.argmax()} {filled.max() - 1:.1%} more work than is allowed: allow more "
                         "imbalance, or divide the work into more and smaller vertices", parts)  # fmt: skip
    return parts


def _scaled(numbers, largest):
    """(numbers whose sum is about `largest` at most, and the factor by which they are smaller, which is at least 1)."""
    scale = max(1, numbers.sum() / largest)
    return np.rint(numbers / scale).astype(int), scale


def main(given, out):
    """Partition the hypergraph of a file, and write the part of each vertex to another one."""
    import mtkahypar  # only here, where it may end the process

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
