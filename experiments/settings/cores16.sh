#!/bin/bash
# Strong and weak scaling of five networks on up to 16 cores of this machine, one BLAS thread a rank:
#     bash experiments/settings/cores16.sh [FOLDER [PART..]]
# Parts, in this order if none is named: calibrate mlp mnist-cnn cifar-cnn resnet20 vgg-style loss figure. A part goes on where
# it was stopped. MINUTES (5) limits the calibration and each sweep, REPEATS (5) is the runs of a point.
# With PyTorch installed, DistributedDataParallel with gloo is measured beside. Where there are fewer than 16 cores, it stops at
# as many ranks as there are cores.
set -eu
out=${1:-results/scaling16}; shift || true
minutes=${MINUTES:-5}; repeats=${REPEATS:-5}; python=${PYTHON:-python}
settings=$(dirname "$0"); cores=$(nproc); ranks=1
for p in 2 4 8 16; do [ $p -gt "$cores" ] || ranks=$ranks,$p; done
most=${ranks##*,}
mkdir -p "$out"
gridgrad() { "$python" -m gridgrad "$@"; }

# What a run of the `bench` programs prints: NAME RANKS CASE [--apart]
bench() {
    timeout $((60 * minutes)) "$python" -m gridgrad launch "$2" "gridgrad.experiments.benchmarks.$1" --case "$3" ${4:-} |
        tail -n 1 || echo "failed"
}

# NETWORK SAMPLES BATCH KIND: the batch of strong scaling; a rank has an eighth of it in weak scaling
scale() {
    local name=${1%%:*} machine=()
    [ ! -e "$out/machine.json" ] || machine=(--machine "$out/machine.json")
    local options=(--nets "$1" --dataset "$2" --ranks "$ranks" --minutes "$minutes")
    options+=(--repeats "$repeats" --most-repeats "$repeats")
    gridgrad sweep "$settings/scaling16-$4.toml" "${options[@]}" --batch-size "$3" "${machine[@]}" --out "$out/$name.jsonl"
    gridgrad sweep "$settings/scaling16-$4.toml" "${options[@]}" --batch-size $(($3 / 8)) --weak "${machine[@]}" \
        --out "$out/$name-weak.jsonl"
    if "$python" -c "import torch" 2> /dev/null; then
        for p in ${ranks//,/ }; do
            echo "$name, DDP gloo, $p ranks: $(bench torch_peer "$p" "$name, batch $3")" | tee -a "$out/ddp.txt"
        done
    fi
}

# NETWORK SAMPLES BATCH: why a second rank gains less than twice. Half of the batch on one rank alone is the ideal. The same on
# two ranks that train alone is what memory and clock of two cores allow; what two ranks need beyond that is ours.
loss() {
    local name=${1%%:*} train=(train --net "$1" --dataset "$2" --steps 14 --profile)
    gridgrad launch 1 "${train[@]}" --batch-size "$3" --report "$out/$name-1.json"
    gridgrad launch 1 "${train[@]}" --batch-size $(($3 / 2)) --report "$out/$name-half.json"
    [ "$most" -gt 1 ] || return 0
    gridgrad launch 2 "${train[@]}" --batch-size "$3" --grid batch=2 --report "$out/$name-2.json"
    echo "$name, 2 ranks that train alone: $(bench ranks 2 "$name, batch $3" --apart)"
    echo "$name, 2 ranks that train together: $(bench ranks 2 "$name, batch $3")"
    "$python" - "$out/$name" << 'END'
import json, sys
for of in ("1", "half", "2"):
    run = json.load(open(f"{sys.argv[1]}-{of}.json"))
    parts = ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in run["time"].items())
    step, slowest = 1e3 * run["seconds_per_step"]["median"], 1e3 * run["compute_max"]
    print(f"{of}: ms a step {step:.1f}: {parts}, slowest rank computes {slowest:.1f}")
END
}

gridgrad launch "$most" check | grep -iE "binding|blas|kernels|mpi|cores" || true
for part in ${*:-calibrate mlp mnist-cnn cifar-cnn resnet20 vgg-style loss figure}; do
    case $part in
        calibrate) gridgrad launch "$most" calibrate --minutes "$minutes" --out "$out/machine.json" ;;
        mlp) scale mlp:2048,2048,2048,relu random:1024,10,4096 1024 mlp ;;
        mnist-cnn) scale mnist-cnn random:28x28x1,10,2048 512 images ;;
        cifar-cnn) scale cifar-cnn random:32x32x3,10,2048 512 images ;;
        resnet20) scale resnet20 random:32x32x3,10,1024 256 images ;;
        vgg-style) scale vgg-style:32,64,128,256 random:32x32x3,10,1024 128 images ;;
        loss)
            loss mlp:2048,2048,2048,relu random:1024,10,4096 1024 | tee "$out/loss.txt"
            loss resnet20 random:32x32x3,10,1024 256 | tee -a "$out/loss.txt" ;;
        figure) gridgrad plot speedup "$out"/*.jsonl --out "$out/speedup16.png" --out "$out/speedup16.html" ;;
        *) echo "cores16: there is no part $part" >&2; exit 2 ;;
    esac
done
