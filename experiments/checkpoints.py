"""List the checkpoints in a folder, check them, or write the arrays of the newest one into one file.

gridgrad checkpoints checkpoints
gridgrad checkpoints checkpoints --verify
gridgrad checkpoints checkpoints --export arrays.h5
"""

import os
from datetime import datetime
from pathlib import Path

from gridgrad.experiments.common.options import Parser, user_input
from gridgrad.experiments.common.tables import table
from gridgrad.nn.files.hdf5_arrays import made_in_memory
from gridgrad.parallel.checkpoint.manifest import NAME, OWN_FOLDER, Manifest, found_in
from gridgrad.parallel.checkpoint.restore import whole_array
from gridgrad.parallel.job.run import UserError, one_line, run_launcher

WHOLE = "whole"


def options():
    parser = Parser(prog="checkpoints",
                    description="List the checkpoints that `train --checkpoint DIR` or a script has written.")  # fmt: skip
    add = parser.add_argument
    add("directory", metavar="DIR", help="the folder that has them")
    add("--verify", action="store_true", help="read all files and compare their checksums; the status is 2 if one is not what "
        "was written")  # fmt: skip
    add("--export", metavar="FILE.h5", help="write all arrays of the newest checkpoint, each whole, to this HDF5 file, and "
        "list nothing")  # fmt: skip
    return parser


def main():
    args = options().parse_args()
    with user_input():
        folders, directory = [], Path(args.directory)
        for path in sorted(directory.iterdir()):  # of checkpoints, whole or not
            is_ours = OWN_FOLDER.fullmatch(path.name) and (path.is_dir() or path.is_symlink())
            if is_ours or os.path.exists(path / NAME):  # False, too, in a folder of others that may not be read
                folders.append(path)
        if not folders:
            raise ValueError(f"{directory} has no checkpoints: name the folder that --checkpoint wrote to")
        if args.export:
            print(export(args.directory, args.export))
            return
    rows = [row(folder, args.verify) for folder in folders]
    print(table(rows))
    damaged = sum(cells["state"] != WHOLE for cells in rows)
    if args.verify and damaged:
        raise UserError(f"{damaged} of {len(rows)} in {args.directory} are not whole: --resume passes over these")


def row(folder, verify):
    """A row of the table. verify: whether files are read, instead of comparing their sizes alone."""
    found, state = dict.fromkeys(("step", "written", "ranks", "workers", "MiB", "validation")), WHOLE
    try:
        manifest = Manifest.read(folder)
        found |= {
            "step": manifest.step, "written": datetime.fromtimestamp(manifest.saved).isoformat(" ", "seconds"),
            "ranks": len(manifest.files), "workers": manifest.workers,
            "MiB": f"{sum(entry['size'] for entry in manifest.files) / 2**20:.1f}",
            "validation": None if manifest.value is None else f"{manifest.value:.6g}",
        }  # fmt: skip
        for entry in manifest.files:
            if verify:
                manifest.shard(entry)  # raises ValueError for what is wrong with a file, or what it says
            elif wrong := manifest.wrong_size(entry):
                state = wrong
                break
    except (OSError, ValueError) as error:
        unwritten = isinstance(error, FileNotFoundError) and found["step"] is None
        state = f"no {NAME}: its job ended while it was written, or is writing it" if unwritten else one_line(error)
    return {"folder": folder.name, **found, "state": state}


def export(directory, path):
    """Write the arrays of the newest checkpoint to an HDF5 file; returns a line about it. ValueError if it is damaged."""
    found, _ = found_in(directory)
    if not found:
        raise ValueError(f"{directory} has no whole checkpoint: name the folder that --checkpoint wrote to")
    manifest = found[0]
    shards = [manifest.shard(entry) for entry in manifest.files]
    with made_in_memory(path) as file:
        for worker in sorted({shard.worker for shard in shards}):
            own = [shard for shard in shards if shard.worker == worker]
            for kind, array in dict.fromkeys(names for shard in own for names in shard.parts):
                name = f"worker-{worker}/" * (manifest.workers > 1) + f"{kind}/{array}"
                file[name] = whole_array(own, kind, array)
    return f"written: {path}, with the arrays of {manifest.folder}"


if __name__ == "__main__":
    run_launcher(main)
