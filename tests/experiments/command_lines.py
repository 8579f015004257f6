"""Command lines as new users type them: what is right, what is odd and what is wrong, with what each answers.

A line is STATUS | WORDS | TEXT: what follows `gridgrad`, with which status it ends, and what it says of it. With status 2 TEXT
stands in the one line of the error, else in all that is printed. `2x ` in front of the words: on so many ranks. They are typed
in a folder with a few made-up files, one after another.
"""

import shlex

from gridgrad.experiments.launching.start_ranks import Finished, mpiexec
from tests.experiments.programs import program

FILES = {
    "mine.csv": "a,b,price\n" + "".join(f"{i},{i * i % 7},{3 * i + 1}.5\n" for i in range(200)),
    "ragged.csv": "a,b\n1,2\n3\n",
    "text.txt": "to be or not to be\n",
    "mine.toml": 'speed = "fast"\n',
    "mine.py": "print('hello')\n",
    "net.py": "from gridgrad.nn import Linear\ndef make(shape, outputs):\n    return [Linear(*shape, outputs)]\n",
}

LINES = """
# ----- the command itself
0 | | usage: gridgrad NAME
0 | --help | explain
0 | -h | reproduce
0 | --version | gridgrad 1.
0 | study | Which of several ways to train reaches an accuracy first
0 | study --help | usage: gridgrad study NAME
2 | trian | there is no program trian (did you mean train?)
2 | Train | there is no program Train
0 | help | protocol
0 | help net | vgg16
0 | help train | --grid
2 | help nets | there is no help on nets (did you mean net?)
0 | completion | bash|zsh
2 | completion fish | use bash or zsh
2 | version | there is no program version
2 | --verbose | there is no program --verbose
2 | run train | there is no program run
2 | hosts run --hosts 4 | hosts is gone: use gridgrad launch --hosts 4
2 | pruned | pruned is a study: use gridgrad study pruned
2 | study prune | there is no study prune (did you mean pruned?)
2 | study train | there is no study train
2 | study ../train | there is no study ../train
2 | train.py | there is no program train.py
2 | experiments.train | there is no program experiments.train
2 | 4 train | there is no program 4
# ----- train: help
0 | train --help | --help all has all
0 | train --help all | update protocol
0 | train -h | --grid
2 | train --help grid | there are --help and --help all
2 | train help | unrecognized arguments: help
# ----- train: right
0 | train --steps 2 | test mean squared error
0 | train --steps 2 --quiet |
0 | train --epochs 1 --net mlp:8,tanh | epoch 1
0 | train --steps 2 --net mlp2 | samples a second
0 | train --steps 2 --net mlp:relu | test mean squared error
0 | train --steps 2 --optimizer adam | test mean squared error
0 | train --steps 2 --optimizer adadelta --l2 0.001 | test mean squared error
0 | train --steps 2 --dtype float64 --seed 7 | test mean squared error
0 | train --steps 2 --grid batch=1 | test mean squared error
0 | train --steps 2 --grid auto | test mean squared error
0 | train --steps 2 --grid batch=1,model=1,height=1 | test mean squared error
0 | train --steps 2 --batch-size 1202 | test mean squared error
0 | train --steps 2 --micro-batches 128 | test mean squared error
0 | train --steps 3 --validation 0.2 | validation
0 | train --epochs 1 --schedule step:5:0.5,warmup:2 | epoch 1
0 | train --steps 2 --report r.json --trace t.json --trace-steps 1 | samples a second
0 | train --steps 2 --report r2.json --profile | samples a second
2 | train --steps 2 --predictions p.csv | must end in .npy
2 | train --steps 2 --tf32 | for the products of a GPU
0 | train --steps 2 --predictions p.npy | samples a second
0 | train --steps 2 --checkpoint c | test mean squared error
0 | train --steps 4 --checkpoint c --resume c | goes on after step 2
0 | train --steps 4 --resume c | goes on after step
0 | train --steps 2 --dataset airfoil5 --net mlp:4,relu | test mean squared error
0 | train --steps 2 --dataset table:mine.csv | column price
2 | train --steps 2 --dataset table:mine.csv,target=a | say kind=values
0 | train --steps 2 --dataset table:mine.csv,target=a,kind=values | column a
0 | train --dataset=airfoil --steps=1 --net=mlp:4,relu | samples a second
0 | 2x train --steps 2 --grid batch=2 | batch=2
0 | 2x train --steps 2 --grid model=2 | model=2
0 | 2x train --steps 2 --grid model=2 --plan out,in,out | model=2
0 | 2x train --steps 2 --grid stage=2 | pipeline 1f1b
0 | 2x train --steps 2 --grid batch=2 --shares 3,1 | batch=2
0 | 2x train --steps 2 --grid batch=2 --reduction plain --update sharded | reduction plain
0 | 2x train --steps 2 --grid batch=2 --protocol local:2 | protocol local:2, 2 workers
0 | 3x train --steps 2 --grid batch=3 --reader scatter | batch=3
0 | 2x train --steps 2 --grid batch=2,model=1 | batch=2
# ----- train: odd
0 | train --steps 2 --protocol server:asp | note: --protocol server:asp has one worker
0 | train --steps 2 --shares auto | note: --shares: of no effect on one rank
0 | train --steps 2 --rebalance 2 | note: --rebalance: of no effect on one rank
0 | train --steps 2 --watchdog 60 --check-replicas 1 | note: --check-replicas, --watchdog
0 | train --steps 2 --update sharded | note: --update: of no effect on one rank
0 | train --steps 2 --reduce-dtype float16 | note: --reduce-dtype
0 | 2x train --steps 2 --grid batch=2 --plan out | note: --plan out changes nothing
0 | 3x train --steps 2 --grid batch=3 --batch-size 2 | note: 1 of the 3 ranks
# ----- train: wrong
2 | train --step 3 | unrecognized arguments: --step
2 | train --batchsize 10 | unrecognized arguments: --batchsize
2 | train --batch_size 10 | unrecognized arguments: --batch_size
2 | train -n 4 | unrecognized arguments: -n 4
2 | train mnist | unrecognized arguments: mnist
2 | train --batchsize 4 | did you mean --batch-size?
2 | train --optimizer adma | did you mean adam?
2 | plot speedup --widht 4 s.jsonl | did you mean --width?
2 | train --steps | expected one argument
2 | train --steps 0 | whole number of at least 1, not '0'
2 | train --steps -1 | whole number of at least 1, not '-1'
2 | train --steps 1.5 | whole number of at least 1, not '1.5'
2 | train --steps 1e3 | whole number of at least 1, not '1e3'
2 | train --steps ten | not 'ten'
2 | train --steps 2 --epochs 2 | not allowed with argument
2 | train --epochs 0 | at least 1
2 | train --lr 0 | must be a number above 0
2 | train --lr -0.1 | must be a number above 0
2 | train --lr fast | must be a number
2 | train --lr nan | must be a number
2 | train --momentum 1 | below 1
2 | train --momentum 0.9 --optimizer adam | --momentum is no option of adam
2 | train --nesterov --momentum 0 | nesterov needs a momentum above 0
2 | train --optimizer sgdm | invalid choice
2 | train --schedule linear | unknown schedule 'linear'
2 | train --dtype float16 | invalid choice
2 | train --dtype double | invalid choice
2 | train --seed -1 | at least 0
2 | train --net resnet50 | resnet50
2 | train --net mlp | mlp
2 | train --net resnet18s --dataset mnist | did you mean resnet18?
0 | train --net net.py:make --steps 2 | net.py:make@
2 | train --net net.py | did you mean net.py:FUNCTION?
2 | train --net net.py:made | has no function made (did you mean make?)
2 | train --net nothing.py:make | No such file
2 | summary --net net.py:make --shape 8,8,3 --outputs 2 | net.py, line 3: TypeError
2 | train --net mlp: | mlp
2 | train --net mlp:64,64 | 64
2 | train --net mlp:64,swish | neither a number nor an activation
2 | train --net mlp:0,relu | at least 1
2 | train --net mlp:-4,relu | mlp
2 | train --net mlp:8,relu,dropout=2 | Dropout: p must be
2 | train --net vgg16 | vgg16
2 | train --net mnist-cnn | images
2 | train --net pruned:nothing.h5 | nothing.h5
2 | train --dataset mnits | unknown data set 'mnits'
2 | train --dataset MNIST | unknown data set 'MNIST'
2 | train --dataset table:nothing.csv | no file nothing.csv
2 | train --dataset table:text.txt | text.txt
2 | train --dataset table:ragged.csv | ragged.csv
2 | train --dataset table:mine.csv,target=cost | no column cost
2 | train --dataset table:mine.csv,colour=red | colour
2 | train --dataset table: | table
2 | train --dataset images:nowhere | nowhere
2 | train --dataset ./mine.csv | unknown data set './mine.csv'
2 | train --data-dir mine.csv --dataset ethylene | mine.csv
2 | train --batch-size 0 | at least 1
2 | train --batch-size 5000 | --batch-size 5000 is larger than the data: 1202
2 | train --micro-batches 129 | are more than the 128 samples
2 | train --grid batch=2 | 2 places but the number of ranks is 1: change one of them, such as by mpiexec -n 2
2 | train --grid batch:2 | is not AXIS=SIZE
2 | train --grid batch=two | batch
2 | train --grid data=2 | is not AXIS=SIZE
2 | train --grid 2x2 | is not AXIS=SIZE
2 | train --grid batch=0 | at least 1
2 | train --grid batch=1,batch=1 | twice
2 | train --grid | expected one argument
2 | 2x train --grid height=2 | the axis height splits images
2 | 2x train --grid batch=4 | 4 places but the number of ranks is 2
2 | 2x train --grid batch=2 --shares 1,2,3 | 3 for the axis batch, whose size is 2
2 | 2x train --grid batch=2 --shares 0,0 | must have a share above 0
2 | 2x train --shares 3,1 | name it with --grid
2 | 2x train --protocol local:4 | name the grid
2 | 2x train --grid model=2 --plan out,in | 3 layers
2 | train --plan outwards | unknown choice 'outwards'
2 | train --plan conv=banana | conv
2 | train --plan nothing.h5 | nothing.h5
2 | train --pipeline 1f1b --grid batch=1 | is for a grid with stages
2 | train --pipeline warp --grid stage=1 | warp
2 | train --cuts 1 | cuts are for a pipeline
2 | train --cuts a,b | whole number
2 | train --reduction quick | there is no reduction 'quick'
2 | train --reduction overlap:x | there is no reduction
2 | train --update half | invalid choice
2 | train --reduce-dtype bfloat16 | invalid choice
2 | train --reader pigeon | invalid choice
2 | train --protocol gossip | there is no protocol 'gossip'
2 | train --protocol local | local
2 | train --protocol local:0 | at least 1
2 | train --protocol server:ssp | write server:ssp:S
2 | train --device tpu | tpu
2 | train --device gpu | gpu
2 | train --device cpu,cpu | 2
2 | train --tf32 | --tf32 is for the products of a GPU
2 | train --augment flip | images
2 | train --augment rotate=9 --dataset mnist | rotate=9
2 | train --validation 1 | below 1
2 | train --patience 3 | --patience needs --validation
2 | train --keep 2 | --keep needs --checkpoint
2 | train --checkpoint-steps 5 | --checkpoint-steps needs --checkpoint
2 | train --checkpoint-minutes 5 | --checkpoint-minutes needs --checkpoint
2 | train --checkpoint mine.csv --steps 1 | mine.csv
2 | train --checkpoint c --steps 2 | add --resume c
2 | train --resume nowhere | nowhere has no whole checkpoint
2 | train --resume folder | folder has no whole checkpoint
2 | train --resume c --net mlp:4,relu | was written with --net
2 | train --report folder | it is no ordinary file
2 | train --report /proc/none/r.json | can not write to /proc/none
2 | train --report | expected one argument
2 | train --report a.json --trace a.json | are the same file
2 | train --trace-steps 5 | --trace-steps needs --trace
2 | train --trace /proc/none/t.json | can not write
2 | train --simulate summit | --simulate is gone
2 | train --slow 0=2 | --slow is gone
2 | train --handicap 5=2 | --handicap 5=2
2 | train --watchdog 0 | above 0
2 | train --memory lots | must be a number
2 | train --lr 1e30 --steps 3 --net mlp:8,8,relu | not finite
# ----- sweep and plot
0 | sweep --help | networks
0 | sweep --nets mlp:4,relu --ranks 1 --schemes batch --steps 3 --repeats 1 --out s.jsonl | gridgrad plot speedup s.jsonl
0 | sweep --nets mlp:4,relu --predict 1,2,4 --shape 4 --outputs 1 --out pre.jsonl | gridgrad plot speedup pre.jsonl
0 | plot speedup s.jsonl --out s.png | s.png
0 | plot speedup pre.jsonl | pre-speedup.png
0 | plot --help | timeline
0 | plot speedup --help | --width
2 | plot | KIND
2 | plot s.jsonl | invalid choice
2 | plot speedup | required: FILE.jsonl
2 | plot speedup nothing.jsonl | nothing.jsonl
2 | plot speedup text.txt | text.txt, line 1, is no report of a sweep (it is not JSON
0 | plot breakdown s.jsonl | s-breakdown.png
2 | plot breakdown s.jsonl --layers | --layers is gone
2 | plot breakdown s.jsonl --where network=vgg16 | there is no network vgg16
0 | plot lines s.jsonl --x ranks --y step_s --series series --out l.svg | l.svg
2 | plot lines s.jsonl --x ranks --y stp_s | there is no column stp_s
2 | plot timeline s.jsonl | is no timeline
2 | plot roofline s.jsonl | s.jsonl
2 | plot speedup s.jsonl --out figure.xyz | xyz
0 | sweep --grids stage=2 --nets mlp:4,relu --steps 7 --repeats 1 --out st.jsonl | stage=2
2 | sweep --grids rows=2 | grid 'rows=2'
2 | sweep --grids height=2 --nets mlp:4,relu | the axis height splits images
2 | sweep --schemes height --ranks 2 --nets mlp:4,relu | the axis height splits images
2 | sweep --predict 1 --nets mlp:4,relu --shape 4 --outputs 1 --out st.jsonl | runs that were measured
2 | sweep nothing.toml | nothing.toml
2 | sweep text.txt | text.txt
2 | sweep mine.toml | unknown setting
2 | sweep --nets mlp:4,swish --ranks 1 | swish
2 | sweep --schemes 3d | must be one of batch
2 | sweep --ranks 0 | at least 1
2 | sweep --ranks one | whole number
2 | sweep --part 3/2 | at most 2
2 | sweep --shape 4 | they go with --predict
2 | sweep --predict 1,2 --machine summit | summit
2 | sweep --gather nothing.jsonl --out g.jsonl | nothing.jsonl
2 | 2x sweep | run it without mpiexec
# ----- explain, calibrate, check
2 | explain --ranks 4 --grid batch=4 --shares auto | times the ranks of a job
0 | explain --help | --machine
0 | explain --net mlp:64,64,relu --shape 16 --outputs 4 --ranks 2 | speedup
0 | explain --net mlp:64,64,relu --shape 16 --outputs 4 --ranks 4 --grid batch=4 | batch=4
0 | explain --net lenet5 --ranks 2 --batch-size 16 --out e.json | step
2 | explain --ranks 0 | at least 1
2 | explain --ranks 100000000 | at most
2 | explain --machine summit | summit
2 | explain --grid batch=3 --ranks 4 | 3 places but the number of ranks is 4
2 | explain --net mlp:64,relu --grid height=2 | height
2 | explain --shape 0 | at least 1
2 | explain --speeds 1,2 | name it with --grid
2 | explain --out /proc/none/e.json | can not write
0 | calibrate --help | machine file
2 | calibrate --out /proc/none/m.json | can not write
2 | calibrate --minutes 0 | above 0
0 | check | ok
0 | check --ranks 1 | ok
2 | check --ranks 2 | 2 ranks were asked for but 1 started
0 | 2x check | ok
# ----- launch, slurm, supervise
0 | launch --help | --hosts
0 | launch 1 train --steps 1 --net mlp:4,relu | samples a second
0 | launch 2 mine.py | hello
2 | launch | the number of ranks must be
2 | launch train | begin with it, such as: gridgrad launch 4 train
2 | launch 0 train | at least 1
2 | launch two train | not 'two'
2 | launch 2 | name the program
2 | launch 2 trian | there is no program trian
2 | launch 2 nothing.py | there is no program nothing.py
2 | launch 2 hosts | hosts is gone: use gridgrad launch --hosts 4
2 | launch --rate 10 2 train | add --hosts
2 | launch --hosts 0 2 train | at least 1
2 | launch -n 2 | name the program
0 | slurm --help | --site
0 | slurm -- train --steps 5 | #SBATCH
0 | slurm --nodes 2 --ranks-per-node 4 -- train --grid batch=8 | --nodes=2
0 | slurm --system pbs -- train | #PBS
0 | slurm --dry-run -- train | hours
2 | slurm | name the program that is run
2 | slurm -- trian | there is no program trian
2 | slurm -- train --nosuchoption | unrecognized arguments: --nosuchoption
2 | slurm --ranks-per-node 4 -- train --grid batch=3 | 3 places but the number of ranks is 4
2 | slurm --site nowhere -- train | nowhere
2 | slurm --kind requeue -- train | --checkpoint
2 | slurm --kind array -- train | sweep
2 | slurm --time soon -- train | soon
2 | slurm --system lsf -- train | invalid choice
2 | slurm --nodes 0 -- train | at least 1
0 | slurm train --dataset airfoil | #SBATCH
0 | slurm --nodes 2 mine.py --epochs 3 | mpi4py mine.py
2 | slurm --restarts 3 -- train | --restarts goes with --kind requeue
2 | slurm --ranks-per-node 4 -- train --grid batch=4 --reduction foo | there is no reduction 'foo'
2 | slurm --ranks-per-node 4 -- train --grid batch=4 --plan out,in | 2 choices but the net has 3 layers
2 | slurm --ranks-per-node 4 -- train --grid height=4 | the axis height splits images
2 | supervise | name the training behind --
2 | supervise --ranks 1 -- train --steps 1 | --checkpoint
2 | supervise -- check | only train has checkpoints
2 | supervise --ranks 0 -- train --checkpoint d | at least 1
0 | supervise --ranks 1 -- train --steps 2 --net mlp:4,relu --checkpoint d |
# ----- checkpoints, summary, partition, bench, reproduce, studies
0 | checkpoints c | whole
0 | checkpoints c --verify | whole
2 | checkpoints | required
2 | checkpoints nowhere | nowhere
2 | checkpoints folder | folder
0 | summary | parameters
0 | summary --net lenet5 --batch-size 8 | Conv2d
2 | summary --net lenet6 | lenet6
2 | summary --batch-size none | whole number
0 | partition --net lenet5 --ranks 2 --out o.h5 | next: gridgrad train --net lenet5 --grid model=2 --plan o.h5
0 | partition --net mlp:8,relu --shape 4 --outputs 3 --ranks 30 | more than --epsilon 0.1 allows
2 | partition --net mlp:8,relu --ranks 2 --shape 0 | at least 1
2 | partition --ranks 0 | at least 1
0 | bench --help | --quick
2 | bench --only nothing | bench: error:
0 | reproduce --help | laugier2018
2 | reproduce nobody1999 | nobody1999
2 | reproduce hegde2016 --ranks 1,2 | have no number of ranks
2 | reproduce laugier2018 --out mine.csv | mine.csv
2 | study crossover --help | crossover is a sweep: use gridgrad sweep crossover.toml
2 | study pruned --dataset nothing | nothing
"""


def cases():
    """(ranks, status, words, text) of each line."""
    for line in LINES.strip().splitlines():
        if not line.startswith("#"):
            status, words, text = (part.strip() for part in line.split("|", 2))
            ranks, _, rest = words.partition("x ")
            yield (int(ranks), int(status), rest, text) if ranks.isdecimal() else (1, int(status), words, text)


def folder_at(path):
    """The folder, with the files."""
    for name, text in FILES.items():
        (path / name).write_text(text)
    (path / "folder").mkdir()
    return path


def typed(ranks, words):
    """How `gridgrad WORDS` ends on so many ranks: a Finished."""
    words = shlex.split(words)
    if ranks > 1:
        return mpiexec(ranks, ["-m", "gridgrad", *words], 120)
    ended = program("gridgrad", *words)
    return Finished(ended.returncode, ended.stdout, ended.stderr)
