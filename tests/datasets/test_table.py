"""Tables of one's own: every format gives the same samples, each rank reads its own, and bad files are named in one line."""

import json
from functools import partial

import h5py
import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.datasets import stored

ROWS = 50


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def numbers():
    """50 rows of 4 columns, the last of which is the target of a regression."""
    return np.random.default_rng(0).normal(3, 5, (ROWS, 4)).round(3)


def load(name, dtype=np.float64):
    return datasets.load(f"table:{name}", dtype=dtype, directory="data")


def everything(part):
    indices = np.arange(len(part))
    return part.inputs(indices, tuple(slice(0, length) for length in part.sample_shape)), part.targets(indices)


def write_csv(path, numbers, header=None, mark=","):
    lines = [*([header] if header else []), *(mark.join(map(repr, row)) for row in numbers.tolist())]
    path.write_text("\n".join(lines) + "\n")


def write_hdf5(path, options, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)


WRITERS = {
    "quoted.csv": lambda path, t: write_csv(path, t, '"a","b, with a comma",c,price'),
    "bare.csv": lambda path, t: write_csv(path, t),
    "space.txt": lambda path, t: np.savetxt(path, t, header="a b c price"),
    "array.npy": np.save,
    "fortran.npy": lambda path, t: np.save(path, np.asfortranarray(t)),
    "packed.npz": lambda path, t: np.savez_compressed(path, table=np.asfortranarray(t)),
    "xy.npz": lambda path, t: np.savez(path, y=t[:, 3], x=t[:, :3]),
    "plain.h5": lambda path, t: write_hdf5(path, {}, table=t),
    "packed.h5": lambda path, t: write_hdf5(path, {"chunks": (7, 3), "compression": "gzip"}, table=t),
    "xy.hdf5": lambda path, t: write_hdf5(path, {}, x=t[:, :3], y=t[:, 3:]),
}
MAPPED = "array.npy", "plain.h5", "xy.hdf5"


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_samples(folder, numbers, name, monkeypatch):
    monkeypatch.setattr(stored, "BLOCK", 600)  # several blocks
    monkeypatch.setattr(stored, "CHUNK", 7)
    WRITERS[name](folder / name, numbers)
    data = load(name)
    assert (data.sample_shape, data.outputs, data.loss, len(data.train), len(data.test)) == ((3,), 1, "mse", 40, 10)
    train, test = (np.array(sorted(map(tuple, np.column_stack(everything(part))))) for part in (data.train, data.test))
    assert np.allclose(train.mean(axis=0), 0) and np.allclose(train.std(axis=0), 1)
    mean, std = (np.append(getattr(data.train, f"x_{m}"), getattr(data.train, f"y_{m}")) for m in ("mean", "std"))
    found = np.concatenate((train, test)) * std + mean
    assert np.allclose(sorted(map(tuple, found.round(3))), sorted(map(tuple, numbers)), atol=1e-4)
    assert isinstance(data.train.x.array.base if data.train.x.array.base is not None else data.train.x.array, np.memmap)
    other = load(f"{name},seed=1,test=0.3")
    assert len(other.test) == 15 and not np.array_equal(other.test.x.chosen[:10], data.test.x.chosen)
    assert sorted([*other.test.x.chosen, *other.train.x.chosen]) == list(range(ROWS))
    made = next((folder / "data" / "tables").iterdir())
    with h5py.File(made) as file:
        assert ("train" in file) == (name not in MAPPED), "what can be mapped where it lies is not copied"


COLUMNS = [  # (options, columns of the inputs, columns of the targets), of columns without a name, a, b, c and price
    ("", [0, 1, 2, 3], [4]), ("drop=a:0", [2, 3], [4]), ("target=c:a", [0, 2, 4], [1, 3]), ("inputs=1,target=-2", [1], [3]),
    ("shape=2x2x1", [0, 1, 2, 3], [4]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "inputs", "targets"), COLUMNS)
def test_columns_are_chosen_by_name_or_number(folder, numbers, options, inputs, targets):
    table = np.column_stack((np.arange(ROWS), numbers))
    write_csv(folder / "t.csv", table, ",a,b,c,price")
    data = load(f"t.csv,{options}" if options else "t.csv")
    assert (data.features, data.outputs) == (len(inputs), len(targets))
    assert data.sample_shape == ((2, 2, 1) if "shape" in options else (len(inputs),))
    assert np.array_equal(np.asarray(data.train.x).reshape(40, -1), table[data.train.x.chosen][:, inputs])
    assert np.array_equal(np.asarray(data.train.y), table[data.train.x.chosen][:, targets])
    assert np.allclose(data.train.unstandardise(data.train.targets(np.arange(40))), data.train.y[np.arange(40)])
    assert ("column 0, counted from 0, has no name and is an input (add drop=0" in data.note) == (0 in inputs)


ROWS_BELOW = "".join(f"{i / 7:.3f},{i * i / 9:.3f},{i % 2}\n" for i in range(1, 41))
FIRST_LINES = [
    ("0.1,0.517,1", "sample"), ("a,b,kind", "names"), ("?,0.517,1", "beside numbers"), ("0,1,2", "evenly spaced"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "what"), FIRST_LINES)
def test_what_the_first_line_is_is_clear_or_asked_for(folder, first, what):
    (folder / "t.csv").write_text(f"{first}\n{ROWS_BELOW}")
    if what in ("names", "sample"):
        data = load("t.csv")
        assert len(data.train) + len(data.test) == 40 + (what == "sample")
        assert ("taken as a sample (add names=yes" in data.note) == (what == "sample")
        assert ("taken as the names of the columns (add names=no" in data.note) == (what == "names")
    else:
        refused("t.csv", f"t.csv: line 1 may be the names of the columns or a sample: .*{what}.*; add names=yes or names=no")
    data = load("t.csv,names=yes")
    assert len(data.train) + len(data.test) == 40 and "taken as a sample" not in data.note


WORDS = np.array(["setosa", "a, b", "Ä"])[np.random.default_rng(1).integers(0, 3, ROWS)]
NUMBERS_OF = {"Ä": 2, "a, b": 0, "setosa": 1}


def write_words(path, numbers, names="p,q,r,kind", mark=","):
    lines = [f'{mark.join(map(repr, row[:3]))}{mark}"{word}"' for row, word in zip(numbers.tolist(), WORDS, strict=True)]
    path.write_text("\n".join([*[names.replace(",", mark)] * bool(names), *lines]) + "\n", encoding=path.stem)


WORDED = {
    "utf-16.csv": write_words, "utf-8.tsv": partial(write_words, names="", mark="\t"),
    "utf-8.npz": lambda path, t: np.savez(path, x=t[:, :3], y=WORDS),
    "bytes.h5": lambda path, t: write_hdf5(path, {}, x=t[:, :3], y=np.char.encode(WORDS, "utf-8")),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDED)
def test_targets_that_are_words_are_classes(folder, numbers, name, monkeypatch):
    monkeypatch.setattr(stored, "CHUNK", 7)
    WORDED[name](folder / name, numbers)
    data = load(name)
    assert (data.classes, data.loss, data.outputs) == (["a, b", "setosa", "Ä"], "cross-entropy", 3)
    right = np.array([NUMBERS_OF[word] for word in WORDS])
    for part in (data.train, data.test):
        assert np.array_equal(part.targets(np.arange(len(part))), right[part.x.chosen])
    assert "taken as 3 labels (a, b, setosa, Ä)" in data.note
    assert load(f"{name},test={name}{',test_y=y' * (name[-3:] in ('npz', '.h5'))}").outputs == 3


def test_arrays_are_inputs_and_targets_and_for_testing(folder, numbers):
    labels = np.arange(ROWS) % 3
    named = {"x_train": numbers, "y_train": labels, "x_test": numbers[:6], "y_test": labels[:6, np.newaxis]}
    np.savez(folder / "k.npz", **named)
    write_hdf5(folder / "k.h5", {}, **{name.replace("_", "/"): array for name, array in named.items()})
    for name in (
        "k.npz,x=x_train,y=y_train,test=x_test,test_y=y_test", "k.h5,x=x/train,y=y/train,test=x/test,test_y=y/test"
    ):  # fmt: skip
        data = load(name)
        found = data.loss, data.outputs, data.sample_shape, len(data.train), len(data.test)
        assert found == ("cross-entropy", 3, (4,), 50, 6)
        assert np.array_equal(everything(data.train)[1], labels) and np.array_equal(everything(data.test)[1], labels[:6])


def test_new_samples_are_chosen_and_standardised_like_those_of_the_training(folder, numbers):
    write_words(folder / "utf-8.csv", numbers)
    data = load("utf-8.csv,drop=q")
    like = json.loads(json.dumps(data.description()))
    (folder / "new.csv").write_text("r,id,p\n" + "".join(f"{row[2]},row,{row[0]}\n" for row in numbers.tolist()))
    np.save(folder / "new.npy", numbers[:, [0, 2]])
    for name, has_targets in (("new.csv", False), ("utf-8.csv", True), ("new.npy", False)):
        part = datasets.read_inputs(f"table:{name}", like, "data", np.float64)
        found, (whole, labels) = part.inputs(np.arange(ROWS), (slice(0, 2),)), everything(data.train)
        assert np.allclose(found[data.train.x.chosen], whole) and (part.y is not None) == has_targets
        assert not has_targets or np.array_equal(part.targets(data.train.x.chosen), labels)
    (folder / "bad.csv").write_text("p,q,r,kind\n1,2,3,setosa\n1,2,3,rose\n")
    with pytest.raises(ValueError, match="line 3 holds 'rose'"):
        datasets.read_inputs("table:bad.csv", like, "data")


def test_it_is_converted_once_and_anew_when_the_file_changes(folder, numbers):
    write_csv(folder / "t.csv", numbers)
    counts, times = [], []
    for change in (lambda: None, lambda: None, lambda: write_csv(folder / "t.csv", numbers[:40])):
        change()
        counts.append(len(load("t.csv").train))
        (made,) = (folder / "data" / "tables").iterdir()
        times.append(made.stat().st_mtime_ns)
    assert counts == [40, 40, 32] and times[0] == times[1] != times[2]


def refused(name, words, error=ValueError):
    for function in (datasets.prepare, datasets.load):
        with pytest.raises(error, match=words) as found:
            function(f"table:{name}", "data")
        assert "\n" not in str(found.value)


REFUSED = [  # (name, words); t.csv has columns a, b, c and another c, and the others are broken in one way
    ("", "names no file"), ("t.csv,colour=red", "'colour=red' is unknown"), ("t.csv,target=c", "2 columns c"),
    ("t.csv,test=1.5", "a share"), ("t.csv,test=u.csv", "its columns are not"),
    ("t.csv,kind=labels", "is no whole number"), ("t.csv,shape=4", "no sample of the shape 4"), ("t.xls", "no file t.xls in"),
    ("k.npz", "say which array"), ("k.npz,x=inputs,y=few", "50 inputs, but 7 targets"),
    ("letter.csv", "line 2 holds 'x', in column 1"), ("short.csv", "line 3 has 1 columns, expected 2"),
    ("words.csv", "9 different words for 9 samples are no classes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_what_is_wrong_with_a_name_or_a_file_is_said(folder, numbers, name, words):
    write_csv(folder / "t.csv", numbers, "a,b,c,c")
    write_csv(folder / "u.csv", numbers, "a,b,c,d")
    np.savez(folder / "k.npz", inputs=numbers, few=numbers[:7, 0])
    (folder / "letter.csv").write_text("1,4\n3,x\n5,6")
    (folder / "short.csv").write_text("a,b\n1,2\n3\n5,6")
    (folder / "words.csv").write_text("a,b\n" + "".join(f"1,x{i}\n" for i in range(9)))
    refused(name, words, OSError if name == "t.xls" else ValueError)
    assert not list((folder / "data").rglob("*.h5"))


def test_numbers_that_float32_can_not_tell_apart_are_refused(folder, numbers):
    numbers[:, 1] += 1e9  # such as seconds since 1970
    numbers[:, 2] = 1e9  # a constant is no information, but no mistake
    np.save(folder / "t.npy", numbers)
    with pytest.raises(ValueError, match="t.npy: .* of a column deviate by .* from their mean 1e.09, too little for float32"):
        load("t.npy", np.float32)
    inputs, _ = everything(load("t.npy").train)
    assert np.allclose(inputs[:, :2].std(axis=0), 1) and not inputs[:, 2].any()
