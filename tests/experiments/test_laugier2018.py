"""Laugier et al. 2018: what its formulas give, steps under assumptions, claims that turn with measurements."""

import json
from pathlib import Path

import pytest

from gridgrad.experiments.papers import page_words
from gridgrad.experiments.papers.cited import DERIVED, NOT_PRINTED, PRINTED, published
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, FOLLOWS, HOLDS, OPEN, found, undecided
from gridgrad.experiments.papers.items import FORESEEN, KEPT, MEASURED, MISSING, PREDICTED
from gridgrad.experiments.papers.laugier2018 import claims as of_claims
from gridgrad.experiments.papers.laugier2018 import experiments as laugier2018
from gridgrad.experiments.papers.laugier2018 import figures as figure
from gridgrad.experiments.papers.laugier2018 import follows as laugier2018_follows
from gridgrad.experiments.papers.laugier2018 import foreseen, formulas, items, steps
from gridgrad.experiments.papers.laugier2018 import kept as laugier2018_kept
from gridgrad.experiments.papers.laugier2018 import predicted as predictions
from gridgrad.experiments.papers.laugier2018 import speedups as of_speedups
from gridgrad.experiments.papers.laugier2018.predicted import cost_on
from gridgrad.experiments.papers.parts import SHORT, USUAL
from gridgrad.experiments.scaling import records
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.prediction import machine as machines
from tests.experiments.figures import is_figure
from tests.experiments.programs import program

SIZES = 32, 64, 128, 512, 1024
GRIDS = {"batch": "batch={},model=1", "model": "batch=1,model={}", "2d": "batch={},model=2"}


def verdicts(measured):
    return {claim.name: claim.verdict for claim in of_claims.claims(laugier2018.tables(measured))}


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
    assert [(row["printed"], row["ranks"]) for row in rows] == [(5.8, 32), (5.8, 32), (1.2, NOT_PRINTED), (0.99, NOT_PRINTED)]
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
            net = predictions.network(size, "float64")
            cost = cost_on(net, f"batch={batch},model={model}", 100, where, steps.PLAN)
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
    finished = program("gridgrad.experiments.papers.laugier2018.predicted", "--out", tmp_path / "p.md")
    assert finished.returncode == 0 and is_figure(tmp_path / "p.png"), finished.stderr


# ----- claims and items


def test_claims_without_any_measurement(monkeypatch, tmp_path):
    monkeypatch.setattr(laugier2018_kept, "FOLDER", tmp_path)
    found = verdicts({})
    assert set(found) == set(published("laugier2018").claims)
    for name in ("batch_peak", "model_peak", "integrated_peak", "batch_over_model", "model_gains_with_size", "dataset_sizes"):
        assert found[name] == OPEN
    for name in ("method_one", "batch_formula", "model_formula", "bandwidth"):
        assert found[name] == DIFFERS  # by the paper's own numbers
    for name in ("one_size", "dataset_inputs", "integrated_advantage", "integrated_time"):
        assert found[name] == CONTRADICTORY
    for name in ("Figures 5 to 7, four hosts", "What would have to be true"):
        item = next(item for item in items.items(laugier2018.tables()) if item.name == name)
        assert item.status == MISSING and item.reason.startswith("Nothing is kept: there is no ")


def finding(measured, name):
    return next(claim.finding for claim in of_claims.claims(laugier2018.tables(measured)) if claim.name == name)


def source(hidden, speedups, kind=MEASURED, own=True):
    """A Source of made-up speedups without a spread, {(model size, batch, model): number}."""
    of = {key: of_speedups.Speedup(one, 0.99 * one, 1.01 * one) for key, one in speedups.items()}
    return of_speedups.Source(f"made up, {hidden} hidden", "here", kind, hidden, own, of)


def test_a_claim_is_decided_where_both_depths_agree():
    number = lambda one: {(2,): one.speedups[512, 2, 1]}  # noqa: E731
    above = lambda one, _: one.above(1)  # noqa: E731
    deep, shallow, low = source(3, {(512, 2, 1): 1.5}), source(1, {(512, 2, 1): 1.2}), source(1, {(512, 2, 1): 0.9})
    logged = source(1, {(512, 2, 1): 1.2}, FOLLOWS)
    unclear = source(1, {(512, 2, 1): 1.0})
    missing = undecided("nothing was measured")
    agreed = lambda *known: of_speedups.agreed(known, number, above, "on {} ranks", "above 1 counts", missing)  # noqa: E731
    assert agreed(deep, shallow).verdict == agreed(deep, logged).verdict == HOLDS and agreed(deep, shallow).kind == MEASURED
    assert "made up, 3 hidden: 1.5 (1.48 to 1.52) on 2 ranks" in agreed(deep, shallow).numbers
    assert agreed(source(3, {(512, 2, 1): 0.8}), low).verdict == DIFFERS
    for known, reason in (
        ((deep, low), of_speedups.DISAGREE), ((deep, unclear), "nothing is clear with 1 hidden"),
        ((unclear,), of_speedups.UNCLEAR), ((logged,), "nothing was measured"),
    ):  # fmt: skip
        one = agreed(*known)
        assert one.verdict == OPEN and one.reason.startswith(reason), reason


def test_speedups_turn_the_verdicts(monkeypatch, tmp_path):
    monkeypatch.setattr(laugier2018_kept, "FOLDER", tmp_path)
    rising = {32: 0.9, 64: 1.0, 128: 1.05, 512: 1.1, 1024: 1.2}
    as_printed = {(size, 1, 2): one for size, one in rising.items()}
    as_printed |= {(size, ranks, 1): 1.2 * ranks / 8 for size in SIZES for ranks in (16, 32)} | {(1024, 32, 1): 5.8}
    as_printed |= {(size, 2, 1): 1.6 for size in SIZES} | {(512, 8, 2): 2.4 * 0.97, (512, 2, 2): 1.4, (512, 4, 1): 2.0}
    other = {(size, 1, 2): 2.5 - one for size, one in rising.items()} | {(1024, 1, 2): 1.55}
    other |= {(size, 2, 1): 0.9 for size in SIZES} | {(1024, 32, 1): 1.0, (512, 16, 1): 1.0, (512, 8, 2): 3.0}
    names = ("batch_peak", "model_peak", "integrated_peak", "batch_over_model", "model_gains_with_size", "constant_increase",
             "model_not_significant", "batch_for_small", "batch_gains_with_ranks")  # fmt: skip
    for speedups_of, verdict in ((as_printed, HOLDS), (other, DIFFERS)):
        monkeypatch.setattr("gridgrad.experiments.papers.laugier2018.claims.sources",
                            lambda _, of=speedups_of: [source(3, of), source(1, of)])  # fmt: skip
        found = verdicts({})
        assert {name: found[name] for name in names} == dict.fromkeys(names, verdict)
        assert found["model_for_large"] == found["integrated_many"] == HOLDS
        assert found["integrated_few"] == (HOLDS if verdict == HOLDS else OPEN)  # of which the other has nothing
        monkeypatch.setattr("gridgrad.experiments.papers.laugier2018.claims.sources",
                            lambda _, of=speedups_of: [source(3, of), source(1, of, own=False)])  # fmt: skip
        assert verdicts({})["model_gains_with_size"] == OPEN  # ranks that share cores decide nothing of speedups over one


def test_runs_and_logs_decide_together(monkeypatch, tmp_path):
    monkeypatch.setattr(laugier2018_kept, "FOLDER", tmp_path)
    gaining = speedups({("batch", 2): sized(1.1, 1.2, 1.3, 1.4, 1.5), ("model", 2): sized(1.01, 1.02, 1.03, 1.1, 1.2)})
    found = verdicts({"speedups": gaining})
    assert found["model_gains_with_size"] == found["batch_for_small"] == HOLDS  # the logs say so, too
    assert found["constant_increase"] == OPEN  # the logs fall from 512 to 1,024
    contrary = speedups({("batch", 2): sized(0.7, 0.8, 0.9, 1.0, 1.1), ("model", 2): sized(1.9, 1.8, 1.7, 1.6, 1.55)})
    found = {claim.name: claim.finding for claim in of_claims.claims(laugier2018.tables({"speedups": contrary}))}
    for name in ("batch_over_model", "model_peak", "model_gains_with_size", "batch_for_small"):
        assert found[name].verdict == OPEN and found[name].reason.startswith(of_speedups.DISAGREE)
        assert found[name].kind == MEASURED and "in the logs of its code" in found[name].numbers
    assert found["model_peak"].numbers == "1.55 on one machine, 1.08 in the logs of its code"
    crowded = [row | {"oversubscribed": True} for row in gaining]
    assert verdicts({"speedups": crowded})["model_gains_with_size"] == OPEN  # ranks that share cores decide nothing
    wide = [row | {"min": 0.5 * row["speedup"], "max": 2 * row["speedup"]} for row in gaining]
    assert finding({"speedups": wide}, "constant_increase").verdict == OPEN
    unclear = finding({"speedups": wide}, "model_gains_with_size")
    assert unclear.verdict == OPEN and "nothing is clear with 3 hidden" in unclear.reason


def test_main_claims_have_short_numbers():
    kept = json.loads(Path("results/laugier2018/tables.json").read_text())
    for tables in (laugier2018.tables(), laugier2018.tables(kept)):
        for claim in of_claims.claims(tables):
            if claim.main and claim.finding.kind != KEPT:  # which names a file and a processor
                assert len(claim.finding.numbers) <= page_words.FEW, claim.name


def test_what_is_predicted_to_grow_is_open_where_it_falls_in_the_logs(monkeypatch):
    grows, falls = found(True, "2, 3", kind=PREDICTED), found(False, "3, 2", kind=PREDICTED)
    assert foreseen.unless_logs_differ(grows).verdict == OPEN and "1.23, 1.08" in foreseen.unless_logs_differ(grows).reason
    assert foreseen.unless_logs_differ(falls) == falls
    monkeypatch.setattr(foreseen, "of_logs", list)
    assert foreseen.unless_logs_differ(grows) == grows


def test_what_is_predicted_decides_where_all_assumptions_agree(monkeypatch):
    rising, falling = {"a": 1, "b": 2}, {"a": 1, "b": -2}
    agreed = lambda values: foreseen.if_choices_agree(values, lambda one: one > 0, str, "more than 0")  # noqa: E731
    assert agreed(rising).verdict == HOLDS and agreed(falling).verdict == OPEN and agreed({"a": -1}).verdict == DIFFERS
    assert foreseen.if_choices_agree(rising, lambda _: None, str, "").verdict == OPEN
    assert agreed(falling).numbers == "a: 1; b: -2" and agreed(falling).kind == PREDICTED
    assert agreed(falling).reason.startswith(foreseen.OPEN_ENDS)
    for name, one in foreseen.findings().items():
        assert one.kind == PREDICTED and ("hidden layer" if name == "small_blocks" else list(steps.CHOICES)[-1]) in one.numbers
    computing, sending = foreseen.parts(4, 2, steps.AS_LOGGED)
    assert computing + sending == pytest.approx(float(steps.seconds(((1024, 4, 2),), steps.AS_LOGGED)[0]))


def test_formulas_are_held_against_two_and_32_processes(monkeypatch):
    found = laugier2018_follows.findings()
    for name in ("batch_formula", "model_formula"):
        assert found[name].verdict == DIFFERS and " on 2 processes" in found[name].numbers and " on 32 " in found[name].numbers
    right = {"batch=2,model=1": 30.0, "batch=32,model=1": 16.5, "batch=1,model=2": 7.0, "batch=1,model=32": 2.0}
    monkeypatch.setattr(laugier2018_follows, "volume_of", right.get)  # the last is too far off
    found = laugier2018_follows.findings()
    assert (found["batch_formula"].verdict, found["model_formula"].verdict) == (HOLDS, DIFFERS)


def test_times_bytes_and_sizes_turn_the_verdicts():
    row = {"data": "ethylene", "net": "mlp:1024,1024,1024,relu", "grid": "batch=2,model=1"}

    def of(size, grid, counted):
        return row | {"net": f"mlp:{size},relu", "grid": grid, "gradients_counted": counted, "model_counted": 0}

    ways = {"grid": "batch=2,model=2", "block_bytes": 4096, "scatter-broadcast us": 2.0}
    for many, one in ((True, 1.0), (False, 100.0)):
        measured = {
            "scatter": [ways | {"scatter us": one}],
            "counted": [of(512, "batch=2,model=2", one), of(512, "batch=4,model=1", 9)],
            "data": [{"data": "airfoil", "samples": 1503, "inputs": 4 if many else 5, "outputs": 1},
                     {"data": "ethylene", "samples": 700000, "inputs": 16, "outputs": 2}],
        }  # fmt: skip
        found = verdicts(measured)
        for name in ("method_chosen", "integrated_sends_less", "dataset_sizes"):
            assert found[name] == (HOLDS if many else DIFFERS), name
        crowded = [row | {"oversubscribed": True} for row in speedups({("2d", 2): {512: 1.0}})]
        assert verdicts(measured | {"speedups": crowded})["method_chosen"] == OPEN


@pytest.mark.parametrize("foretold", [HOLDS, DIFFERS])
def test_two_ranks_alone_do_not_decide_what_32_compute(foretold, monkeypatch):
    one = foreseen.if_choices_agree({"a": 1}, lambda _: foretold == HOLDS, str, "")
    monkeypatch.setattr(foreseen, "compute_below_messages", lambda: one)
    assert finding({}, "compute_below_messages") == one
    row = {"data": "ethylene", "net": "mlp:1024,1024,1024,relu", "grid": "batch=2,model=1", "messages ms": 9.0, "wait ms": 0.0}
    for computing in (1.0, 100.0):
        found = finding({"spent": [row | {"compute ms": computing}]}, "compute_below_messages")
        assert found.verdict == (HOLDS if foretold == HOLDS and computing < 9 else OPEN)
        assert found.kind == MEASURED and "9 ms messages" in found.numbers and "a: 1" in found.reason


@pytest.mark.parametrize(
    ("both", "few", "peak"),
    [({3: 0.95, 1: 0.91}, HOLDS, OPEN), ({3: 1.4, 1: 1.1}, OPEN, DIFFERS), ({3: 1.4, 1: 0.95}, OPEN, OPEN)],
)
def test_hosts_decide_what_needs_four_ranks(both, few, peak, monkeypatch, tmp_path):
    rows = [
        {"hidden layers": hidden, "model size": 512, "grid": grid, "speedup": {"median": value, "min": value, "max": value},
         "predicted speedup": 1.0}
        for hidden, ratio in both.items() for grid, value in (("batch=4,model=1", 2.0), ("batch=2,model=2", 2.0 * ratio))
    ]  # fmt: skip
    report = {"versions": {"processor": "a processor"}, "link": "a network", "ranks": 4, "cores": 2, "rows": rows}
    (tmp_path / "hosts.json").write_text(json.dumps(report))
    monkeypatch.setattr(laugier2018_kept, "FOLDER", tmp_path)
    claims = {claim.name: claim for claim in of_claims.claims(laugier2018.tables())}
    assert (claims["integrated_few"].verdict, claims["integrated_peak"].verdict) == (few, peak)  # the logs have 0.74
    assert claims["integrated_few"].finding.kind == KEPT and "a processor" in claims["integrated_few"].finding.numbers
    item = next(item for item in items.items(laugier2018.tables()) if "four hosts" in item.name)
    assert len(item.rows) == 4 and item.processor == "a processor, a network"
    first = "batch=2,model=2" if both[1] > 1 else "batch=4,model=1"
    assert f"with 1 hidden layer the fastest is {first} (size 512)" in item.why
    for text in ("{half", '{"rows": [{}]}', "[]", '{"rows": 3, "versions": {"processor": 1}, "link": ""}'):
        (tmp_path / "hosts.json").write_text(text)
        claims = {claim.name: claim.verdict for claim in of_claims.claims(laugier2018.tables())}
        assert claims["integrated_few"] == OPEN
        item = next(item for item in items.items(laugier2018.tables()) if "four hosts" in item.name)
        assert item.status == MISSING and "hosts.json does not hold what decides this" in item.reason


def test_the_words_of_the_predicted_curves_are_those_of_the_table():
    lines = laugier2018.tables()["curves"]
    item = next(item for item in items.items(laugier2018.tables()) if item.name == "Figures 5 to 7, predicted")
    one_node = {(line["predicted"], line["model size"]): line for line in lines if line["assumed"] == predictions.ONE_NODE}
    best = [f"{max(one_node[kind, 32][str(ranks)] or 0 for ranks in formulas.RANKS):.3g}" for kind in ("batch", "model", "2-D")]
    assert (
        f"Batch, model and 2-D reach {', '.join(best)} times with size 32" in item.why and item.why.count(" of 20 cases") == 3
    )
    wins = 0
    for size in SIZES:
        for ranks in ("4", "8", "16", "32"):
            batch, model, both = (one_node[kind, size][ranks] for kind in ("batch", "model", "2-D"))
            wins += both > max(batch, model)
    assert f"2-D is the fastest in {wins} of 20" in item.why


def test_labels_name_a_quantity_behind_their_only_colon():
    kept = json.loads(Path("results/laugier2018/tables.json").read_text())
    for item in items.items(laugier2018.tables(kept)):
        assert all(row.label.count(": ") <= 1 for row in item.rows), item.name


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


def test_the_runs_that_are_kept_give_the_speedups_that_are_kept(tmp_path):
    kept = json.loads(Path("results/laugier2018/tables.json").read_text())
    reports = records.read("results/laugier2018/airfoil.jsonl")
    found = laugier2018.gathered({f"run {number}": report for number, report in enumerate(reports)}, tmp_path)
    by_place = lambda rows: sorted(rows, key=lambda row: (row["net"], row["grid"]))  # noqa: E731
    assert by_place(found["speedups"]) == by_place([row for row in kept["speedups"] if row["data"] == "airfoil"])
    assert found["counted"] and is_figure(tmp_path / "airfoil.png")
    parallel = [report for report in reports if report["P"] > 1]
    with pytest.raises(ValueError, match="no run of mlp:.* on 1 rank to compare with"):
        laugier2018.speedups("airfoil", parallel)


def test_each_run_of_the_sweeps_is_a_part(monkeypatch):
    monkeypatch.setattr(laugier2018, "ethylene", lambda _: "ethylene-synthetic")
    short, usual = (laugier2018.to_measure(size, [1, 2], None) for size in (SHORT, USUAL))
    names = [part.name for part in usual]
    assert len(set(names)) == len(names) == 1 + 2 * 5 * 3 * 3 + 2  # data sets, networks, points, repeats; scatters
    assert "airfoil, mlp:32,32,32,relu, batch=1,model=2, repeat 2" in names
    assert {part.name for part in short} < set(names) and len(short) == 1 + 5 * 3 * (3 + 1) + 2
    monkeypatch.setattr(laugier2018, "records_of", lambda *_: [{"failed": "no memory"}])
    with pytest.raises(UserError, match="mlp:32,32,32,relu on batch=1,model=1: no memory"):
        usual[1].run()
