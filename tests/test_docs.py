"""The documents: every command and every Python block in them runs, links lead somewhere, and the README names every program.

A command is a line of a ```sh block, or a piece of `code` in the text that begins like a command. `SMALL` says for each how it
is run here: with options behind it that make it short or, where it needs minutes, root or a cluster, as far as that is possible
without. A command that is not in the table fails a test. All run in one folder that looks like the repository, so that a
command finds the files which those before it wrote.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from gridgrad.experiments.common.programs import FRONT, STUDY, studies
from gridgrad.experiments.launching.start_ranks import mpiexec
from tests.datasets.made_up_mnist import write_mnist
from tests.docs.pages import BLOCK

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
FIRST = [*DOCUMENTS, ROOT / "docs" / "tutorial.md"]  # what only other pages have takes minutes: those tests are long
DOCUMENTS += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
PROGRAMS = ROOT / "docs" / "extending"  # pages whose blocks of Python are one program: see tests/docs/test_extending.py
RESULTS = sorted((ROOT / "results").rglob("*.md"))
BEGINNINGS = (
    ".venv/",
    "MPIEXEC=",
    "make ",
    "python ",
    "mpiexec ",
    "srun ",
    "sudo ",
    "salloc ",
    "sbatch ",
    "qsub ",
    "pip ",
    "gridgrad ",
    "export ",
)
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
NO_OPTION = "--no-such-option"
LIMIT = 600  # seconds of a command, which ends one that would never end: the longest take a minute on a busy machine
COMMAND = "python", "-m", "gridgrad"  # what the command gridgrad is


@dataclass(frozen=True)
class Small:
    """How a command is run here.

    options: put behind it. ranks: instead of as many as it says. how: "run"; "parse", which stops once all options are
    understood; "print", for make, which then prints what it would run; "help" and "launcher": see `start`. why: the reason for
    anything but "run".
    """

    options: str = ""
    ranks: int | None = None
    how: str = "run"
    why: str = ""


SIMGRID = "SimGrid need not be installed; tests/experiments/test_simulators.py runs it where it is"
LONG = "it takes minutes or hours, and no option makes it short"
TARGET = Small(how="print", why="it sets up an environment, or takes minutes")
STEPS = Small("--steps 2")
SWEEP = Small("--nets mlp:8,relu --ranks 1,2 --schemes batch --steps 6 --repeats 1", why="whole sweeps take minutes")
PROTOCOLS = Small("--dataset mnist --net mlp:8,relu --samples 32 --epochs 1 --batch-size 8 --protocols sync,server:asp")
COMPARED = Small("--nets mlp:8,relu --ranks 1 --schemes batch --steps 6 --repeats 3", why="whole sweeps take minutes")
PART = Small("--nets mlp:8,relu --ranks 1 --schemes batch --steps 6 --repeats 2", why="whole sweeps take minutes")
QUEUED = Small(why="there is no batch system here: a shell reads the script")
AUTOENCODER = Small("--pretrain-epochs 1 --epochs 1")
HOSTS = "without root there are no emulated hosts: the options of `launch` are parsed, and the job runs without them"
SMALL = {
    # ----- make
    "make speedup": TARGET,
    "make test": TARGET,
    "make test-all": TARGET,
    "make test TESTS=tests/nn": TARGET,
    "make bench": TARGET,
    'make bench BENCH="--quick --out /tmp/bench"': TARGET,
    "make check": TARGET,
    "make check RANKS=4": TARGET,
    "make venv": TARGET,
    "make venv MPI=openmpi": TARGET,
    "make docs": TARGET,
    "make mutants": TARGET,
    "make venv MPI=system": TARGET,
    "make reproduce": TARGET,
    "make reproduce REPRODUCE=--full": TARGET,
    "make reproduce PAPER=laugier2018": TARGET,
    "gridgrad reproduce all --tables-only": Small(),
    # ----- train
    "gridgrad NAME": Small(how="help", why="NAME stands for all programs and studies: those that no other command starts"),
    "gridgrad train": STEPS,
    "gridgrad train --dataset airfoil --net mlp:128,128,tanh --epochs 50": Small("--epochs 1"),
    "gridgrad train --dataset airfoil --net mlp:64,tanh --validation 0.1 --patience 5 --epochs 30 "
    "--checkpoint runs/airfoil": Small("--epochs 1"),
    "gridgrad predict runs/airfoil --data airfoil --out predictions.csv": Small(),
    "mpiexec -n 2 gridgrad train --dataset airfoil --net mlp:128,128,tanh --grid model=2": Small("--epochs 1"),
    "gridgrad launch 4 train --dataset airfoil --net mlp:128,128,tanh --grid batch=2,model=2": Small("--epochs 1"),
    "gridgrad check": Small(),
    "gridgrad --version": Small(),
    "gridgrad help net": Small(),
    "gridgrad train --help": Small(),
    "gridgrad train --help all": Small(),
    "gridgrad completion bash": Small(),
    "gridgrad completion zsh": Small(),
    "gridgrad study": Small(),
    "gridgrad study protocols": PROTOCOLS,
    "python -m gridgrad train": STEPS,
    # ----- installation
    'pip install ".[mpich]"': Small(how="parse", why="tests/test_package.py installs the package"),
    "pip install --no-deps mlc-chakra protobuf": Small(how="parse", why="it downloads packages"),
    "pip install --editable .": Small(how="parse", why="tests/test_package.py installs it so"),
    'pip wheel --wheel-dir wheels ".[mpich]"': Small(how="parse", why="it downloads all that gridgrad needs"),
    'pip install --no-index --find-links wheels "gridgrad[mpich]"': Small(
        how="parse", why="it installs what that has collected"
    ),
    "pip wheel --no-deps .": Small(how="parse", why="tests/test_package.py builds the package"),
    "mpiexec -n 4 gridgrad train --dataset mnist --net mnist-cnn --grid batch=2,height=2": STEPS,
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid height=2,model=2": STEPS,
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid batch=2,height=2": STEPS,
    "mpiexec -n 2 gridgrad train --dataset mnist --net mnist-cnn --grid height=2 "
    "--steps 50 --trace trace.json --profile --report report.json": Small("--steps 8 --batch-size 16"),
    "mpiexec -n 4 gridgrad train --net mlp:512,512,relu --grid batch=2,model=2 --plan out,in,in": STEPS,
    "mpiexec -n 2 gridgrad train --dataset mnist --net mnist-cnn --grid model=2 --plan conv=replicate,linear=out": STEPS,
    "mpiexec -n 4 gridgrad train --dataset mnist --net mnist-cnn --grid height=2,model=2 "
    "--plan conv=width,linear=fewest-bytes": Small("--steps 2 --batch-size 16"),
    "gridgrad launch 4 train --net mlp:512,512,relu --grid model=4 --shares 3,2,1.5,1": STEPS,
    "gridgrad launch 4 train --net mlp:512,512,relu --grid batch=2,model=2 --shares model=3:2,batch=2:1": STEPS,
    "mpiexec -n 4 gridgrad train --grid batch=4 --device hybrid --shares auto": STEPS,
    "gridgrad launch 2 train --net mlp:512,512,relu --grid model=2 --shares auto": STEPS,
    "gridgrad launch 2 train --net mlp:512,512,relu --grid batch=2 --rebalance 10 --handicap 1=3@40": Small(
        "--steps 4 --rebalance 2 --handicap 1=3@1"
    ),
    "gridgrad sweep unequal.toml --out results/unequal.jsonl": Small(
        "--nets mlp:32,relu --dataset random:8,2 --batch-size 8 --steps 16 --repeats 1"
    ),
    "gridgrad sweep unequal.toml --nets mlp:2048,2048,relu --dataset random:1024,10 --batch-size 64 --vary handicap=1=3": Small(
        how="parse", why="the one above runs"
    ),
    "gridgrad plot lines results/unequal.json --x index --y step_seconds --panel net "
    '--xlabel step --ylabel "seconds a step" --out results/unequal.png': Small(),
    "mpiexec -n 2 gridgrad train --net mlp:512,512,relu --grid auto": STEPS,
    # ----- tests
    "python -m tests.random_networks --seed 7 --minutes 30": Small("--cases 3 --check serial"),
    "python -m tests.orders server:ssp:1:single --workers 2": Small(),
    "python -m tests.orders server:ssp:1:single --workers 2 --replay 0,1,2": Small(),
    "python -m tests.fuzz --examples 10000 --seed 1": Small(how="parse", why=LONG),
    "python -m tests.kills --kills 200 --seed 1": Small(how="parse", why=LONG),
    "python -m tests.hostile": Small(how="parse", why=LONG),
    "python -m tests.budget": Small(),
    "python -m tests.mutants --kind field --folder parallel/sync": Small("--list", why="each fault takes seconds to minutes"),
    # ----- checkpoints and restarts
    "mpiexec -n 4 gridgrad train --dataset mnist --net mnist-cnn --grid batch=4 "
    "--checkpoint runs/mnist --resume runs/mnist": Small("--steps 2 --batch-size 16"),
    "mpiexec -n 2 gridgrad train --dataset mnist --net mnist-cnn --grid model=2 "
    "--checkpoint runs/mnist --resume runs/mnist": Small("--steps 4 --batch-size 16"),
    "gridgrad supervise --ranks 4 --grid batch=2,model=2 --retries 10 --halt runs/HALT -- train "
    "--dataset mnist --net mnist-cnn --checkpoint runs/supervised": Small("--steps 2 --batch-size 16"),
    # ----- faults
    "mpiexec -n 4 gridgrad train --dataset mnist --net mnist-cnn --grid batch=2,model=2 --watchdog 300": STEPS,
    "mpiexec -n 4 gridgrad train --dataset mnist --net mnist-cnn --grid batch=2,height=2 --check-replicas 100": Small(
        "--steps 2 --check-replicas 1"
    ),
    "mpiexec -n 2 gridgrad train --net mlp:512,512,relu --grid stage=2 --check-finite": STEPS,
    # ----- update protocols
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid batch=4 --protocol local:8": Small(
        "--steps 2 --batch-size 16"
    ),
    "gridgrad launch 4 train --net mlp:512,512,relu --grid batch=2,model=2 --protocol server:asp": STEPS,
    "gridgrad launch 2 train --dataset mnist --net mnist-cnn --grid batch=2 --protocol server:asp --handicap 1=4": Small(
        "--steps 2 --batch-size 16"
    ),
    'MPIEXEC=".venv-openmpi/bin/mpiexec --with-ft ulfm" .venv-openmpi/bin/gridgrad launch 3 train '
    "--grid batch=3 --protocol server:asp:single": STEPS,
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid batch=4 --sorted "
    "--protocol parallel-sgd:epoch:shuffle": Small("--steps 2 --batch-size 16"),
    # ----- partitions
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid model=4 --plan hypergraph": STEPS,
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid batch=2,model=2 --plan hypergraph:fine": STEPS,
    "gridgrad partition --net mnist-cnn --shape 28,28,1 --ranks 4 --compare --out owners.h5": Small(),
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid model=4 --plan owners.h5": STEPS,
    "gridgrad explain --net vgg16 --batch-size 16 --ranks 4 --grid model=4 --plan hypergraph --machine ethernet-1g": Small(),
    "mpiexec -n 2 gridgrad train --net mlp:512,512,relu --grid stage=2": STEPS,
    "gridgrad launch 4 train --net mlp:512,512,relu --grid stage=2,batch=2 --pipeline zb-h1 --micro-batches 8": STEPS,
    "gridgrad explain --net mlp:512,512,relu --ranks 2 --grid stage=2 --micro-batches 4 --out mine.csv": Small(),
    "mpiexec -n 2 gridgrad train --net mlp:512,512,relu --grid stage=2 --pipeline mine.csv": STEPS,
    "mpiexec -n 2 gridgrad train --dataset mnist --net mnist-cnn --grid model=2 --plan hypergraph --pipeline async:4": STEPS,
    "mpiexec -n 2 gridgrad train --net mlp:512,512,relu --grid stage=2 --micro-batches 4 "
    "--trace trace.json --steps 12": Small(),
    "gridgrad explain --net mlp:512,512,relu --shape 4 --outputs 1 --batch-size 128 --ranks 2 "
    "--grid stage=2 --pipeline 1f1b --micro-batches 4 --out schedule.png --trace trace.json": Small(),
    "gridgrad sweep pipelined.toml --out results/pipelined.jsonl": Small(how="parse", why="it takes minutes"),
    "gridgrad sweep servers.toml --out servers.jsonl": Small(how="parse", why=LONG),
    "gridgrad plot lines results/laugier2018/tables.json --x ranks --y times --series network --panel curve --log x,y "
    "--out results/laugier2018/predicted.png": Small(),
    "gridgrad plot lines results/servers.json --x workers --y measured,simulated --where part=limit "
    '--ylabel "updates a second" --out results/servers.png': Small(),
    "gridgrad explain --net vgg16 --ranks 4 --batch-size 64 --grid stage=4 --out schedule.png": Small(),
    "gridgrad explain --net vgg16 --batch-size 128 --ranks 16 --grid batch=4,model=4 --export traces": Small(
        "--ranks 4 --grid model=4"
    ),
    "gridgrad explain --net mlp:4096,4096,relu --ranks 4 --grid stage=4 --export schedule --format goal": Small(),
    "gridgrad explain --net mlp:4096,4096,relu --ranks 4 --grid batch=2,model=2 --export chakra --format chakra": Small(
        how="parse", why="it needs a package that is not installed everywhere"
    ),
    "gridgrad checkpoints runs/mnist --export arrays.h5": Small(how="parse", why="tests/experiments/test_resume.py does it"),
    "gridgrad study simulators --ranks 2,4,16 --out simulators.json": Small(how="parse", why=SIMGRID),
    "gridgrad study simulators --ranks 2 --measured predictions.jsonl --machine machine.json --out simulators.json": Small(
        how="parse", why=SIMGRID
    ),
    "gridgrad explain --net vgg16 --ranks 4 --batch-size 64 --grid stage=2,model=2 --pipeline 1f1b": Small(),
    "gridgrad study pruned --out results/pruned.h5": Small(
        "--dataset mnist --net mlp:32,32,relu --steps 3 --further 2 --ranks 2"
    ),
    "gridgrad launch 4 train --dataset denoise --net pruned:results/pruned.h5 --grid model=4 --plan hypergraph": Small(
        "--dataset mnist --steps 2"
    ),
    "gridgrad train --dataset ethylene-synthetic --net mlp:64,64,tanh --batch-size 100 --steps 200": STEPS,
    "gridgrad train --dataset images:pictures,size=64 --net resnet20 --epochs 5 --augment flip": Small(
        "--epochs 1 --batch-size 4"
    ),
    "gridgrad train --dataset table:houses.csv,target=price --net mlp:64,64,tanh": Small("--steps 2 --batch-size 8"),
    "mpiexec -n 2 gridgrad train --dataset table:digits.npz,shape=28x28x1 --net mnist-cnn --grid height=2": Small(
        "--steps 2 --batch-size 8"
    ),
    "gridgrad train --dataset table:rooms.h5,x=sensors,y=warmth,test=0.1,seed=3 --net mlp:32,tanh": Small(
        "--steps 2 --batch-size 8"
    ),
    "mpiexec -n 4 gridgrad train --dataset mnist --net mlp:512,512,relu --grid batch=2,model=2": STEPS,
    "mpiexec -n 4 python experiments/studies/usability/automatic.py": Small(ranks=2),
    "gridgrad summary --net lenet5 --net mlp:512,512,relu --batch-size 64 --measure kernels": Small("--steps 1"),
    # ----- sweeps and figures
    'gridgrad sweep --dataset airfoil --nets "mlp:512,512,relu" --ranks 1,2 --out results/sweep.jsonl': SWEEP,
    "gridgrad plot speedup results/sweep.jsonl --out results/sweep.png": Small(),
    "gridgrad plot speedup results/sweep.jsonl --out results/sweep.png --out results/sweep.pdf": Small(),
    "gridgrad sweep experiments/settings/speedup.toml --out results/speedup.jsonl": Small(
        "--nets mlp:512,512,512,relu --ranks 1 --schemes batch --steps 6 --repeats 1", why="the whole sweep takes minutes"
    ),
    "gridgrad plot speedup results/speedup.jsonl --out results/speedup.png": Small(),
    "gridgrad sweep experiments/settings/grids.toml --out results/grids.jsonl": Small(
        "--nets mlp:8,relu --steps 6 --repeats 1", why="the whole sweep takes minutes"
    ),
    'gridgrad sweep --grids "batch=*,model=2;stage=2,batch=*" --ranks 2,4 --schemes batch --out results/two.jsonl': Small(
        "--nets mlp:8,relu --ranks 2 --steps 6 --repeats 1", why="the whole sweep takes a minute"
    ),
    'gridgrad sweep --schemes batch --vary "reduction=plain;overlap" --vary "batch-size=64;256" '
    "--out results/vary.jsonl": Small(
        "--nets mlp:8,relu --ranks 2 --steps 6 --repeats 1", why="the whole sweep takes a minute"
    ),
    "gridgrad plot speedup results/sweep.jsonl --model": Small(),
    "gridgrad sweep experiments/settings/breakdown.toml --out results/breakdown.jsonl": Small(
        "--nets lenet5 --dataset mnist --ranks 1,2 --steps 6 --repeats 1", why="the whole sweep takes minutes"
    ),
    "gridgrad plot breakdown results/breakdown.jsonl --out results/breakdown.png": Small(),
    'gridgrad plot lines report.json --x layer --y forward,gradients,input_gradient --ylabel "seconds a step"': Small(),
    "gridgrad sweep --predict 1,4,16,64,256,1024,4096,16384 --machine cori-haswell "
    "--nets vgg16 --batch-size 256 --out predicted.jsonl": Small("--predict 1,4", why="many ranks take half a minute"),
    "gridgrad plot speedup predicted.jsonl --out predicted.png": Small(),
    "gridgrad plot speedup results/scaling_predicted.jsonl --out results/scaling_predicted.png": Small(),
    'gridgrad plot speedup results/scaling_predicted.jsonl --where "network=vgg16;scaling=strong" --out vgg16.pdf': Small(),
    "gridgrad plot time results/sweep.jsonl --width column --only batch --no-caption --out time.pdf": Small(),
    "gridgrad plot lines results/sweep.jsonl --x ranks --y samples_a_second --series series --panel network --log x,y": Small(),
    "gridgrad plot lines results/sweep.jsonl --x ranks --y peak_memory_bytes --series series --panel network": Small(),
    "gridgrad plot lines results/convergence.json --x epoch --y training_accuracy,test_accuracy --panel way": Small(),
    "gridgrad plot lines results/convergence.json --x epoch --y test_accuracy --series way "
    '--ylabel "test accuracy (%)" --out results/convergence.png': Small(),
    "gridgrad sweep experiments/settings/speedup.toml --out before.jsonl": COMPARED,
    "gridgrad sweep experiments/settings/speedup.toml --out after.jsonl": COMPARED,
    "gridgrad plot compare before.jsonl after.jsonl": Small(),
    "gridgrad sweep --predict 1,4,16,64,256,1024,4096,16384 --machine cori-haswell --weak "
    "--nets mlp:1024,1024,1024,relu --shape 16 --outputs 2 --batch-size 100 --out predicted-weak.jsonl": Small("--predict 1,4"),
    "gridgrad sweep experiments/settings/speedup.toml --predict 1,2,4,8,16 --machine cori-haswell "
    "--out predicted-airfoil.jsonl": Small("--predict 1,2"),
    "gridgrad plot speedup results/speedup.jsonl predicted-airfoil.jsonl --out both.png": Small(),
    "gridgrad plot lines results/crossover.json --x batch_size --y seconds.median --bars seconds.min,seconds.max "
    '--series grid --log x,y --xlabel "global batch (samples)" --ylabel "seconds a step"': Small(),
    "gridgrad plot lines results/crossover.json --x batch_size --y seconds.median --bars seconds.min,seconds.max "
    '--series grid --log x,y --xlabel "global batch (samples)" --ylabel "seconds a step" --out results/crossover.png': Small(),
    # ----- other tools
    "gridgrad plot speedup results/sweep.jsonl --out results/sweep.html": Small(),
    'gridgrad sweep --dataset airfoil --nets "mlp:64,64,relu" --ranks 1,2,3,4,5,6 --schemes batch,model '
    '--grids "batch=*,model=2" --batch-size 120 --vary reduction=plain --steps 8 --repeats 1 --out counted.jsonl '
    "--export extrap results/extrap/counted": Small(
        "--nets mlp:8,relu --ranks 1,2 --schemes batch", why="more ranks than cores take a minute"
    ),
    "gridgrad sweep results/breakdown.jsonl --export hatchet results/hatchet.json": Small(),
    "python docs/tools/thickets.py results/hatchet.json": Small(
        how="parse", why="it needs Thicket: see tests/docs/test_tools.py"
    ),
    "python docs/tools/parquet.py results/sweep.jsonl sweep.parquet": Small(
        how="parse", why="it needs pandas and pyarrow: see tests/docs/test_tools.py"
    ),
    "python -m docs.draw_grid --out docs/grid.png": Small(),
    "python -m docs.draw_how_it_works --out docs": Small(),
    "python -m docs.draw_schemes --out docs/schemes": Small(),
    "python docs/tutorial.py batch=1": Small(),
    "mpiexec -n 2 python docs/tutorial.py batch=2": Small(),
    "mpiexec -n 2 python docs/tutorial.py model=2": Small(),
    "mpiexec -n 4 python docs/tutorial.py batch=2,model=2": Small(),
    "mpiexec -n 2 gridgrad train --dataset airfoil --net mlp:128,128,tanh --grid batch=2": Small("--epochs 1"),
    # ----- choosing and predicting
    "gridgrad explain --net vgg16 --batch-size 64 --ranks 4 --grid batch=4 --shares 3,2,1.5,1": Small(),
    "gridgrad explain --net marques-500-1500 --batch-size 64 --ranks 4 --grid model=4 --plan out --speeds 3,2,1.5,1": Small(),
    "gridgrad explain --net vgg16 --batch-size 256 --ranks 16384 --machine cori-haswell": Small("--ranks 8"),
    "mpiexec -n 2 gridgrad calibrate": Small("--quick --busy"),
    "mpiexec -n 2 gridgrad calibrate --out machine.json": Small("--quick --busy"),
    "gridgrad sweep predictions.toml --machine machine.json --out predictions.jsonl": Small(
        "--nets mlp:16,relu --dataset random:8,2 --batch-size 8 --schemes batch --repeats 1"
    ),
    "gridgrad plot lines results/predictions/2-ranks.json --x predicted --y measured --series net,grid --log x,y "
    '--xlabel "predicted (seconds a step)" --ylabel "measured (seconds a step)"': Small(),
    "gridgrad explain --map results/thresholds.png --net mlp:W,W,W,relu --shape 16 --outputs 2 --ranks 32": Small(
        "--widths 32,64 --batch-sizes 8,16"
    ),
    "gridgrad explain --net vgg16 --batch-size 4096 --nodes 64 --machine flops=60,latency=1.5,bandwidth=100,ranks=32": Small(),
    "gridgrad sweep --predict 1,64,1024 --nets vgg16 --batch-size 4096 --machine cori-haswell:latency=2 --out a.jsonl": (
        Small("--predict 1,4 --nets mlp:16,relu")
    ),
    "gridgrad explain --net mlp:1024,1024,1024,relu --shape 16 --outputs 2 --ranks 32 --batch-size 4096": Small(),
    "gridgrad explain --net vgg16 --batch-size 4096 --nodes 256 --gpus 4": Small(),
    "gridgrad explain --net vgg16 --batch-size 4096 --nodes 64 --gpus 8 --machine perlmutter-a100:bandwidth=1600": Small(),
    "gridgrad explain --net vgg16 --ranks 64 --machine machine.json": Small(),
    "gridgrad partition --table results/partitions.md": Small("--nets lenet5 --ranks 2"),
    "gridgrad summary --net vgg16 --batch-size 8": Small(),
    "gridgrad summary --net resnet20 --batch-size 32 --measure": Small("--batch-size 2 --steps 3"),
    # ----- measuring
    "mpiexec -n 4 python -m gridgrad.experiments.papers.laugier2018_scatter --grid batch=2,model=2": Small("--repeats 1"),
    "gridgrad sweep accuracy.toml --out accuracy.jsonl": Small(how="parse", why=LONG),
    "gridgrad study usability": Small(),
    "gridgrad study autoencoder --corruption 0.25 --energy": AUTOENCODER,
    "gridgrad study autoencoder --validation 0.16667 --corruption 0.25 --pretrain-epochs 15 --epochs 30 "
    "--energy --report results/autoencoder.json": AUTOENCODER,
    "mpiexec -n 4 gridgrad study autoencoder --widths 500,250 --grid batch=2,model=2": AUTOENCODER,
    "gridgrad reproduce laugier2018": Small("--tables-only", why="the jobs take ten minutes"),
    "gridgrad reproduce grabaskas2018": Small("--tables-only", why="the jobs take ten minutes"),
    "gridgrad reproduce hegde2016": Small("--tables-only", why="the processes take minutes"),
    "gridgrad summary --net marques-50-500 --net mlp:1024,relu --batch-size 16 --measure --out roofline.json": Small(
        "--batch-size 1 --steps 1"
    ),
    "gridgrad plot roofline roofline.json --out roofline.png": Small(),
    "gridgrad reproduce marques2016": Small("--tables-only", why="the jobs take hours"),
    "gridgrad reproduce eserol2019": Small("--tables-only", why="the searches take four minutes"),
    "gridgrad sweep automation.toml --out automation.jsonl": Small(how="parse", why=LONG),
    # ----- comparison of update protocols
    "gridgrad study protocols --dataset mnist --net mnist-cnn --samples 12000 --epochs 2 --target 95": PROTOCOLS,
    "gridgrad study protocols --dataset cifar10 --net cifar-cnn,dropout=0 --samples 4000 --epochs 3 --target 34": PROTOCOLS,
    "gridgrad study protocols --dataset airfoil --net mlp:64,64,tanh --epochs 50 --every 5 --target 0.25": PROTOCOLS,
    "gridgrad plot lines results/protocols.json --x seconds --y score --series protocol --panel straggler "
    '--where "net=mnist-cnn;time=virtual;sorted=false" --log x --xlabel "virtual time (s)" --ylabel "test accuracy (%)" '
    "--out results/protocols.png": Small(),
    "gridgrad study protocols --dataset mnist --net mnist-cnn --samples 12000 --epochs 2 --sorted "
    "--straggler 1 --protocols sync,parallel-sgd,parallel-sgd:shuffle,parallel-sgd:epoch,parallel-sgd:epoch:shuffle": PROTOCOLS,
    "gridgrad study protocols --dataset mnist --net mnist-cnn --samples 12000 --epochs 10 --sorted "
    "--straggler 1 --protocols sync,parallel-sgd,parallel-sgd:shuffle,parallel-sgd:epoch,parallel-sgd:exchange": PROTOCOLS,
    "gridgrad sweep --dataset mnist --nets mnist-cnn --schemes batch --ranks 2 --batch-size 64 "
    '--vary "protocol=sync;server:bsp;server:asp" --vary "handicap=1=1;1=4" --out protocols.jsonl': Small(
        how="parse", why="a sweep of six series takes a minute"
    ),
    'gridgrad sweep --vary "protocol=sync;server:asp"': Small(how="parse", why="whole sweeps take minutes"),
    # ----- emulated hosts
    "sudo .venv/bin/gridgrad sweep laptops.toml --out laptops.jsonl": Small(how="parse", why="it needs root"),
    "sudo .venv/bin/gridgrad sweep eserol2019-hosts.toml --out eserol.jsonl": Small(how="parse", why="it needs root"),
    "sudo .venv/bin/gridgrad sweep laugier2018-hosts.toml --machine machine.json --out hosts.jsonl": Small(
        how="parse", why="it needs root"
    ),
    "sudo .venv/bin/gridgrad sweep crossover.toml --out results/crossover.jsonl": Small(how="parse", why="it needs root"),
    "mpiexec -n 2 gridgrad train --dataset mnist --net mnist-cnn --grid batch=2 --steps 30 "
    "--reduction plain --trace plain.json": Small("--steps 8 --batch-size 16"),
    "mpiexec -n 2 gridgrad train --dataset mnist --net mnist-cnn --grid batch=2 --steps 30 "
    "--reduction overlap --trace overlap.json": Small("--steps 8 --batch-size 16"),
    "gridgrad plot breakdown plain.json overlap.json": Small(),
    "gridgrad plot timeline trace.json --out timeline.pdf": Small(),
    "gridgrad plot timeline trace.json --steps 6-7 --width column --out steps.png": Small(),
    "sudo .venv/bin/gridgrad launch --hosts 4 --rate 1000 --delay 50 4 check": Small(ranks=2, why=HOSTS),
    "sudo .venv/bin/gridgrad launch --hosts 4 --rate 1000 --delay 50 4 calibrate --out machine.json": Small(
        "--quick --busy", ranks=2, why=HOSTS
    ),
    "sudo .venv/bin/gridgrad sweep partitioned.toml --machine machine.json --out results/partitioned.jsonl": Small(
        how="parse", why="it needs root"
    ),
    'sudo MPIEXEC=".venv/bin/gridgrad launch --hosts 4" .venv/bin/gridgrad sweep '
    '--nets "mlp:512,512,relu" --ranks 1,2,4 --out results/hosts.jsonl': Small("--ranks 1 --steps 2 --repeats 1", why=HOSTS),
    # ----- clusters
    "mpiexec -n 4 gridgrad check": Small(),
    "export MPI4PY_LIBMPI=/path/to/libmpi.so.40 MPIEXEC=mpiexec": Small(
        how="launcher", why="there is no such library here: whether the launcher of this name is found"
    ),
    "MPICC=mpicc .venv-system/bin/pip install --force-reinstall --no-binary mpi4py mpi4py": Small(
        how="parse", why="it needs a system with MPI, and builds for minutes"
    ),
    "salloc -N 4 --ntasks-per-node=16 .venv-system/bin/gridgrad sweep --ranks 1,2,4,8,16,32,64 "
    '--dataset mnist --nets "mlp:4096,4096,relu" --batch-size 512 --out results/cluster.jsonl': Small(
        "--ranks 1 --steps 2 --repeats 1 --nets mlp:8,relu --batch-size 64", why="no Slurm here: the program runs without"
    ),
    # ----- job scripts
    "gridgrad slurm --nodes 4 --ranks-per-node 16 --time 2:00:00 --partition standard --account e05 "
    '--setup "module load gcc" --out job.sh train --dataset mnist --net mnist-cnn --grid batch=64': Small(),
    "sbatch job.sh": QUEUED,
    "gridgrad slurm --nodes 2 --ranks-per-node 16 --time 1-12:00:00 --out mine.sh mine.py --epochs 300": Small(),
    "gridgrad slurm --dry-run --kind requeue --nodes 2 --ranks-per-node 16 --time 4:00:00 "
    "train --dataset mnist --net mnist-cnn --grid batch=32 --epochs 500 --checkpoint checkpoints": Small(),
    "gridgrad slurm --nodes 2 --ranks-per-node 4 --cores 8 --out gpus.sh "
    "train --dataset mnist --net mnist-cnn --grid batch=8 --device gpu": Small(),
    "gridgrad slurm --ranks-per-node 4 --out sweep.sh "
    "sweep --dataset mnist --nets mnist-cnn --ranks 1,2,4 --vary device=gpu": Small(),
    'gridgrad slurm --nodes 2 --ranks-per-node 8 --gpus 4 --mem 64G --directive "--exclusive" --out hybrid.sh '
    "train --dataset mnist --net mnist-cnn --grid batch=16 --device hybrid": Small(),
    "gridgrad slurm --site lumi --account project_1 --nodes 4 --ranks-per-node 128 --time 2:00:00 --out lumi.sh "
    "train --dataset mnist --net mnist-cnn --grid batch=64,model=8": Small(),
    "gridgrad slurm --site lumi --account project_1 --nodes 2 --ranks-per-node 128 --time 20 --out job.sh "
    "train --net mlp:4096,4096,relu --batch-size 512 --grid batch=32,model=8 "
    "--checkpoint checkpoints --resume checkpoints": Small(),
    "gridgrad slurm --kind array --parts 2 --ranks-per-node 4 --out array.sh "
    "sweep experiments/settings/speedup.toml --out results/array.jsonl": Small(),
    "sbatch array.sh": QUEUED,
    "gridgrad sweep experiments/settings/speedup.toml --out results/array.jsonl --part 1/2": PART,
    "gridgrad sweep experiments/settings/speedup.toml --out results/array.jsonl --part 2/2": PART,
    "gridgrad sweep --out results/array.jsonl --gather results/array-1-of-2.jsonl results/array-2-of-2.jsonl": Small(),
    "gridgrad slurm --kind requeue --ranks-per-node 4 --time 12:00:00 --warn 300 --out long.sh "
    "train --dataset mnist --net mnist-cnn --epochs 500 --checkpoint checkpoints": Small(),
    "sbatch long.sh": QUEUED,
    "gridgrad slurm --system pbs --kind requeue --ranks-per-node 4 --out long.pbs "
    "train --dataset mnist --net mnist-cnn --epochs 500 --checkpoint checkpoints": Small(),
    "qsub long.pbs": QUEUED,
    "gridgrad slurm --system mpirun --kind requeue --ranks-per-node 4 --out long.sh "
    "train --dataset mnist --net mnist-cnn --epochs 500 --checkpoint checkpoints": Small(),
    "gridgrad launch 2 train --net mlp:512,512,relu --grid batch=2 --device gpu": Small(how="parse", why="it needs GPUs"),
    '.venv/bin/pip install "cupy-cuda13x[ctk]"': Small(how="parse", why="it needs a GPU, and gigabytes"),
}
NEEDS = {  # of these commands the first reads what the second writes
    "gridgrad plot lines report.json --x layer --y forward,gradients,input_gradient "
    '--ylabel "seconds a step"': "--steps 50 --trace trace.json --profile --report report.json",
    "gridgrad plot roofline roofline.json --out roofline.png": "--measure --out roofline.json",
    "mpiexec -n 2 gridgrad train --net mlp:512,512,relu --grid stage=2 --pipeline mine.csv": "--csv mine.csv",
    "gridgrad explain --net mlp:512,512,relu --shape 4 --outputs 1 --batch-size 128 --ranks 2 "
    "--grid stage=2 --pipeline 1f1b --micro-batches 4 --out schedule.png --trace trace.json": "--trace trace.json --steps 12",
    "gridgrad launch 4 train --dataset mnist --net mnist-cnn --grid model=4 --plan owners.h5": "--out owners.h5",
    "gridgrad launch 4 train --dataset denoise --net pruned:results/pruned.h5 "
    "--grid model=4 --plan hypergraph": "--out results/pruned.h5",
    "gridgrad sweep --out results/array.jsonl --gather results/array-1-of-2.jsonl "
    "results/array-2-of-2.jsonl": "--out results/array.jsonl --part 2/2",
    "gridgrad sweep experiments/settings/speedup.toml --out results/array.jsonl "
    "--part 2/2": "--out results/array.jsonl --part 1/2",
    "sbatch job.sh": "--out job.sh train --dataset mnist --net mnist-cnn --grid batch=64",
    "gridgrad plot speedup predicted.jsonl --out predicted.png": "vgg16 --batch-size 256 --out predicted.jsonl",
    "gridgrad plot time results/sweep.jsonl --width column --only batch --no-caption "
    "--out time.pdf": "--out results/sweep.jsonl",
    "gridgrad plot lines results/sweep.jsonl --x ranks --y samples_a_second --series series "
    "--panel network --log x,y": "--out results/sweep.jsonl",
    "gridgrad plot lines results/sweep.jsonl --x ranks --y peak_memory_bytes --series series "
    "--panel network": "--out results/sweep.jsonl",
    "gridgrad plot speedup results/sweep.jsonl --out results/sweep.png --out results/sweep.pdf": "--out results/sweep.jsonl",
    "gridgrad plot breakdown plain.json overlap.json": "--trace overlap.json",
    "mpiexec -n 2 gridgrad train --dataset mnist --net mnist-cnn --grid batch=2 --steps 30 "
    "--reduction overlap --trace overlap.json": "--trace plain.json",
    "gridgrad plot timeline trace.json --out timeline.pdf": "--steps 50 --trace trace.json --profile --report report.json",
    "gridgrad plot timeline trace.json --steps 6-7 --width column "
    "--out steps.png": "--steps 50 --trace trace.json --profile --report report.json",
    "gridgrad sweep experiments/settings/speedup.toml --out after.jsonl": "--out before.jsonl",
    "gridgrad plot compare before.jsonl after.jsonl": "--out after.jsonl",
    "gridgrad plot speedup results/sweep.jsonl --out results/sweep.png": "--out results/sweep.jsonl",
    "gridgrad plot speedup results/sweep.jsonl --out results/sweep.html": "--out results/sweep.jsonl",
    "gridgrad plot speedup results/sweep.jsonl --model": "--out results/sweep.jsonl",
    "gridgrad plot speedup results/speedup.jsonl predicted-airfoil.jsonl --out both.png": "--out predicted-airfoil.jsonl",
    "gridgrad sweep predictions.toml --machine machine.json --out predictions.jsonl": "--out machine.json",
    "gridgrad explain --net vgg16 --ranks 64 --machine machine.json": "--out machine.json",
    "gridgrad predict runs/airfoil --data airfoil --out predictions.csv": "--epochs 30 --checkpoint runs/airfoil",
}


def programs():
    """What may stand behind `gridgrad`: the programs in the order of use, then each study."""
    return [*FRONT, *(f"{STUDY} {name}" for name in studies())]


def text_without_blocks(document):
    return BLOCK.sub("", document.read_text())


def commands():
    """{command: the documents that have it}, in their order."""
    found = defaultdict(list)
    for document in DOCUMENTS:
        for language, block in BLOCK.findall(document.read_text()):
            if language == "sh":
                for line in lines_of(block):
                    found[line].append(document)
        inline = re.findall(r"`([^`\n]+)`", text_without_blocks(document))
        for code in inline:
            if code.startswith(BEGINNINGS) and " " in code:
                found[code].append(document)
    return found


def marks(documents):
    """Those of a test that runs what these documents have."""
    return () if {*FIRST} & {*documents} else pytest.mark.long


def lines_of(block):
    """The commands of a block, each on one line, without comments."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [re.sub(r"\s+#.*$", "", line).strip() for line in lines if line.strip()]


def printed_blocks():
    """(command, what it prints) for each block of text, which follows the command that prints it."""
    for document in DOCUMENTS:
        if document.parent == PROGRAMS:
            continue
        last = None
        for language, block in BLOCK.findall(document.read_text()):
            if language == "text":
                yield pytest.param(last, block, id=f"{document.name}: {last}"[:90], marks=marks([document]))
            last = lines_of(block)[-1] if language == "sh" else last


def python_blocks():
    return [
        pytest.param(block, id=f"{document.name}-{i}", marks=marks([document]))
        for document in DOCUMENTS
        if document.parent != PROGRAMS
        for i, (language, block) in enumerate(BLOCK.findall(document.read_text()))
        if language == "python"
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder like the repository, with small data; commands run there, and write there."""
    path = tmp_path_factory.mktemp("docs")
    for name in ("nn", "parallel", "datasets", "experiments", "tests", "Makefile", "requirements.lock", "pyproject.toml"):
        (path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "results", path / "results")
    shutil.copytree(ROOT / "docs", path / "docs", ignore=shutil.ignore_patterns("_build"))
    random = np.random.default_rng(0)
    train, test = ((random.integers(0, 256, (n, 28, 28)), random.integers(0, 10, n)) for n in (256, 16))
    write_mnist(path / "data", train=train, t10k=test)
    for half in ("train", "test"):
        for name in ("cats", "dogs"):
            (path / "data" / "pictures" / half / name).mkdir(parents=True)
            for i in range(3):
                pixels = random.integers(0, 256, (70, 80, 3), np.uint8)
                Image.fromarray(pixels).save(path / "data" / "pictures" / half / name / f"{i}.jpg")
    table = random.normal(size=(30, 4))
    np.savetxt(path / "houses.csv", table, delimiter=",", header="size,rooms,price,age")
    (path / "mine.py").write_text("")
    np.savez(path / "digits.npz", x=random.integers(0, 256, (40, 28, 28), np.uint8), y=np.arange(40) % 10)
    with h5py.File(path / "rooms.h5", "w") as file:
        file["sensors"], file["warmth"] = table, table[:, :2] + 20
    return path


@pytest.fixture(scope="module")
def done():
    """The commands that have run, and how they ended."""
    return {}


@pytest.fixture
def inside(folder, monkeypatch):
    """In that folder, with its data."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GRIDGRAD_DATA", str(folder / "data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder


def alone(words, environment=()):
    """(status, output) of a program that is no job."""
    env = os.environ | dict(environment)
    finished = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, env=env, stdin=subprocess.DEVNULL)
    return finished.returncode, finished.stdout + finished.stderr


def job(ranks, words, environment=()):
    """(status, output) of Python on several ranks."""
    finished = mpiexec(ranks, words, LIMIT, dict(environment))
    return finished.status, finished.stdout + finished.stderr


def understood(words, at=None):
    """(0, ..) if a program understands all these words: with an option that it can't know, that option alone is wrong."""
    at = len(words) if at is None else at
    status, output = alone([*words[:at], NO_OPTION, *words[at:]])
    wrong = re.search(rf"(unrecognized arguments|no such option): {NO_OPTION}\b *($|\(|\n)", output)
    return (0 if status == 2 and wrong else 1), output


def run(command, done):
    """(status, output) of a command as `SMALL` has it, after those that it needs."""
    if command in done:
        return done[command]
    if command in NEEDS:
        for other in SMALL:
            if other.endswith(NEEDS[command]):
                run(other, done)
    small = SMALL[command]
    words = [word for word in shlex.split(command) if word != "sudo"]
    environment = {}
    while "=" in words[0]:
        name, _, environment[name] = words.pop(0).partition("=")
    done[command] = start(words, environment, small)
    return done[command]


def start(words, environment, small):
    """(status, output) of the words of a command with these variables."""
    named = [Path(word).name == "gridgrad" and before != "-m" for before, word in zip(["", *words], words, strict=False)]
    words = [part for word, is_command in zip(words, named, strict=True) for part in (COMMAND if is_command else [word])]
    program, options = words[0], shlex.split(small.options)
    if small.how == "help":
        others = [name for name in programs() if not any(re.search(rf"\b{name}\b", other) for other in SMALL)]
        ended = [alone([sys.executable, "-m", "gridgrad", *name.split(), "--help"]) for name in others]
        return max((status for status, _ in ended), default=0), "".join(output for _, output in ended)
    if small.how == "launcher":
        variables = dict(word.split("=") for word in words[1:])
        here = {"MPIEXEC": variables["MPIEXEC"], "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        asked = "from gridgrad.experiments.launching.start_ranks import find_mpiexec; print(find_mpiexec())"
        return alone([sys.executable, "-c", asked], here)
    if program == "make":
        return alone(["make", "-n", *words[1:]])
    if Path(program).name == "pip":
        return understood([sys.executable, "-m", "pip", *words[1:]])
    if program in ("sbatch", "qsub"):
        return alone(["bash", "-n", *words[1:]])
    if program == "salloc":
        words = words[next(i for i, word in enumerate(words) if word.endswith("python")) :]
    if Path(program).name == "mpiexec":
        ranks, words = int(words[2]), words[3:]
        return job(small.ranks or ranks, [*words[1:], *options], environment)
    words = [sys.executable, *words[1:]]
    if small.how == "parse":
        return understood([*words, *options])
    if "MPIEXEC" in environment:
        launcher = shlex.split(environment.pop("MPIEXEC"))
        if Path(launcher[0]).name == "gridgrad":  # another library's mpiexec is not tried
            launcher = [*COMMAND, *launcher[1:]]
            status, output = understood([sys.executable, *launcher[1:], "-n", "1", "true"], len(launcher))
            if status:
                return status, output
    if words[2:4] == ["gridgrad", "launch"]:
        at = next(i for i, word in enumerate(words) if i > 3 and word.isdecimal() and not words[i - 1].startswith("--"))
        words[at] = str(small.ranks or words[at])
        if "--hosts" in words:
            status, output = understood(words, 4)
            words[4:at] = []
            if status:
                return status, output
    return alone([*words, *options], environment)


def test_every_command_has_an_entry():
    new = commands().keys() - SMALL.keys()
    assert not new, f"new commands: give them entries in {Path(__file__).name}"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=command.replace(".venv/bin/", "")[:90], marks=marks(documents))
        for command, documents in commands().items()
    ],
)
def test_the_command_runs(command, inside, done):
    status, output = run(command, done)
    assert status == 0, f"{command}\nstatus {status}\n{output}"


@pytest.mark.parametrize(("command", "block"), list(printed_blocks()))
def test_what_a_command_is_said_to_print_is_what_it_prints(command, block, inside, done):
    printed = [line.strip() for line in run(command, done)[1].splitlines()]
    assert [line.strip() for line in block.splitlines() if line.strip() not in printed] == []


def test_every_entry_is_a_command_of_the_documents():
    assert SMALL.keys() <= commands().keys() and NEEDS.keys() <= SMALL.keys()
    assert all(small.why for small in SMALL.values() if small.how != "run")


@pytest.mark.parametrize("block", python_blocks())
def test_the_block_of_python_runs(block, inside):
    (inside / "block.py").write_text(block.replace("range(100)", "range(2)"))
    status, output = job(2, ["-m", "mpi4py", "block.py"], {"PYTHONPATH": "."})
    assert status == 0, f"{block}\nstatus {status}\n{output}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_code_stands_in_blocks_of_a_known_language(document):
    known = {
        "sh",
        "python",
        "toml",
        "json",
        "text",
        "diff",
        "{toctree}",
        "{eval-rst}",
        "bash",
    }  # bash: of other systems, see tests/test_sites.py
    assert {language for language, _ in BLOCK.findall(document.read_text())} <= known
    text = text_without_blocks(document)
    assert "```" not in text and not re.search(r"^( {4}|\t)", text, re.MULTILINE), "indented commands would not run"


def slug(heading):
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", [*DOCUMENTS, *RESULTS], ids=lambda document: str(document.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for link in LINK.findall(text_without_blocks(document)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.is_file() and target.is_relative_to(ROOT), f"{link}: no such file"
        if anchor:
            assert anchor in {slug(line.lstrip("# ")) for line in target.read_text().splitlines() if line.startswith("#")}, link


@pytest.mark.parametrize("document", sorted({*DOCUMENTS, *RESULTS}), ids=lambda document: str(document.relative_to(ROOT)))
def test_files_that_are_named_exist(document):
    folders = "nn|parallel|datasets|experiments|tests|results|docs"
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", text_without_blocks(document)):
        assert (ROOT / path).exists(), f"{path}: no such file or folder"


def test_the_readme_names_every_program():
    section = (ROOT / "README.md").read_text().split("## Programs")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert named == [*FRONT, STUDY]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 115
