"""Whatever a new user types is answered: by what was asked for, or by one line that says what is wrong.

A line of the table is STATUS | WORDS | TEXT: what follows `gridgrad`, the status with which it ends, and what it says of it. At
status 2 TEXT stands in the one line of the error, and nothing is written; else it stands in what is printed. All are typed in a
folder with a few made-up files, one after another.
"""

import shlex
import subprocess
import sys

import pytest

from gridgrad.experiments.common import command
from gridgrad.parallel.job import run
from gridgrad.parallel.job.run import UserError, one_line
from tests.experiments.programs import run_main

FILES = {
    "mine.csv": "a,b,price\n" + "".join(f"{i},{i * i % 7},{3 * i + 1}.5\n" for i in range(200)),
    "net.py": "from gridgrad.nn import Linear\ndef make(shape, outputs):\n    return [Linear(*shape, outputs)]\n",
    "folder/text.txt": "to be or not to be\n",
}
LINES = """
0 | | usage: gridgrad NAME
0 | --help | explain
0 | --version | gridgrad 1.
0 | help train | --grid
2 | trian | did you mean train?
0 | train --epochs 1 --net mlp:8,tanh | epoch 1
0 | train --steps 2 --grid auto --optimizer adadelta --l2 0.001 | test mean squared error
0 | train --steps 2 --checkpoint c | test mean squared error
0 | train --steps 4 --checkpoint c --resume c | goes on after step 2
0 | train --steps 2 --dataset table:mine.csv | column price, taken as values; inputs and targets are standardised
0 | train --net net.py:make --steps 2 | net.py:make@
2 | train --batchsize 4 | did you mean --batch-size?
2 | train --optimizer adma | did you mean adam?
2 | train --lr nan | above 0
2 | summary --net net.py:make --shape 8,8,3 --outputs 2 | net.py, line 3: TypeError
2 | train --dataset table:nothing.csv | nothing.csv
2 | train --batch-size 5000 | larger than the data: 1202
2 | train --grid batch=2 | such as by mpiexec -n 2
2 | train --grid 2x2 | AXIS=SIZE
2 | train --plan out,in | 3
2 | train --report folder | no ordinary file
2 | train --trace x.json --report ./x.json | same file
0 | sweep --nets mlp:4,relu --predict 1,2 --shape 4 --outputs 1 --out pre.jsonl | plot speedup pre
0 | plot speedup pre.jsonl | pre-speedup.png
2 | plot speedup folder/text.txt | text.txt, line 1
0 | partition --net lenet5 --ranks 2 --out o.h5 | --grid model=2 --plan o.h5
2 | partition --net lenet5 --profile folder/text.txt | text.txt
0 | explain --net lenet5 --ranks 2 --grid model=2 --plan o.h5 | ms waiting
0 | explain --ranks 4 --grid model=4 --plan out --shares 5,1,1,1 | --shares 5,1,1,1
0 | explain --net mlp:8,relu --shape 4 --nodes 4 --gpus 2 --machine perlmutter-a100:bandwidth=200 | A100 with 200 Gbit/s
2 | explain --net lenet5 --ranks 2 --memory 0.0001 | the largest layer
2 | explain --net lenet5 --grid stage=2 --pipeline async:2 --export none | async:2
2 | explain --net lenet5 --grid batch=2 --out x.png | x.png
2 | calibrate --out /proc/no/m.json | /proc/no
2 | study convergence --dataset random:12x12x1,3,20 --batch-size 5 --out f.json --ways batch | 'batch' is for several ranks
2 | study protocols --dataset random:12x12x1,3,20 --batch-size 5 --out f.json --samples 3 | --batch-size
0 | check | ok
2 | check --ranks 2 | 2 ranks were asked for but 1 started
2 | launch | number of ranks
2 | launch 2 nothing.py | nothing.py
0 | slurm train --dataset airfoil | #SBATCH
0 | slurm --out "a b.sh" train | then sbatch
2 | slurm --time 1-24:00:00 -- train | --time
2 | slurm --ranks-per-node 4 -- train --grid batch=3 | 3 places
2 | slurm --kind requeue -- train | --checkpoint
2 | supervise --ranks 1 -- sweep | only train
2 | supervise --ranks 1 -- train --steps 1 | --checkpoint
0 | checkpoints c --verify | whole
2 | checkpoints folder | folder has no checkpoints
0 | predict c --data airfoil --out p.csv | written: p.csv
2 | predict c --data airfoil --out p.txt | .csv or .npy
0 | summary --net lenet5 --batch-size 8 | Conv2d
2 | summary --measure --net mlp:1000000,1000000,relu | GiB
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder in which all of them are typed."""
    path = tmp_path_factory.mktemp("typed")
    for name, text in FILES.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    return path


@pytest.mark.parametrize("line", LINES.strip().splitlines(), ids=lambda line: line.split("|")[1].strip())
def test_it_is_answered(line, here, monkeypatch, capsys):
    status, words, text = (part.strip() for part in line.split("|", 2))
    monkeypatch.chdir(here)
    monkeypatch.setenv("GRIDGRAD_DATA", str(here / "data"))
    monkeypatch.setattr(sys, "argv", ["gridgrad", *shlex.split(words)])
    monkeypatch.setattr(run, "run", lambda main: main())
    monkeypatch.setattr(command, "start", lambda name, arguments: run_main(monkeypatch, name, *arguments))
    files = {path for path in here.rglob("*") if path.is_file()}
    try:
        command.main()
        ended, said = 0, capsys.readouterr().out
    except UserError as error:
        ended, said = 2, one_line(error)
    except SystemExit as ending:
        ended, said = ending.code or 0, capsys.readouterr().out
    assert ended == int(status) and text in said and said, said
    if ended:
        assert "\n" not in said.strip() and {path for path in here.rglob("*") if path.is_file()} == files


def test_bash_completes_programs_options_and_choices(tmp_path):
    (tmp_path / "completion").write_text(command.completion("bash"))
    typed = {
        "gridgrad tr": "train",
        "gridgrad train --opt": "--optimizer",
        "gridgrad train --optimizer adag": "adagrad",
        "gridgrad study prot": "protocols",
        "gridgrad help pip": "pipeline",
    }
    lines = [f"COMP_WORDS=({words}); COMP_CWORD={words.count(' ')}; _shtab_gridgrad; echo ${{COMPREPLY[*]}}" for words in typed]
    script = "\n".join([f"source {tmp_path / 'completion'}", *lines])
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert found.stdout.splitlines() == list(typed.values()), found.stderr
