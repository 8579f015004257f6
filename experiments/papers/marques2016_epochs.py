"""How long an epoch of the stacked autoencoder of Marques 2016, Appendix A, takes on one core: 784-WIDTH-250-10 on MNIST.

    mpiexec -n 1 gridgrad papers.marques2016_epochs --width 500 --steps 50

Trains with the functions of the study `autoencoder`, but for a few steps alone, on made-up images of the size of those of
MNIST, on whose values the time does not depend. Prints one line of JSON: the seconds of an epoch of 50,000 samples in
minibatches of 64 of each phase, the pre-training of both autoencoders and the fine-tuning, scaled from so many steps.
"""

import json
import time
from functools import partial
from types import SimpleNamespace

from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.studies.autoencoder import RATE, Stack, made_up
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.job.run import run
from gridgrad.parallel.training import steps_per_epoch

SAMPLES, BATCH, INPUTS, SECOND, CLASSES = 50_000, 64, 784, 250, 10


def main():
    parser = Parser(prog="papers.marques2016_epochs", description="How long an epoch of a stacked autoencoder takes.")
    parser.add_argument("--width", type=whole(1), default=500, help="units of the first hidden layer")
    parser.add_argument("--steps", type=whole(1), default=50, help="that are timed of each phase, after as many that are not")
    args = parser.parse_args()
    with ProcessGrid(MPI.COMM_WORLD) as grid:
        timed = seconds_of_steps([INPUTS, args.width, SECOND], args.steps, partial(parallelize, grid=grid, allocate=False))
    scale = steps_per_epoch(SAMPLES, BATCH) / args.steps
    seconds = {phase: one * scale for phase, one in timed.items()}
    print(json.dumps({"width": args.width, "steps": args.steps, "seconds": seconds, "versions": report.versions()}))


def seconds_of_steps(widths, steps, placed):
    """{phase: seconds of so many steps}. widths: of the input and the hidden layers. placed: as `Stack` takes it."""
    settings = SimpleNamespace(
        batch_size=BATCH, momentum=0.9, dtype="float32", corruption=0.0, seed=0, pretrain_epochs=2, epochs=2, pretrain_lr=RATE,
        lr=RATE,
    )  # fmt: skip
    part, found, stack = made_up(INPUTS, CLASSES, settings, steps), {}, Stack(widths, CLASSES, settings, placed)
    for position in range(len(widths) - 1):
        found[f"pre-training {position + 1}"] = seconds_of_second(partial(stack.pretrain, part, position))
    return found | {"fine-tuning": seconds_of_second(partial(stack.finetune, part))}


def seconds_of_second(train):
    """The seconds of the second epoch. train: a function that trains, and calls another one after each epoch."""
    ends = []
    train(lambda *_: ends.append(time.perf_counter()))
    return ends[1] - ends[0]


if __name__ == "__main__":
    run(main)
