"""Predict with a network that was trained, for new samples in the units of the data.

    gridgrad predict checkpoints --data table:new.csv --out predictions.csv
    mpiexec -n 4 gridgrad predict checkpoints --data images:pictures --out classes.csv --grid batch=2,model=2

Of several checkpoints it takes the one with the lowest validation loss, where there was a validation, else the newest.
"""

import csv
import io

import numpy as np
from mpi4py import MPI

from gridgrad.datasets import read_inputs
from gridgrad.experiments.common.options import Parser, add_device, add_grid, check_writable, user_input
from gridgrad.experiments.common.report import write_array
from gridgrad.nn.files.whole_files import write_text
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import load, use_device
from gridgrad.parallel.job.run import UserError, on_root, run


def options():
    parser = Parser(prog="predict", description="Predict with a network that was trained, for new samples.")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the folder of train's --checkpoint, or one checkpoint in it")
    add = parser.add_argument
    add("--data", required=True, metavar="NAME", help="the samples: table:FILE with the columns of the training, or the inputs "
        "alone; images:FOLDER; or a data set, whose test samples are taken")  # fmt: skip
    add("--out", required=True, metavar="FILE", help="FILE.csv gets a line for each sample: columns of the table that the "
        "network does not read, and values in the units of the training, or its class and how probable that is; FILE.npy an "
        "array of the values or classes")  # fmt: skip
    add("--data-dir", metavar="DIR", help="folder of the data (default: $GRIDGRAD_DATA, else the user's cache)")
    add("--net", metavar="NET", help="the network, where the checkpoint can not name it; as for train")
    add_grid(parser)
    add_device(parser)
    return parser


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    if not args.out.endswith((".csv", ".npy")):
        raise UserError(f"--out {args.out}: the name must end in .csv or .npy")
    on_root(comm, lambda: check_writable(args.out))
    with user_input():
        use_device(comm, args.device, args.tf32)
        trained = load(args.checkpoint, args.grid, args.net and (lambda model: network_names.build(
            args.net, model["sample_shape"], model["outputs"], model["seed"], model["dtype"])))  # fmt: skip
    model = trained.model
    part = on_root(comm, lambda: read_inputs(args.data, model, args.data_dir, model["dtype"]))
    with user_input():
        part = read_inputs(args.data, model, args.data_dir, model["dtype"]) if part is None else part
        outputs = trained.outputs(part.x)
    if outputs is not None:
        found = trained.meaning(outputs)
        on_root(MPI.COMM_SELF, lambda: write_array(args.out, found) if args.out.endswith(".npy")
                else write_text(args.out, text_of(trained, outputs, found, part.x)))  # fmt: skip
        print(f"{len(found)} samples{how_good(trained, found, part)}\nwritten: {args.out}")
    trained.net.grid.free()


def text_of(trained, outputs, found, samples):
    """The text of a CSV file, which begins with what tells samples apart. found: the meaning of these outputs."""
    names, texts = getattr(samples, "kept", ([], None))
    before = list(texts()) if names else [[str(path)] for path in getattr(samples, "files", ())] or [[]] * len(found)
    if trained.is_classifier:
        heads = ["class", "probability"]
        rows = [[name, f"{share:.6f}"] for name, share in zip(found.tolist(), trained.shares(outputs).max(axis=1).tolist())]
    else:
        heads = trained.model["target_names"] or [f"output {number}" for number in range(found.shape[1])]
        rows = found.tolist()
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*names, *["file"] * hasattr(samples, "files"), *heads])
    lines.writerows([*first, *row] for first, row in zip(before, rows, strict=True))
    return text.getvalue()


def how_good(trained, found, part):
    """In words what the predictions are worth where the samples have targets, such as ": accuracy 98.20 %"."""
    if part.y is None or not len(found):
        return ""
    if trained.is_classifier:
        return f": accuracy {100 * np.mean(found == trained.named(part.targets(np.arange(len(part))))):.2f} %"
    rmse = np.sqrt(np.mean((found - np.asarray(part.y[:]).reshape(found.shape)) ** 2, axis=0))
    return f": root mean squared error {', '.join(f'{value:.4g}' for value in rmse[:8])} {trained.model['units']}".rstrip()


if __name__ == "__main__":
    run(main)
