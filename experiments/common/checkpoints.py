"""The folders of the checkpoints of `train`, and what a run must have in common with the one that it goes on from."""

import os
from pathlib import Path

from gridgrad.datasets import images, table
from gridgrad.experiments.common.options import check_writable
from gridgrad.parallel.checkpoint.manifest import found_in, lock
from gridgrad.parallel.checkpoint.state import states_of
from gridgrad.parallel.choose.trained import MODEL
from gridgrad.parallel.job.run import UserError

COMPLETE = "complete"  # a file beside the checkpoints, touched when the run has ended with all its results
OF_BEST = "weights_of_epoch"  # in a manifest: the network has the best weights, and the validation those of the last step

# What the checkpoint's run and this one must have in common, and what makes the training another one if it differs.
SAME = "dataset", "net", "batch_size", "seed", "dtype", "optimizer", "protocol", "augment", "sorted", "validation"
DERIVED = {"samples": "training samples", "sums": "sums of gradients by --reduction, which were"}
FILES = "file", "x", "y", "test", "test_y"  # what the name of a table says of files; their content is compared
NOTED = "lr", "momentum", "nesterov", "l1", "l2", "schedule", "patience", "pipeline", "micro_batches", "reduce_dtype"
NOTED += "weight_decay", "clip_norm", "label_smoothing"


def prepare(directory, resume):
    """Make the folder of --checkpoint. OSError or ValueError if one can not write into it, or it belongs to another training.
    It does if it has checkpoints from which this run does not go on: it would delete them."""
    begins = same_folder(directory, resume)
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        check_writable(str(Path(directory) / "step"))
        with lock(directory):  # until the Saver takes it, so that what is wrong is said before data are read
            if not begins and any(found_in(directory)):
                raise ValueError(f"{directory} has checkpoints of an earlier run: add --resume {directory} to go on from them, "
                                 "or name another folder with --checkpoint")  # fmt: skip
    if resume and not begins and not any(found_in(resume)):
        raise ValueError(nothing_in(resume))


def touch(path):
    """Make an empty file, or give what is there a new time: nobody's file is emptied, and no link is followed."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        os.utime(path, follow_symlinks=False)


def nothing_in(directory):
    """The words for a folder without a whole checkpoint, from which a run was to go on."""
    return f"{directory} has no whole checkpoint: name the folder that --checkpoint wrote to, or leave --resume out"


def same_folder(directory, resume):
    """Whether checkpoints are written into the folder from which the run goes on."""
    return bool(directory and resume) and os.path.realpath(directory) == os.path.realpath(resume)


def settings_of(args, net, data, samples, steps, content):
    """What a later run compares with its own, and what is needed to use the network. samples: to train on."""
    sums = str(net.reduction) if "reduction" in states_of(net) else "exact"
    options = {name: getattr(args, name) for name in (*SAME, *NOTED)}
    said = {"name": args.dataset}
    if args.dataset.startswith(table.PREFIX):
        said = vars(table.parse(args.dataset)) | {"name": table.PREFIX}
    elif args.dataset.startswith(images.PREFIX):
        said = {"name": images.PREFIX, "size": images.parse(args.dataset)[1]}
    said = {option: str(value) for option, value in said.items() if value and option not in FILES}  # which may move
    model = data.description() | {"net": args.net, "seed": args.seed, "dtype": args.dtype} if args.checkpoint else None
    found = {"content": content, "dataset_options": said, "samples": samples, "total_steps": steps, "sums": sums, MODEL: model}
    return options | found


def compared(manifest, now):
    """Lines about what makes a run with the settings `now` another training; UserError if it can not go on from there."""
    before, notes = manifest.settings, []
    by_content = "content" in before  # else the name says what the data are
    moved = by_content and before.get("dataset_options") == now.get("dataset_options")
    for name in (*SAME, *DERIVED):
        if before.get(name) != now.get(name) and not (moved and name == "dataset"):
            option = DERIVED.get(name, f"--{name.replace('_', '-')}")
            raise UserError(f"--resume: {manifest.folder} was written with {option} {before.get(name)}, not {now.get(name)}: "
                            "give the same, or another folder")  # fmt: skip
    if by_content and before["content"] != now.get("content"):
        raise UserError(f"--resume: {manifest.folder} was written with other data in {before.get('dataset')} than there are "
                        f"now in {now.get('dataset')}: give the same, or another folder")  # fmt: skip
    if before.get("dataset") != now.get("dataset"):
        notes.append(f"the data were {before.get('dataset')} before, with the same content")
    different = [name for name in (*NOTED, "total_steps") if before.get(name) != now.get(name)]
    if different:
        words = ", ".join(f"{name} {before.get(name)} -> {now.get(name)}" for name in different)
        notes.append(f"this is not the training that was interrupted: {words}")
    return notes
