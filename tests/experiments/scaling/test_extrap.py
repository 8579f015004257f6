"""A curve in Extra-P's format, the closed formulas of what is sent, and the program that puts both beside each other."""

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from gridgrad.experiments.scaling import extrap, volumes
from gridgrad.experiments.scaling.growth import Growth, constant, parsed, product
from gridgrad.experiments.scaling.records import lines
from gridgrad.experiments.scaling.study import Curve, Study
from gridgrad.experiments.scaling.summary import rows
from gridgrad.experiments.studies.extrap import document, file_names
from tests.experiments.programs import assert_refused, program
from tests.experiments.scaling import made_up_studies as made_up

ROOT = Path(__file__).resolve().parents[3]
EXTRAP = next(filter(None, map(shutil.which, ("extrap", ROOT / ".venv-extrap" / "bin" / "extrap"))), None)
NET, BATCH = "mlp:64,64,relu", 120  # on airfoil: 4 features, 1 output
GRADIENTS, ACTIVATIONS = 36360.0, 62400.0  # bytes that 2 ranks were counted to send in a step, on each axis alone
HALF, ONE, NO = Fraction(1, 2), Fraction(1), Fraction(0)


def counted(weak=False, **settings):
    """Records of a study as real runs of this network have counted what they send. Sums of gradients are all-reduces."""
    given = {"nets": [NET], "batch_size": BATCH, "ranks": [1, 4, 9, 16, 25, 36], "scaling": ["weak" if weak else "strong"]}
    study = Study(given | settings)
    found = []
    for point in study.points:
        sizes = dict(word.split("=") for word in point.settings["grid"].split(","))
        batch, model = int(sizes["batch"]), int(sizes["model"])
        sums, loss = GRADIENTS * (batch - 1), 48.0 * (point.ranks - 1)
        others = ACTIVATIONS * (model - 1) * (point.ranks if weak else 1)
        table = [("gradients", "all-reduce", sums), ("3", "all-gather", others / 2), ("3", "reduce-scatter", others / 2),
                 ("loss", "all-reduce", loss)]  # fmt: skip
        table = [{"layer": layer, "kind": kind, "bytes": sent, "calls": 2 * point.ranks, "seconds": 1e-3}
                 for layer, kind, sent in table if sent]  # fmt: skip
        said = {
            "features": 4, "outputs": 1, "plan": ["out", "in", "in"] if model > 1 else ["in"] * 3, "communication": table,
            "bytes": {"all-reduce": sums + loss, "all-gather": others / 2, "reduce-scatter": others / 2},
            "samples_per_step": float(point.settings["batch_size"]),
        }  # fmt: skip
        found += [made_up.record(study, point, n, (0.01 + 0.001 * n) / point.ranks, **said) for n in range(2)]
    return found


@pytest.mark.parametrize(
    ("text", "terms", "at_4"),
    [
        ("5.0", ((5, NO, NO),), 5),
        ("-2952.0 + 2952.0 * p^(1)", ((-2952, NO, NO), (2952, ONE, NO)), 3 * 2952),
        ("1.5 + -2.0e-3 * p^(-1/2) * log2(p)^(1)", ((1.5, NO, NO), (-0.002, -HALF, ONE)), 1.498),
        ("1 + 2 * log2(p)^(2)", ((1, NO, NO), (2, NO, Fraction(2))), 9),
    ],
)
def test_models_as_extra_p_prints_them(text, terms, at_4):
    found = parsed(text)
    assert found.terms == terms and found(4) == pytest.approx(at_4)


@pytest.mark.parametrize("text", ["", "None", "1 + q", "2 * p^p", "__import__('os')", "1 + 2 * p^(1/2", "nan"])
def test_what_is_no_model_is_refused(text):
    with pytest.raises(ValueError, match="no model that Extra-P prints"):
        parsed(text)


def test_growths_in_words():
    assert str(product(36360, 0, 1)) == "-3.636e+04 + 3.636e+04 p"
    assert str(product(100, 1, "1/2", 2)) == "-100 p + 50 p^(3/2)"
    assert str(Growth(())) == str(constant(0.0)) == "0"
    assert str(parsed("1.5 + -2.0 * p^(-1/2) * log2(p)^(1)")) == "1.5 - 2 p^(-1/2) log2(p)"
    assert (product(100, 0, 1) + constant(100)).terms == ((0, NO, NO), (100, ONE, NO))


def test_the_file_has_the_values_of_all_runs_by_region():
    [(of, found)] = extrap.curves(rows(counted(schemes=["batch"], ranks=[1, 4]))).items()
    assert of[0].series == "batch" and not of[1]
    head, *blocks = extrap.text(found).strip().split("\n\n")
    assert head == "PARAMETER p\nPOINTS 1 4"
    assert blocks[0] == "REGION step\nMETRIC time\nDATA 0.01 0.011\nDATA 0.0025 0.00275"
    assert "REGION step->communicate\nMETRIC bytes\nDATA 0.0 0.0\nDATA 109224.0 109224.0" in blocks
    assert "REGION step->communicate->gradients\nMETRIC bytes\nDATA 0.0 0.0\nDATA 109080.0 109080.0\n" in [
        f"{b}\n" for b in blocks
    ]
    assert not any("activations" in block for block in blocks)  # there are none on this axis
    assert extrap.text(found, ["bytes"]).count("METRIC") == 2


@pytest.mark.parametrize(
    ("options", "gradients", "activations"),
    [
        ({"schemes": ["batch"]}, product(GRADIENTS, 0, 1), constant(0)),
        ({"schemes": ["model"]}, constant(0), product(ACTIVATIONS, 0, 1)),
        ({"schemes": ["2d"]}, product(GRADIENTS, 0, "1/2"), product(ACTIVATIONS, 0, "1/2")),
        ({"grids": ["batch=*,model=2"], "schemes": [], "ranks": [2, 4, 6]}, product(GRADIENTS, 0, 1, 2), constant(ACTIVATIONS)),
        ({"schemes": ["batch"], "weak": True}, product(GRADIENTS, 0, 1), constant(0)),
        ({"schemes": ["model"], "weak": True}, constant(0), product(ACTIVATIONS, 1, 1)),
    ],
)
def test_the_closed_formulas_are_what_was_counted(options, gradients, activations):
    [curve] = extrap.curves(rows(counted(**options))).values()
    laws = volumes.laws(curve)
    for row in curve:
        terms = volumes.sent(row)
        assert sum(terms.values()) == pytest.approx(row.bytes) and row.ranks == 1 or terms["loss"] > 0
        assert laws["gradients"](row.ranks) == pytest.approx(gradients(row.ranks), abs=1e-6)
        assert laws["activations"](row.ranks) == pytest.approx(activations(row.ranks), abs=1e-6)
        assert sum(law(row.ranks) for law in laws.values()) == pytest.approx(row.bytes)


@pytest.mark.parametrize(
    "settings",
    [{"protocol": "local:4"}, {"grid": "stage=4"}, {"grid": "height=4"}, {"shares": "1,2,3,4"}],
)
def test_what_has_no_formula_gets_none(settings):
    [record] = counted(schemes=["batch"], ranks=[4])[:1]
    record |= {"grid": settings.get("grid", record["grid"]), "point": record["point"] | settings}
    [row] = rows([record])
    assert volumes.sent(row) == {}


def test_of_other_networks_the_gradients_along_batch_are_known():
    study = Study({"nets": ["lenet5"], "dataset": "mnist", "ranks": [4], "schemes": ["batch", "model"]})
    records = [made_up.record(study, point, features=784, outputs=10, plan=["in"] * 5) for point in study.points]
    alone, model = (volumes.sent(row) for row in rows(records))
    assert alone["gradients"] == 2 * 3 * 4 * 61706 and alone["activations"] == 0 and set(model) == {"loss"}
    shared = [record | {"bytes": {"shared sum": 1.0}} for record in records]
    assert volumes.sent(rows(shared)[0])["gradients"] == 3 * 4 * 61706
    assert set(volumes.sent(rows([record | {"features": 3} for record in records])[0])) == {"loss"}


def test_every_curve_has_a_file_of_its_own():
    names = ["α", "β", "batch=*,model=2", "batch=*;model 2", "batch model 2 2", "Batch"]
    curves = [(Curve("mlp", name, "strong"), predicted) for name in [*names, "batch"] for predicted in (False, True)]
    found = file_names(curves)
    assert list(found) == curves and len({name.lower() for name in found.values()}) == len(curves)
    assert found[Curve("mlp", "α", "strong"), False] == "mlp-strong.txt"
    assert found[Curve("mlp", "β", "strong"), False] == "mlp-strong-2.txt"
    assert found[Curve("mlp", "batch=*;model 2", "strong"), True] == "mlp-batch-model-2-strong-predicted-2.txt"


def test_machines_have_files_of_their_own_and_the_prediction_of_each_point_stands_beside_it():
    measured = counted(schemes=["batch"], ranks=[1, 4])
    other = [record | {"environment": made_up.ENVIRONMENT | {"processor": "another"}} for record in measured]
    priced = {"predicted": True, "machine": "a machine", "parts": {"compute": 0.5, "gradients": 0.25}}
    curves = extrap.curves(rows(measured + other + [record | priced for record in measured[::2]]))
    assert sorted(file_names(curves).values()) == [
        "mlp-64-64-relu-batch-processor-a-processor-strong.txt", "mlp-64-64-relu-batch-processor-another-strong.txt",
        "mlp-64-64-relu-batch-strong-predicted.txt"]  # fmt: skip
    fitted = [extrap.Fitted(extrap.COMPUTE, extrap.TIME, constant(1.0))]
    text = document(curves, dict.fromkeys(curves, fitted))
    assert text.count("## mlp:64,64,relu, batch") == text.count("| step->compute | time | 1 | - | 4 | 1 | 0.5 |") == 3


PRINTED = """#!/bin/sh
echo "a warning" >&2
printf 'step\\ttime\\t0.01 + 2.0 * p^(-1)\\nstep->communicate\\tbytes\\t-36408.0 + 36408.0 * p^(1)\\n'
printf 'step->wait\\tbytes\\tNone\\nelse\\ttime\\t1.0\\n'
"""


@pytest.mark.mpi
def test_the_program_puts_both_beside_each_other(tmp_path):
    runs, out, fake = tmp_path / "s.jsonl", tmp_path / "out", tmp_path / "fake"
    runs.write_text(lines(counted(schemes=["batch"])))
    none = program("study", "extrap", runs, "--out", out, "--program", tmp_path / "none")
    assert none.returncode == 0 and "is not installed, so no models were fitted" in none.stdout, none.stderr
    assert [path.name for path in out.iterdir()] == ["mlp-64-64-relu-batch-strong.txt"]
    fake.write_text(PRINTED)
    fake.chmod(0o755)
    finished = program("study", "extrap", runs, "--out", out, "--program", fake)
    assert finished.returncode == 0 and finished.stdout.endswith("and models.md written to " + f"{out}\n"), finished.stderr
    assert (
        "## mlp:64,64,relu, batch, strong scaling\n\nMeasured on 1, 4, 9, 16, 25, 36 ranks, a processor."
        in (out / "models.md").read_text()
    )
    line = next(line for line in finished.stdout.splitlines() if "bytes" in line)
    assert line.count("-3.641e+04 + 3.641e+04 p") == 2 and line.split()[-2:] == [str(36408 * 575)] * 2
    wrong, alone = tmp_path / "wrong", tmp_path / "alone.jsonl"
    wrong.write_text("#!/bin/sh\necho no >&2\nexit 3\n")
    wrong.chmod(0o755)
    alone.write_text(lines(counted(schemes=["batch"], ranks=[1])))
    assert_refused(1, "extrap", [
        (["--program", wrong, runs], "ended with status 3: no"), ([alone], "several numbers of ranks"),
        ([tmp_path / "none.jsonl"], "there is no file"), (["--program", "true", runs], "Extra-P printed no models"),
        (["--metrics", "time,flops", runs], "must be some of time, bytes, not 'time,flops'"),
    ], ["--out", out])  # fmt: skip


@pytest.mark.parametrize("options", [{"schemes": ["batch"]}, {"schemes": ["model"]}, {"schemes": ["2d"]}])
@pytest.mark.skipif(not EXTRAP, reason=f"Extra-P is not installed: {extrap.HOW}")
def test_extra_p_finds_the_closed_formulas(options):
    [curve] = extrap.curves(rows(counted(**options))).values()
    laws = volumes.laws(curve)
    fitted = {one.region: one.growth for one in extrap.models(curve, EXTRAP) if one.metric == extrap.BYTES}
    found = {region.rpartition("->")[2]: growth for region, growth in fitted.items() if region != extrap.COMMUNICATE}
    assert found.keys() == {term for term in ("gradients", "activations") if laws[term](4)}
    for term, growth in found.items():
        assert growth(1024) == pytest.approx(laws[term](1024), rel=1e-6)
