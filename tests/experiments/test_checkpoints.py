"""The programs `checkpoints` and `checkpoint_cost`."""

import re

from tests.experiments.programs import program
from tests.parallel.checkpoint.test_manifest import checkpoint

HEAD = ["folder", "step", "written", "ranks", "workers", "MiB", "validation", "state"]


def rows(finished):
    """{folder: (step, ranks, validation, state)} of what it has printed."""
    head, *lines = finished.stdout.splitlines()
    assert head.split() == HEAD
    cells = [re.split(r"\s{2,}", line) for line in lines]
    return {folder: (step, ranks, value, state) for folder, step, _, ranks, _, _, value, state in cells}


def test_what_is_whole_and_what_is_wrong(tmp_path):
    made = [checkpoint(tmp_path, step, value) for step, value in ((10, 0.5), (20, None), (30, 0.25))]
    (made[1].folder / "rank-0001.h5").write_bytes(b"short")
    (made[2].folder / "manifest.json").write_text("{}")
    (tmp_path / "step-000000040").mkdir()
    finished = program("checkpoints", tmp_path)
    assert finished.returncode == 0 and finished.stderr == ""
    found = rows(finished)
    names = [f"step-0000000{step}" for step in (10, 20, 30, 40)]
    assert list(found) == names and found[names[0]] == ("10", "2", "0.5", "whole")
    assert found[names[1]][:3] == ("20", "2", "-") and found[names[1]][3].endswith("rank-0001.h5 has 5 bytes instead of 18")
    assert found[names[2]][3].endswith("manifest.json: damaged") and found[names[3]][3].startswith("no manifest.json: ")


def test_verifying_reads_all_files(tmp_path):
    made = checkpoint(tmp_path, 10)  # its files are not in HDF5
    assert rows(program("checkpoints", tmp_path))[made.folder.name][3] == "whole"
    finished = program("checkpoints", tmp_path, "--verify")
    assert finished.returncode == 2 and finished.stderr == (
        f"checkpoints: error: 1 of 1 in {tmp_path} are not whole: --resume passes over these\n"
    )
    assert rows(finished)[made.folder.name][3].endswith("rank-0000.h5: not an HDF5 file that can be read")
    path = made.folder / "rank-0000.h5"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert rows(program("checkpoints", tmp_path, "--verify"))[made.folder.name][3] == f"{path} is not what was written"


def test_other_folders_are_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for path, words in ((tmp_path, "has no checkpoints: name the folder"), (tmp_path / "no", "No such file or directory"),
                        (tmp_path / "file", "Not a directory")):  # fmt: skip
        finished = program("checkpoints", path)
        assert (finished.returncode, finished.stdout) == (2, "") and words in finished.stderr
        assert finished.stderr.startswith("checkpoints: error: ") and finished.stderr.count("\n") == 1
