"""The manifest makes a checkpoint whole: nothing else is ever read, and what is not whole is known by one line."""

import json

import pytest

from gridgrad.parallel.checkpoint import manifest
from gridgrad.parallel.checkpoint.manifest import NAME, Manifest, digest, found_in, new_folder, prune, remove, time_to_save
from gridgrad.parallel.checkpoint.shard_file import sha256
from tests.clock import Clock


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
    assert found_in(tmp_path / "new" / "er") == ([made], []) and found_in(tmp_path) == ([], [])
    assert not any(made.damage(entry) for entry in made.files)


def test_a_manifest_that_ends_early_or_was_changed_is_damaged(tmp_path):
    made = checkpoint(tmp_path, 3, 0.25)
    path = made.folder / NAME
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 3):  # the last byte ends the line
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"{path}: damaged"):
            Manifest.read(made.folder)
    for place in range(0, len(whole) - 1, 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="damaged"):
            Manifest.read(made.folder)
    assert found_in(tmp_path) == ([], [f"{path}: damaged"])


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1}, {"step": "3"}, {"step": 1.0}, {"step": True}, {"workers": 0}, {"workers": None}, {"saved": "now"},
        {"value": "best"}, {"value": [1]}, {"settings": []}, {"settings": None}, {"files": {}}, {"files": [3]}, {"files": []},
        {"files": [{}]}, {"format": "another"}, {"format": None}, {"more": 1},
        *({"files": [{"name": name, "size": 1, "sha256": ""}]} for name in ("", ".", "..", "../x", "/x", "a/b", 3)),
        {"files": [{"name": "x", "size": -1, "sha256": ""}]}, {"files": [{"name": "x", "size": "1", "sha256": ""}]},
        {"files": [{"name": "x", "size": 1, "sha256": None}]},
    ],
    ids=str,
)  # fmt: skip
def test_values_of_other_kinds_are_refused(tmp_path, change):
    """Even where the checksum is that of these values."""
    made = checkpoint(tmp_path, 3)
    content = json.loads((made.folder / NAME).read_text())
    del content["sha256"]
    content |= change
    (made.folder / NAME).write_text(json.dumps(content | {"sha256": digest(content)}))
    with pytest.raises(ValueError, match="damaged"):
        Manifest.read(made.folder)


def test_other_contents_are_refused(tmp_path):
    for content in (b"", b"[]", b"3", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"sha256": NaN}'):
        (tmp_path / NAME).write_bytes(content)
        with pytest.raises(ValueError, match="damaged"):
            Manifest.read(tmp_path)


def test_damaged_files_are_named(tmp_path):
    made = checkpoint(tmp_path, 3)
    first, second = made.files
    path = made.folder / first["name"]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert made.damage(first) == f"{path} has {len(whole) - 1} bytes instead of {len(whole)}"
    path.write_bytes(whole[:-1] + b"?")
    assert made.damage(first) == f"{path} is not what was written" and not made.damage(second)
    path.unlink()
    assert made.damage(first) == f"{path}: No such file or directory"
    with pytest.raises(OSError):  # it would not be whole
        made.write()
    with pytest.raises(ValueError):  # JSON has no infinity
        Manifest(3, 1.0, float("inf"), 1, [second], {}, made.folder).write()


def steps(directory):
    return [manifest.step for manifest in found_in(directory)[0]]


def test_the_last_ones_and_the_best_one_are_kept(tmp_path):
    values = {10: 0.5, 20: 0.2, 30: None, 40: 0.3, 50: 0.4}
    for step, value in values.items():
        checkpoint(tmp_path, step, value)
        prune(tmp_path, 2)
    assert steps(tmp_path) == [50, 40, 20]
    checkpoint(tmp_path, 60, 0.2)  # as good as the best one, and newer
    prune(tmp_path, 1)
    assert steps(tmp_path) == [60]
    checkpoint(tmp_path, 70)
    prune(tmp_path, 1)
    assert steps(tmp_path) == [70, 60]


def test_what_ended_jobs_have_left_is_deleted_and_nothing_else(tmp_path):
    made = checkpoint(tmp_path, 10)
    left = new_folder(tmp_path, 20)
    (left / "rank-0000.h5").write_bytes(b"half")
    (tmp_path / "step-notes.txt").write_text("mine")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").write_text("mine")
    prune(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["others", made.folder.name, "step-notes.txt"]
    assert new_folder(tmp_path, 10).name == "step-000000010-2"  # a later run of the same step
    assert Manifest.read(made.folder) == made


def test_the_newest_is_the_one_that_was_saved_last(tmp_path):
    made = [checkpoint(tmp_path, step, saved=saved) for step, saved in ((5, 9.0), (7, 1.0), (7, 3.0), (8, 3.0))]
    assert found_in(tmp_path)[0] == [made[0], made[3], made[2], made[1]]
    prune(tmp_path, 2)
    assert found_in(tmp_path)[0] == [made[0], made[3]]
    remove(made[0].folder)
    assert not made[0].folder.exists() and found_in(tmp_path)[0] == [made[3]]


def test_the_next_one_is_newer_even_if_the_clock_goes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "time", Clock(5000.0))
    assert time_to_save(tmp_path) == 5000.0
    ahead = checkpoint(tmp_path, 5, saved=8600.0)
    assert time_to_save(tmp_path) > 8600.0
    behind = checkpoint(tmp_path, 6, saved=time_to_save(tmp_path))
    assert found_in(tmp_path)[0] == [behind, ahead]
