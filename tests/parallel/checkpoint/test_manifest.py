"""The manifest makes a checkpoint whole: nothing else is ever read, and what is not whole is known by one line.

Damaged manifests are in `tests/fuzz`, and files beside the checkpoints that are not ours in `tests/hostile`.
"""

import pytest

from gridgrad.parallel.checkpoint import manifest
from gridgrad.parallel.checkpoint.manifest import (
    NAME,
    Manifest,
    found_in,
    lock,
    new_folder,
    prune,
    time_to_save,
)
from gridgrad.parallel.checkpoint.shard_file import sha256
from tests.clock import Clock
from tests.mpi import mpi
from tests.parallel.checkpoint.training import folder


def checkpoint(directory, step, value=None, saved=1.5):
    """A whole checkpoint with two small files."""
    folder, files = new_folder(directory, step), []
    for name in ("rank-0000.h5", "rank-0001.h5"):
        (folder / name).write_bytes(b"%d of " % step + name.encode())
        files.append({"name": name, "size": (folder / name).stat().st_size, "sha256": sha256(folder / name)})
    made = Manifest(step, saved, value, 1, files, {"lr": 0.1, "net": "mlp2"}, folder)
    made.write()
    return made


def test_what_is_written_is_read(tmp_path):
    made = checkpoint(tmp_path / "new" / "er", 120, 0.25)
    assert made.folder.name == "step-000000120" and Manifest.read(made.folder) == made
    assert sorted(path.name for path in made.folder.iterdir()) == [NAME, "rank-0000.h5", "rank-0001.h5"]
    assert found_in(tmp_path / "new" / "er") == ([made], {}) and found_in(tmp_path) == ([], {})
    assert found_in(tmp_path / "none") == ([], {}) and not any(made.damage(entry) for entry in made.files)
    assert new_folder(tmp_path / "new" / "er", 120).name == "step-000000120-2"  # a later run of the same step


def test_damaged_files_are_named_and_what_is_not_whole_has_no_manifest(tmp_path):
    made = checkpoint(tmp_path, 3)
    first, second = made.files
    path = made.folder / first["name"]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    assert made.damage(first) == f"{path} is not what was written" and not made.damage(second)
    path.unlink()
    with pytest.raises(OSError):
        made.write()


# ----- which are kept


def steps(directory):
    return [manifest.step for manifest in found_in(directory)[0]]


def test_the_last_ones_and_the_best_one_are_kept(tmp_path):
    (new_folder(tmp_path, 5) / "rank-0000.h5").write_bytes(b"half")  # an ended job has left it
    values = {10: 0.5, 20: 0.2, 30: None, 40: 0.3, 50: 0.4}
    for step, value in values.items():
        checkpoint(tmp_path, step, value)
        prune(tmp_path, 2)
    assert steps(tmp_path) == [50, 40, 20] and len(list(tmp_path.glob("step-*"))) == 3
    checkpoint(tmp_path, 60, 0.2)  # as good as the best one, and newer
    prune(tmp_path, 1)
    assert steps(tmp_path) == [60]
    checkpoint(tmp_path, 70)
    prune(tmp_path, 1)
    assert steps(tmp_path) == [70, 60]


def test_the_newest_is_the_one_that_was_saved_last_even_if_the_clock_goes_back(tmp_path, monkeypatch):
    made = [checkpoint(tmp_path, step, saved=saved) for step, saved in ((5, 9.0), (7, 1.0), (7, 3.0), (8, 3.0))]
    assert found_in(tmp_path)[0] == [made[0], made[3], made[2], made[1]]
    monkeypatch.setattr(manifest, "time", Clock(2.0))  # it has gone back
    checkpoint(tmp_path, 6, saved=time_to_save(tmp_path))
    prune(tmp_path, 2)
    assert steps(tmp_path) == [6, 5]


@mpi(2)
def test_of_two_trainings_in_one_folder_the_second_is_refused(comm):
    with folder(comm) as directory:
        held = lock(f"{directory}/new/er") if comm.rank == 0 else None
        comm.Barrier()
        if comm.rank == 1:
            with pytest.raises(ValueError, match=rf"{directory}/new/er has .* runs \(process \d+ on .*\): wait"):
                lock(f"{directory}/new/er")
        comm.Barrier()
        assert comm.rank or held.note == ""
