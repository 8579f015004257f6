"""`--net FILE.py:FUNCTION`: a network of one's own in reports, checkpoints and sweeps."""

from pathlib import Path

import pytest
from mpi4py import MPI

from gridgrad.experiments.scaling import records
from gridgrad.nn.zoo import network_names
from tests.experiments.called import run_main
from tests.experiments.programs import refusal, trained

OWN = """
from gridgrad.nn import Linear, Tanh

def make(shape, outputs):
    return [Linear(*shape, 12), Tanh(), Linear(12, outputs)]

def wrong(shape, outputs):
    return [Linear(7, outputs), 1 / 0]

def few(shape, outputs):
    return [Linear(*shape, outputs + 1)]
"""
WORDS = "--net", "own.py:make", "--steps", 6, "--dtype", "float64", "--quiet"


def test_a_changed_file_is_noticed_and_a_checkpoint_does_not_choose_which_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    net = trained(MPI.COMM_SELF, *WORDS, "--checkpoint", "c")[0]["net"]
    assert net == network_names.identified("own.py:make")
    predict = "c", "--data", "airfoil", "--out", "p.csv"
    assert f"has the network {net}, which is your own code" in refusal(MPI.COMM_SELF, "predict", predict)
    Path("own.py").rename("moved.py")
    run_main(monkeypatch, "predict", *predict, "--net", "moved.py:make")
    sweep = "--nets", "own.py:make", "--schemes", "batch", "--predict", 1, "--shape", 4, "--outputs", 1, "--out", "s.jsonl"
    nets = set()
    for text in (OWN, OWN.replace("12", "13")):
        Path("own.py").write_text(text)
        run_main(monkeypatch, "sweep", *sweep)
        nets |= {record["net"] for record in records.read("s.jsonl")}
    assert len(nets) == 2 and all(one.startswith("own.py:make@") for one in nets)
    assert "was written with --net own.py:make@" in refusal(MPI.COMM_SELF, "train", [*WORDS, "--resume", "c"])
    with pytest.raises(ValueError, match="own.py has changed"):
        network_names.build(net, 4, 1)


def test_what_is_wrong_in_the_file_is_said_with_its_line(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    (tmp_path / "torn.py").write_text("def make(:\n")
    cases = {
        f"{file}:wrong": "own.py, line 8: ZeroDivisionError",
        f"{file}:few": r"of shape \(3,\), but \(2,\)",
        f"{tmp_path}/torn.py:make": "torn.py, line 1: SyntaxError",
    }
    for spec, message in cases.items():
        with pytest.raises(ValueError, match=message) as caught:
            network_names.build(spec, 5, 2)
        assert "\n" not in str(caught.value)
