"""`--net FILE.py:FUNCTION`: a network with a layer of one's own, on several ranks, in reports, checkpoints and sweeps."""

import json

import pytest

from gridgrad.nn.zoo import network_names
from tests.experiments.programs import job, program

OWN = """
from gridgrad.nn import Linear
from gridgrad.nn.device import xp
from gridgrad.nn.layers.activations import Activation

class Softplus(Activation):
    def activate(self, x, y):
        xp.logaddexp(x, x.dtype.type(0), out=y)

    def slope(self, y, out):
        xp.negative(y, out=out)
        xp.expm1(out, out=out)
        xp.negative(out, out=out)

def make(shape, outputs):
    return [Linear(*shape, 12), Softplus(), Linear(12, outputs)]

def wrong(shape, outputs):
    return [Linear(7, outputs), 1 / 0]

def few(shape, outputs):
    return [Linear(*shape, outputs + 1)]

def none(shape, outputs):
    pass
"""


def test_a_layer_of_ones_own_trains_on_any_grid_and_a_changed_file_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    words = ["train", "--net", "own.py:make", "--steps", "6", "--dtype", "float64", "--quiet"]
    assert program(*words, "--report", "1.json", "--checkpoint", "c").returncode == 0
    assert job(2, *words, "--grid", "model=2", "--report", "2.json").status == 0
    one, two = (json.loads((tmp_path / f"{ranks}.json").read_text()) for ranks in (1, 2))
    assert one["net"] == two["net"] == network_names.identified("own.py:make")
    assert two["final_loss"] == pytest.approx(one["final_loss"], rel=1e-10)
    explained = program("explain", "--net", "own.py:make", "--shape", "4", "--outputs", "1")
    assert explained.returncode == 0 and "own.py:make@" in explained.stdout

    predict = ["predict", "c", "--data", "airfoil", "--out", "p.csv"]
    unnamed = program(*predict)  # a checkpoint does not choose which file is run
    assert unnamed.returncode == 2 and f"has the network {one['net']}, which is your own code" in unnamed.stderr
    (tmp_path / "own.py").rename("moved.py")
    assert program(*predict, "--net", "moved.py:make").returncode == 0

    (tmp_path / "own.py").write_text(OWN.replace("12", "13"))
    refused = program(*words, "--resume", "c")
    assert refused.returncode == 2 and "was written with --net own.py:make@" in refused.stderr
    with pytest.raises(ValueError, match="own.py has changed"):
        network_names.build(one["net"], 4, 1)


def test_what_is_wrong_in_the_file_is_said_with_its_line(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    (tmp_path / "torn.py").write_text("def make(:\n")
    cases = {
        f"{file}:wrong": "own.py, line 19: ZeroDivisionError: division by zero",
        f"{file}:few": r"of shape \(3,\), but \(2,\) are wanted",
        f"{file}:none": "none must return a list of layers, not NoneType",
        f"{file}:mak": "has no function mak .did you mean make.",
        f"{tmp_path}/torn.py:make": "torn.py, line 1: SyntaxError",
        str(file): "did you mean .*own.py:FUNCTION",
    }
    for spec, message in cases.items():
        with pytest.raises(ValueError, match=message) as caught:
            network_names.build(spec, 5, 2)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        network_names.identified("nothing.py:make")


def test_a_sweep_measures_a_file_and_measures_anew_what_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "--nets", "own.py:make", "--ranks", "1", "--steps", "3", "--repeats", "1", "--out", "s.jsonl"]
    nets = set()
    for text in (OWN, OWN.replace("12", "13")):
        (tmp_path / "own.py").write_text(text)
        assert program(*words).returncode == 0
        nets |= {json.loads(line)["net"] for line in (tmp_path / "s.jsonl").read_text().splitlines()}
    assert len(nets) == 2 and all(net.startswith("own.py:make@") for net in nets)
    (tmp_path / "own.py").unlink()
    assert program("plot", "speedup", "s.jsonl").returncode == 0
