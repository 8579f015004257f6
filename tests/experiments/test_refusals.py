"""What does not fit is refused in one line that names it, before anything is trained or written."""

import pytest
from mpi4py import MPI

from gridgrad.experiments.studies import protocols
from tests.experiments.programs import refusal

LENET = "--net", "lenet5"
STAGES = *LENET, "--grid", "stage=2"
PREDICT = "--out", "s.jsonl", "--predict"
IMAGES = "--dataset", "random:12x12x1,3,20"
CLASSES = *IMAGES, "--net", "mlp:8,relu", "--batch-size", 5, "--out", "found.json"
CASES = {  # {program: [(its options, a word of the message)]}
    "autoencoder": [
        (("--dataset", "airfoil"), "--dataset airfoil"),
        (("--widths", "5,x"), "--widths"),
        (("--grid", "model=2"), "2 places"),
    ],
    "calibrate": [(("--out", "/proc/no/m.json"), "/proc/no")],
    "convergence": [
        ((*CLASSES, "--ways", "batch"), "'batch' is for several ranks"),
        ((*CLASSES, "--net", "vgg-style:4,4,4,4,4"), "1x1"),
    ],
    "explain": [
        ((*LENET, "--ranks", 2**40), "16777216"),
        ((*LENET, "--ranks", 2, "--memory", 0.0001), "the largest layer"),
        ((*LENET, "--machine", "cray-3"), "cray-3"),
        ((*LENET, "--gpus", 4, "--ranks-per-node", 4), "--gpus"),
        ((*STAGES, "--cuts", "3,4"), "cuts 3,4"),
        ((*STAGES, "--pipeline", "nope"), "'nope'"),
        ((*STAGES, "--pipeline", "async:2", "--export", "none"), "async:2"),
        ((*LENET, "--grid", "batch=2", "--out", "x.png"), "x.png"),
    ],
    "partition": [
        (("--net", "lenet6"), "'lenet6'"),
        ((*LENET, "--speeds", "1,2"), "--speeds"),
        ((*LENET, "--profile", "/dev/null"), "/dev/null"),
    ],
    "protocols": [
        ((*CLASSES, "--protocols", "sync,fast"), "'fast'"),
        ((*CLASSES, "--samples", 3), "--batch-size"),
    ],
    "pruned": [
        (("--zeros", 1), "--zeros"),
    ],
    "simulators": [
        (("--measured", "m.jsonl"), "--machine"),
        (("--measured", "/dev/null", "--machine", "ethernet-1g"), "/dev/null"),
    ],
    "summary": [
        (("--net", "mlp:8,relu", "--steps", 3), "--steps"),
    ],
    "sweep": [
        ((*PREDICT, "1,2", "--machine", "no-machine"), "no-machine"),
    ],
    "train": [
        (("--steps", 2, "--trace", "t.otf2"), ".json"),
        (("--steps", 2, "--trace", "x.json", "--report", "./x.json"), "same file"),
    ],
}


@pytest.mark.parametrize(("name", "words", "word"), [(name, *case) for name, cases in CASES.items() for case in cases])
def test_a_program_says_what_does_not_fit_and_writes_nothing(name, words, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(protocols, "run", lambda main: main())  # which would end this process
    assert word in refusal(MPI.COMM_SELF, name, words)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
