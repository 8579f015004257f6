#!/usr/bin/env bash
# What has to be seen on a GPU, in at most six minutes: bash experiments/settings/gpu.sh FOLDER
# Run it in the sources, with the Python that has CuPy (and PyTorch, to compare): PYTHON=python. Status 1 if a part failed, 2
# where there is no GPU. Each part has a log in FOLDER; `bench` writes FOLDER/gpu-float32.md and FOLDER/gpu-tf32.md.
set -eu

out=$(realpath -m "${1:?usage: bash experiments/settings/gpu.sh FOLDER}")
python=${PYTHON:-python}
cd "$(dirname "$0")/../.."
if ! why=$("$python" -c 'from gridgrad.nn import device; device.use("gpu"); print(device.describe())' 2>&1); then
    echo "no GPU can be used here: ${why##*$'\n'}"
    exit 2
fi
mkdir -p "$out"
echo "$why" | tee "$out/summary.txt"
failed=0

part() {  # NAME SECONDS COMMAND..: at most so many seconds, and the others go on if it fails
    local name=$1 limit=$2 start=$SECONDS status=0
    shift 2
    echo "$name, at most $limit s"
    timeout -k 2 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
    [ "$status" = 0 ] || failed=1
    echo "$name: status $status (124: out of time), $((SECONDS - start)) s; $(tail -n 1 "$out/$name.log")" | tee -a "$out/summary.txt"
}

tests() {  # NAME SECONDS DEVICES ARGUMENTS..
    local name=$1 limit=$2 devices=$3
    shift 3
    part "$name" "$limit" env GRIDGRAD_TEST_DEVICE="$devices" "$python" -m pytest -p no:cacheprovider -m "not long" "$@"
}

same_weights() {  # NET SHAPE BATCH: trained with and without graphs
    local net=$1 shape=$2 batch=$3
    part "graphs-$net" 20 "$python" -c '
import os, subprocess, sys
digests = [subprocess.run([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], env=os.environ | {"GRIDGRAD_GRAPH": graphs},
                          check=True, capture_output=True, text=True).stdout.strip() for graphs in "01"]
print("equal weights" if digests[0] == digests[1] else "weights differ", *digests)
sys.exit(digests[0] != digests[1])' '
import sys
from mpi4py import MPI
from gridgrad.experiments.common.problems import minibatch
from gridgrad.experiments.common.report import digest
from gridgrad.nn import SGD, SoftmaxCrossEntropy
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, train_step, use_device
net, shape, batch = sys.argv[1], tuple(map(int, sys.argv[2].split("x"))), int(sys.argv[3])
use_device(MPI.COMM_WORLD, "gpu")
with ProcessGrid(MPI.COMM_WORLD, batch=1) as grid:
    made = parallelize(network_names.build(net, shape if len(shape) > 1 else shape[0], 10), grid)
    loss, optimizer = SoftmaxCrossEntropy(), SGD(made, 0.01, 0.9)
    for _ in range(8):
        train_step(made, loss, optimizer, *minibatch(shape, 10, batch), batch)
    print(digest(made))' "$net" "$shape" "$batch"
}

tests nn 50 gpu tests/nn
tests graphs 20 gpu tests/test_device.py -k "as_graphs and ([1] or [2])"
tests random-1 25 gpu tests/random_networks -m "mpi and not long" -k "[1]"
tests random-2 40 gpu tests/random_networks -m "mpi and not long" -k "[2]"
tests hybrid 35 gpu,cpu tests/random_networks -m "mpi and not long" -k "[2]"
tests marques 20 gpu tests/parallel/placement/test_plans.py -k "marques and [2]"
same_weights mnist-cnn 28x28x1 64
same_weights resnet20 32x32x3 32
part bench-float32 70 "$python" -m gridgrad bench --device gpu --minutes 0.9 --rounds 5 --out "$out/gpu-float32.json"
part bench-tf32 50 "$python" -m gridgrad bench --device gpu --tf32 --minutes 0.6 --rounds 5 --out "$out/gpu-tf32.json"
part aims 10 "$python" -c '
import json, sys
from statistics import median
networks = {name: found for name, found in json.load(open(sys.argv[1]))["networks"].items() if "ratio" in found}
ratios = {name: found["ratio"]["median"] for name, found in networks.items()}
missed = [f"{name} takes {ratio:.2f} times as long" for name, ratio in ratios.items() if ratio > networks[name]["bound"]]
for name, found in networks.items():
    if found["memory"]["ours"] > 1.3 * found["memory"]["peer"]:
        missed.append(f"{name} takes more than 1.3 times the memory")
if not ratios or median(ratios.values()) > 1:
    missed.append(f"the median is {median(ratios.values()):.2f}" if ratios else "nothing was compared")
print("; ".join(missed) or "all aims of time and memory are met")
sys.exit(bool(missed))' "$out/gpu-float32.json"
echo "all logs: $out; $([ "$failed" = 0 ] && echo all parts passed || echo some parts failed)" | tee -a "$out/summary.txt"
exit "$failed"
