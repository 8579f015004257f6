"""Targets: texts of options, as far as a training needs them; pruned networks, owners of weights, and checkpoints.

A checkpoint is read as `train --resume` does. Bytes that are damaged anywhere are noticed, and the one before goes on. In the
targets "that fits" the manifest is made to fit what was damaged, as somebody could who means harm: then training goes on
with these numbers, or a line says why not.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from gridgrad.experiments import explain, train
from gridgrad.nn.zoo import network_names, pruning
from gridgrad.parallel.checkpoint.manifest import NAME, digest
from gridgrad.parallel.checkpoint.shard_file import file_of, sha256
from gridgrad.parallel.partitioning import naive
from gridgrad.parallel.partitioning.good_partition import SUFFIX, read_owners, write_owners
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.protocols import protocol_names as protocols
from tests.fuzz.bounded import ROOT
from tests.fuzz.damage import damaged, damaged_argument, damaged_json
from tests.fuzz.damage_hdf5 import damaged_hdf5
from tests.fuzz.target import Target, by_program
from tests.fuzz.targets_data import beside, in_hdf5

SPEC, FEATURES, CLASSES = "mlp:9,7,relu", 4, 1
NEWEST, BLOCK = "step-000000002", 4096
TRAIN = "--dataset airfoil --net mlp:40,relu --batch-size 60 --steps 2 --quiet"


def network():
    return network_names.build(SPEC, FEATURES, CLASSES)


def write_partition(path):
    model = of_network(network(), "fine")
    write_owners(model.owners(naive.horizontal(model, 2), 2), path)


def read_partition(path):
    """Owners, and what each of the ranks then has."""
    owners = read_owners(path, network())
    for name, array in owners.outputs.items():
        assert array.min() >= 0 and array.max() < owners.ranks, name


@cache
def checkpoints():
    """({path: content} of the checkpoints after steps 1 and 2 of a training, the digest of its parameters)."""
    with tempfile.TemporaryDirectory() as folder:
        words = *TRAIN.split(), "--checkpoint", f"{folder}/made", "--checkpoint-steps", "1", "--report", f"{folder}/report.json"
        subprocess.run([sys.executable, "-m", "gridgrad", "train", *words], check=True, cwd=ROOT, timeout=300)
        files = (path for path in sorted(Path(folder, "made").rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}, digest_of(Path(folder, "report.json"))


def digest_of(report):
    return json.loads(report.read_text())["params_digest"]


def around(folder):
    beside(checkpoints()[0], folder)


def resumed(path):
    """The digest of the parameters of the training that goes on from the folder of checkpoints in which a path is."""
    by_program(train, f"{TRAIN} --resume FOLDER --report FOLDER/report.json")(path.parent)
    return digest_of(path.parents[1] / "report.json")


def noticed(path):
    """Only what was written is ever read."""
    assert resumed(path) == checkpoints()[1]


def signed(content):
    """A manifest as a dict, to which its checksum fits."""
    return content | {"sha256": digest({name: value for name, value in content.items() if name != "sha256"})}


def unnoticed(path):
    """The manifest fits the files again."""
    manifest = path.with_name(NAME)
    with contextlib.suppress(AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):  # else nobody could
        content = json.loads(manifest.read_bytes())
        for entry in content["files"]:
            file = path.with_name(entry["name"])
            entry |= {"size": file.stat().st_size, "sha256": sha256(file)}
        manifest.write_text(json.dumps(signed(content)))
    resumed(path)


def cut_at_blocks(content):
    """A file of which the disk has some blocks, or that is damaged in another way."""
    blocks = st.integers(0, len(content) // BLOCK).map(lambda number: content[: number * BLOCK])
    return st.one_of(blocks, damaged(content))


def checkpoint(what, name, damage, read):
    path = f"made/{NEWEST}/{name}"
    return Target(f"checkpoint {what}", lambda: (checkpoints()[0][path],), damage, read, path, around,
                  says=("no whole checkpoint", "made/step-"))  # fmt: skip


def option(name, program, words, valid, says=(), around=lambda folder: None):
    """A Target: an option of a program. words: its other arguments. valid: texts, with spaces between them."""
    texts, read = tuple(map(str.encode, valid.split())), by_program(program, f"{words} --{name}=TEXT")
    return Target(f"option {name}", lambda: texts, damaged_argument, read, around=around, says=(name, *says))


EXPLAIN = "--net cifar-cnn --ranks 6 --batch-size 12 --machine cori-haswell"
AIRFOIL = "--dataset airfoil --net mlp:8,relu --steps 2 --quiet"
PROTOCOLS = (
    "local:2 server:ssp:3:single slowmo:2:0.5:rate=0.9 parallel-sgd:epoch:shuffle easgd:2:0.3 admm:2:rho=0.1 post-local:1:2 "
    "diloco:2:lr=0.7:momentum=0.9:fragments=2 downpour:2:1 sgp"
)
PLANS = "fewest-bytes conv=height,linear=out in laugier"
NETS = "mlp:64,32,tanh mlp:relu vgg16,dropout=0.2 mlp:9,sigmoid,dropout=0.5 cifar-cnn lenet5"
PIPELINES = "1f1b interleaved:2 async:4:bound=2 async:2:nostash zbv zb-h1"
TARGETS = (
    in_hdf5("owners", write_partition, read_partition, "owners.h5"),
    in_hdf5("pruned network", lambda path: pruning.write(path, pruning.prune(network(), 0.5), SPEC),
            by_program(train, "--dataset airfoil --net pruned:FILE --steps 1 --quiet"), "pruned.h5"),
    option("grid", explain, EXPLAIN, "batch=3,model=2 height=2,model=3 model=6"),
    option("net", explain, f"{EXPLAIN} --shape 32,32,3 --grid batch=2,model=3", NETS),
    option("plan", explain, f"{EXPLAIN} --grid batch=2,model=3", PLANS, (SUFFIX,)),
    option("shares", explain, f"{EXPLAIN} --grid batch=2,model=3", "model=3:2:1,batch=2:1 batch=1:0"),
    option("pipeline", explain, f"{EXPLAIN} --grid stage=2,batch=3", PIPELINES, ("schedule",)),
    option("protocol", train, AIRFOIL, PROTOCOLS, protocols.FORMS),
    option("handicap", train, AIRFOIL, "0=1.5 0=3@100"),
    option("schedule", train, AIRFOIL, "cosine constant,warmup:5 step:30:0.1 step:30:0.1,warmup:10", ("warm-up",)),
    checkpoint("manifest", NAME, damaged_json, noticed),
    checkpoint("shard", file_of(0), cut_at_blocks, noticed),
    checkpoint("manifest that fits", NAME, damaged_json, unnoticed),
    checkpoint("shard that fits", file_of(0), damaged_hdf5, unnoticed),
)  # fmt: skip
