"""Laugier et al. 2018: what its formulas give, steps under assumptions, the search, claims that turn with measurements."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments.common import predicted_reports
from gridgrad.experiments.papers import laugier2018, laugier2018_kept
from gridgrad.experiments.papers import laugier2018_formulas as formulas
from gridgrad.experiments.papers import laugier2018_items as items
from gridgrad.experiments.papers import laugier2018_steps as steps
from gridgrad.experiments.papers.cited import DERIVED, NEVER, PRINTED, published
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.items import FORESEEN, KEPT, MISSING
from gridgrad.experiments.plots import laugier2018 as figure
from gridgrad.experiments.studies import laugier2018_predicted as predictions
from gridgrad.experiments.studies import laugier2018_search as search
from gridgrad.parallel.performance import machine as machines
from tests.experiments.figures import is_figure
from tests.experiments.programs import job, program

SIZES = 32, 64, 128, 512, 1024
GRIDS = {"batch": "batch={},model=1", "model": "batch=1,model={}", "2d": "batch={},model=2"}


def verdicts(measured):
    return {claim.name: claim.verdict for claim in items.claims(laugier2018.tables(measured))}


def sized(*values):
    return dict(zip(SIZES, values, strict=True))


def speedups(of):
    """The rows of a made-up measurement on "airfoil". of: {(scheme, number on its axis): {model size: speedup}}."""
    return [
        {"data": "airfoil", "net": f"mlp:{size},{size},{size},relu", "grid": GRIDS[scheme].format(number), "speedup": value,
         "min": value, "max": value, "oversubscribed": False}
        for (scheme, number), sizes in of.items() for size, value in sizes.items()
    ]  # fmt: skip


# ----- what the paper prints, and what follows


def test_numbers_without_a_number_of_ranks_have_none():
    rows = laugier2018.tables()["printed"]
    assert [(row["printed"], row["ranks"]) for row in rows] == [(5.8, 32), (5.8, 32), (1.2, NEVER), (0.99, NEVER)]
    for name in ("Figure 6", "Figure 7"):
        item = next(item for item in items.items(laugier2018.tables()) if item.name == name)
        assert item.rows and all(row.cited.kind == PRINTED and "the best of" in row.label for row in item.rows)


def test_volumes_and_the_size_of_a_block_are_derived_by_the_printed_formulas():
    weights, widths = 16 * 1024 + 2 * 1024**2 + 1024 * 2, 16 + 3 * 1024 + 2
    batch, model = formulas.derived_volume("batch", 4), formulas.derived_volume("model", 4)
    assert batch.value == pytest.approx(2 * 4 / 3 * weights * 4 / 1e6) and batch.place == "section 5"
    assert model.value == pytest.approx(3 * 100 * 4 / 3 * widths * 4 / 1e6) and model.kind == DERIVED
    assert formulas.derived_volume("2d", 4) is None
    limit = formulas.crossover("batch=2,model=2")
    assert limit.value == pytest.approx(5.6 / (4 - 2)) and limit.place == "section 7"
    for factor, faster in ((0.5, 0), (2.0, 1)):  # below the limit the first way is faster, above it the second
        both = [way.value for way in formulas.ways("batch=2,model=2", factor * limit.value)]
        assert min(both) == both[faster]
    assert formulas.sent(1024, 3, 2, 1) == pytest.approx((weights + 3 * 1024 + 2) * 4)


# ----- steps under assumptions


def test_without_assumptions_a_step_is_that_of_the_cost_model():
    machine = machines.read(steps.MACHINE)
    cases = ((512, 1, 1), (512, 32, 1), (512, 1, 32), (512, 8, 4))
    for node, where in ((32, machine), (1, predictions.apart(machine))):
        found = steps.seconds(cases, steps.BASE | {steps.NODE: node})
        for (size, batch, model), value in zip(cases, found, strict=True):
            scheme = "2d" if batch > 1 and model > 1 else "model" if model > 1 else "batch"
            net = predictions.network(size, "float64")
            _, cost = predicted_reports.cost(net, scheme, batch * model, 100, where, steps.PLAN)
            assert value == pytest.approx(cost.seconds, rel=1e-3)


def test_each_assumption_does_what_it_says():
    cases = ((512, 1, 1), (512, 32, 1), (512, 1, 32), (512, 8, 4))
    base = steps.seconds(cases, steps.BASE)
    ratio = lambda **more: steps.seconds(cases, steps.BASE | {getattr(steps, k): v for k, v in more.items()}) / base  # noqa: E731
    assert (ratio(LAYERS=1) < 0.4).all() and (ratio(LAYERS=4) > 1).all()
    assert (ratio(NUMBERS="float32") < 0.7).all() and (ratio(PEAK=0.01) > 1).all()
    assert ratio(NODE=1)[0] == 1 and (ratio(NODE=1)[1:] < 1).all()
    threads = ratio(THREADS=steps.ALL_CORES)
    assert threads[0] < 0.5 and threads[1:] == pytest.approx(1)  # 32 ranks on a node have a core each
    gathered, lists, scattered = ratio(SUMS=steps.GATHERED), ratio(MESSAGES=steps.LISTS), ratio(MINIBATCH=steps.FROM_FIRST)
    assert gathered[0] == lists[0] == scattered[0] == 1 and min(*gathered[1:], *lists[1:]) > 1 and scattered[1] > 1
    assert ratio(MESSAGES=steps.LISTS, PROGRAM=steps.INTEGRATED)[0] > 1  # then one rank packs its messages, too
    narrow = ratio(NETWORK=steps.NARROW)
    assert narrow[:2] == pytest.approx(1) and (narrow[2:] < 0.5).all()
    seconds = steps.seconds(cases, steps.BASE | {steps.PYTHON: 1e-3})
    assert seconds - base == pytest.approx(8e-3)  # four layers, forward and backward
    assert (ratio(ALGORITHM=steps.PRINTED)[2:] > 1).all()


def test_two_numbers_are_fitted_to_the_logs_and_no_other_pair_fits_better():
    table = published("laugier2018_logs").tables["seconds"]
    cases = tuple(row[:3] for row in table.rows)
    logged = np.array([row[3] for row in table.rows]) / 10 / 5600
    without = steps.AS_LOGGED | {steps.PYTHON: 0.0}
    buffers = steps.seconds(cases, without | {steps.MESSAGES: steps.BASE[steps.MESSAGES]})
    numbers = (steps.seconds(cases, without) - buffers) / steps.OF_LIST  # that become objects, or are read from them
    off = {}
    for of_list, of_layer in product(np.arange(30, 91, 5) * 1e-9, np.arange(0, 501, 50) * 1e-6):
        off[of_list, of_layer] = np.log((buffers + numbers * of_list + 4 * of_layer) / logged)
    best = min(off, key=lambda pair: (off[pair] ** 2).mean())
    assert best == pytest.approx((steps.OF_LIST, steps.OF_LAYER)) and np.abs(off[best]).max() < 0.15
    assert [row["logged ms"] for row in search.logs()] == pytest.approx(list(1e3 * logged))


# ----- the search


def test_ratios_are_of_the_grids_that_the_paper_names():
    seconds = dict.fromkeys(search.CASES, 10.0)
    seconds |= {(1024, 32, 1): 2.0, (512, 32, 1): 5.0, (1024, 1, 8): 8.0, (512, 16, 1): 3.0, (512, 8, 2): 4.0}
    found = search.ratios(np.array([[seconds[case] for case in search.CASES]]))
    assert found[0] == pytest.approx([5.0, 2.0, 1.25, 1.0])  # 2-D over batch: 3/4 on 16 ranks, 1 on 4 and 8
    assert not search.in_order(found)[0]
    seconds |= {(512, 4, 1): 9.0, (512, 8, 1): 9.0}
    found = search.ratios(np.array([[seconds[case] for case in search.CASES]]))
    assert search.in_order(found)[0] and found[0, 3] == pytest.approx(0.9)
    assert search.distances(found)[0] == pytest.approx(5.8 / 2)


def test_the_search_finds_the_fewest_assumptions(monkeypatch, tmp_path):
    kept = {steps.LAYERS: (3, 1), steps.NODE: (32, 1), steps.MESSAGES: ("buffers", steps.LISTS)}
    kept[steps.ALGORITHM] = (steps.BASE[steps.ALGORITHM], steps.PRINTED)
    some = tuple(replace(one, options=kept.get(one.name, one.options[:1])) for one in steps.ASSUMPTIONS)
    monkeypatch.setattr(steps, "ASSUMPTIONS", some)
    found = search.result()
    assert found["combinations"] == 16 and found["in_order"] == 1 and found["fewest_in_order"]["assumptions"] == 3
    (row,) = found["fewest_in_order"]["rows"]
    assert row["order"] and row["assumed"] == {steps.LAYERS: 1, steps.NODE: 1, steps.ALGORITHM: steps.PRINTED}
    assert row["batch, 1024"] > 1 > row["2-D over batch"] and row["batch, 1024"] > row["model"]
    assert found["closest"][0]["farthest by the factor"] <= row["farthest by the factor"]
    assert found["alone"][0]["assumed"] == {} and not found["alone"][0]["order"]
    assert found == search.result()  # nothing is drawn by chance
    text = "\n".join(search.document(found))
    assert found["conclusion"] in text and "All of this is predicted" in text and "the reverse of the paper's order" in text


def test_the_kept_search_is_of_this_model():
    found = json.loads(Path(laugier2018_kept.path("search")).read_text())
    for kept, now in zip(found["alone"], search.alone(), strict=True):
        assert kept["assumed"] == now["assumed"] and [kept[name] for name in search.FOUND] == pytest.approx(
            [now[name] for name in search.FOUND], rel=1e-6
        )
    assert found["conclusion"] in Path(laugier2018_kept.path("search")).with_suffix(".md").read_text()


def test_the_study_refuses_to_write_both_files_to_one(tmp_path):
    finished = program("study", "laugier2018-search", "--out", tmp_path / "s.md")
    assert finished.returncode == 2 and finished.stderr.count("\n") == 1 and "the document goes beside it" in finished.stderr


# ----- what is predicted


def test_the_order_is_reversed_without_what_the_code_shows_and_nearly_right_with_it():
    rows = {(row["what"], row["model size"]): row for row in predictions.ratios()}
    for where in (predictions.ONE_NODE, predictions.APART):
        assert rows["batch", 1024][where] < 5.8 / 2 and rows["model", 1024][where] > 2 * 1.2
        assert rows["2-D over batch", 512][where] > 2 * 0.99
    for row in rows.values():
        assert row["printed"] / 1.25 < row[predictions.LOGGED] < row["printed"] * 1.25


def test_curves_begin_with_one_rank(tmp_path):
    rows = predictions.curves()
    assert len(rows) == 3 * 4 * len(SIZES) and {row["model size"] for row in rows} == set(SIZES)
    for row in rows:
        assert row["1"] == (pytest.approx(1) if row["predicted"] in ("batch", "model") else None) and row["32"] > 0
    few = {assumed: {(kind, 512): predictions.curve(kind, 512, assumed) for kind in predictions.KINDS}
           for assumed in predictions.CHOICES}  # fmt: skip
    figure.draw(few, predictions.printed(), tmp_path / "f.png")
    assert is_figure(tmp_path / "f.png")


@pytest.mark.long
def test_the_tables_of_the_papers_set_up(tmp_path):
    tables = predictions.tables()
    assert [row["printed"] for row in tables["ratios"]] == [5.8, 5.8, 1.2, 0.99]
    for row in tables["predicted"]:
        parts = sum(row[f"{part} ms"] for part in ("compute", "update", "gradients", "activations"))
        assert parts == pytest.approx(row["1 node ms"]) and row["1 rank ms"] / parts == pytest.approx(row["speedup on 1 node"])
    assert all(row["speedup"] >= 20 for row in tables["fast_enough"])
    finished = program("study", "laugier2018-predicted", "--out", tmp_path / "p.md")
    assert finished.returncode == 0 and is_figure(tmp_path / "p.png"), finished.stderr


# ----- claims and items


def test_claims_without_any_measurement(monkeypatch, tmp_path):
    monkeypatch.setattr(laugier2018_kept, "FOLDER", tmp_path)
    found = verdicts({})
    assert set(found) == set(published("laugier2018").claims)
    for name in ("batch_peak", "model_peak", "integrated_peak", "batch_over_model", "model_gains_with_size", "dataset_sizes"):
        assert found[name] == OPEN
    for name in ("one_size", "dataset_inputs", "method_one", "batch_formula", "bandwidth"):
        assert found[name] == DIFFERS  # by the paper's own numbers
    assert next(item for item in items.items(laugier2018.tables()) if "four hosts" in item.name).status == MISSING


def test_speedups_turn_the_verdicts():
    as_printed = speedups({
        ("batch", 2): sized(1.1, 1.2, 1.3, 1.4, 1.5), ("batch", 32): dict.fromkeys(SIZES, 5.8),
        ("model", 2): sized(1.01, 1.02, 1.03, 1.1, 1.2), ("2d", 8): dict.fromkeys(SIZES, 3.0),
        ("batch", 16): dict.fromkeys(SIZES, 3.1), ("2d", 16): {512: 5.7},
    })  # fmt: skip
    found = verdicts({"speedups": as_printed})
    names = ("batch_peak", "model_peak", "integrated_peak", "batch_over_model", "model_gains_with_size",
             "constant_increase", "model_not_significant", "model_for_large", "batch_for_small", "batch_gains_with_ranks",
             "integrated_many")  # fmt: skip
    assert {found[name] for name in names} == {HOLDS}
    other = speedups({
        ("batch", 2): sized(0.7, 0.8, 0.9, 1.0, 1.1), ("batch", 32): dict.fromkeys(SIZES, 1.0),
        ("model", 2): sized(1.9, 1.8, 1.7, 1.6, 1.5), ("2d", 16): {512: 3.0}, ("batch", 4): {512: 1.0},
    })  # fmt: skip
    found = verdicts({"speedups": other})
    assert {found[name] for name in names} - {HOLDS} == {DIFFERS} and found["model_for_large"] == found[
        "integrated_many"
    ] == HOLDS
    crowded = [row | {"oversubscribed": True} for row in as_printed]
    assert verdicts({"speedups": crowded})["model_peak"] == OPEN  # ranks that share cores decide nothing


def test_times_bytes_and_sizes_turn_the_verdicts():
    row = {"data": "ethylene", "net": "mlp:1024,1024,1024,relu", "grid": "batch=2,model=1"}

    def of(size, grid, counted):
        return row | {"net": f"mlp:{size},relu", "grid": grid, "gradients_counted": counted, "model_counted": 0}

    ways = {"grid": "batch=2,model=2", "block_bytes": 4096, "scatter-broadcast us": 2.0}
    for many, one in ((True, 1.0), (False, 100.0)):
        spent = [row | {"compute ms": one, "messages ms": 9.0, "wait ms": 0.0},
                 row | {"grid": "batch=1,model=1", "compute ms": 10.0, "messages ms": 0.0, "wait ms": 0.0}]  # fmt: skip
        found = verdicts({
            "spent": spent, "scatter": [ways | {"scatter us": one}],
            "counted": [of(512, "batch=2,model=2", one), of(512, "batch=4,model=1", 9)],
            "data": [{"data": "airfoil", "samples": 1503, "inputs": 4 if many else 5, "outputs": 1},
                     {"data": "ethylene", "samples": 700000, "inputs": 16, "outputs": 2}],
        })  # fmt: skip
        for name in ("compute_below_messages", "method_chosen", "integrated_sends_less", "dataset_sizes"):
            assert found[name] == (HOLDS if many else DIFFERS), name
        assert found["small_blocks"] == (DIFFERS if many else HOLDS)
    counted = [of(1024, "batch=2,model=1", 2 * 33.849e6)]  # as many bytes as the printed formula has
    assert verdicts({"counted": counted})["batch_formula"] == HOLDS


@pytest.mark.parametrize(
    ("both", "verdict"), [({3: 0.95, 1: 0.91}, HOLDS), ({3: 1.4, 1: 1.1}, DIFFERS), ({3: 1.4, 1: 0.95}, OPEN)]
)
def test_hosts_decide_what_needs_four_ranks(both, verdict, monkeypatch, tmp_path):
    rows = [
        {"hidden layers": hidden, "model size": 512, "grid": grid, "speedup": {"median": value, "min": value, "max": value},
         "predicted speedup": 1.0}
        for hidden, ratio in both.items() for grid, value in (("batch=4,model=1", 2.0), ("batch=2,model=2", 2.0 * ratio))
    ]  # fmt: skip
    report = {"versions": {"processor": "a processor"}, "link": "a network", "rows": rows}
    (tmp_path / "hosts.json").write_text(json.dumps(report))
    monkeypatch.setattr(laugier2018_kept, "FOLDER", tmp_path)
    claims = {claim.name: claim for claim in items.claims(laugier2018.tables())}
    assert claims["integrated_peak"].verdict == claims["integrated_few"].verdict == verdict
    assert claims["integrated_few"].finding.kind == KEPT and "a processor" in claims["integrated_few"].finding.numbers
    item = next(item for item in items.items(laugier2018.tables()) if "four hosts" in item.name)
    assert len(item.rows) == 4 and item.processor == "a processor, a network"
    for text in ("{half", '{"rows": [{}]}', "[]"):
        (tmp_path / "hosts.json").write_text(text)
        found, reason = laugier2018_kept.report("hosts")
        assert found is None and "hosts.json holds" in reason


def test_the_kept_tables_load_and_their_figures_leave_out_ranks_that_share_cores():
    kept = json.loads(Path("results/laugier2018/tables.json").read_text())
    tables = laugier2018.tables(kept)
    assert not {"published", "claims"} & tables.keys() and tables["speedups"] == kept["speedups"]
    found = {item.name: item for item in items.items(tables)}
    rows = [row for name in ("Figure 5", "Figure 6", "Figure 7") for row in found[name].rows if row.measured is not None]
    alone = [line for line in kept["speedups"] if not line["oversubscribed"] and line["grid"] != "batch=1,model=1"]
    assert len(rows) == len(alone) and found["What would have to be true"].status == FORESEEN
    labels = [row.label for item in found.values() for row in item.rows]
    assert not [label for label in labels if "32 ranks" in label and "model=" not in label and "size 512, over" in label]
    text = laugier2018.as_markdown(tables)
    assert "1.2" in text and "No number of ranks is printed" in text


def test_runs_of_two_processors_are_refused(tmp_path):
    lines = Path("results/laugier2018/airfoil.jsonl").read_text().splitlines()[:1]
    report = json.loads(lines[0])
    other = report | {"dataset": "other", "versions": report["versions"] | {"processor": "another"}}
    for name, one in (("airfoil", report), ("other", other)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(one) + "\n")
    found = laugier2018.measurement(tmp_path, ["airfoil"], [], [])
    assert found["spent"][0]["compute ms"] == pytest.approx(1e3 * report["time"]["compute"])
    with pytest.raises(ValueError, match="measure both again"):
        laugier2018.measurement(tmp_path, ["airfoil", "other"], [], [])


def test_steps_are_measured_on_hosts_beside_one_rank(tmp_path):
    words = ["--model-sizes", 8, "--hidden", "2,1", "--rounds", 1, "--machine", "ethernet-1g", "--link", "nothing"]
    finished = job(2, "study", "laugier2018-hosts", *words, "--out", tmp_path / "h.json")
    assert finished.status == 0, finished.stderr
    report = json.loads((tmp_path / "h.json").read_text())
    grids = ["batch=1,model=1", "batch=2,model=1", "batch=1,model=2"]
    assert [(row["hidden layers"], row["grid"]) for row in report["rows"]] == [
        (hidden, grid) for hidden in (2, 1) for grid in grids
    ]
    for row in report["rows"]:
        assert laugier2018_kept.ENTRIES["hosts"] <= row.keys() and row["seconds"]["median"] > 0
        assert (row["speedup"]["median"] == 1) == (row["predicted speedup"] == 1) == (row["grid"] == grids[0])
    assert report["machine"] and report["link"] == "nothing" and report["versions"]["processor"]
