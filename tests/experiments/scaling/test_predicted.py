"""Predicted records of a study: of the data of each point, and of no point that the cost model does not know."""

import dataclasses

import pytest

from gridgrad.experiments.scaling import predicted, table
from gridgrad.experiments.scaling.study import Study
from gridgrad.parallel.prediction import machine as machines

CORI, ETHERNET = machines.read("cori-haswell"), machines.read("ethernet-1g")


def ranks_of(machine=CORI, **settings):
    study = Study({"nets": ["mlp:8,relu"], "ranks": [1, 4], "schemes": ["batch"]} | settings)
    return [record["P"] for record in predicted.records(study, machine)]


def test_only_what_the_cost_model_knows_is_predicted():
    assert ranks_of() == [1, 4] and ranks_of(reduction="plain", update="whole") == [1, 4]
    for unknown in ({"threads": 2}, {"protocol": "easgd:4"}, {"plan": "hypergraph"}):
        assert 4 not in ranks_of(**unknown)
    for unknown in ({"reduction": "overlap"}, {"update": "sharded"}, {"hosts": 4}):  # a run on one rank has none of them
        assert ranks_of(**unknown) == [1]
    for unknown in ({"reduce_dtype": "float16"}, {"reader": "scatter"}, {"rebalance": 10},
                    {"micro_batches": 2}, {"handicap": "0=2@5"}):  # fmt: skip
        assert ranks_of(**unknown) == [1], unknown
    for unknown in ({"device": "gpu"}, {"optimizer": "adam"}, {"l2": 0.1}, {"check_finite": True}, {"augment": "flip"}):
        assert ranks_of(**unknown) == [], unknown
    assert ranks_of(device="cpu", optimizer="sgd", l2=0.0, check_finite=False, dtype="float64", handicap="3=2") == [1, 4]


def steps(machine=CORI, **settings):
    """{(grid, shares): seconds} of predictions for 4 ranks."""
    study = Study({"nets": ["mlp:512,512,relu"], "ranks": [4], "schemes": [], "batch_size": 400} | settings)
    made = predicted.records(study, machine)
    return {(one["point"]["grid"], one["point"].get("shares")): one["seconds_per_step"]["median"] for one in made}


def test_a_handicap_makes_a_slower_rank():
    uneven, grids = ["1,1,1,1", "1,2,2,2"], ["batch=4", "model=4"]
    free, slow = steps(grids=grids, shares=uneven), steps(grids=grids, shares=uneven, handicap="0=2")
    for grid in ("batch=4,model=1", "batch=1,model=4"):
        assert slow[grid, uneven[0]] > slow[grid, uneven[1]] > free[grid, uneven[0]]
    even, slowed = steps(schemes=["auto"], ranks=[4]), steps(schemes=["auto"], ranks=[4], handicap="3=3,1=1")
    assert even["auto", None] < slowed["auto", None] < 3 * even["auto", None]
    assert steps(grids=["batch=4"], handicap="0=1") == steps(grids=["batch=4"])
    assert steps(grids=["stage=4"]) and not steps(grids=["stage=4"], handicap="0=2")


def test_partitions_are_predicted():
    small = {"nets": ["lenet5"], "dataset": "random:28x28x1,10", "grids": ["model=4"], "batch_size": 64}
    found = steps(**small, plan=["hypergraph", "hypergraph:fine"])
    assert found["batch=1,model=4", None] > 0 and not steps(**small, plan="hypergraph", pipeline="async:2")


@pytest.mark.parametrize("grid", ["batch=2,model=1", "batch=1,model=2"])
def test_on_ranks_of_unequal_speed_shares_by_speed_are_predicted_to_be_faster_than_even_ones(grid):
    given = {"ranks": [2], "grids": [grid], "handicap": "0=2", "shares": ["1,1", "auto"]}
    even, by_speed = steps(**given).values()
    assert 0.6 * even < by_speed < 0.8 * even
    assert not steps(**given | {"grids": ["stage=2"]})


def test_points_without_a_prediction_are_named_with_the_reason():
    reasons = {}
    study = Study({"nets": ["mlp:8,relu"], "ranks": [4], "schemes": ["batch", "height"], "reduction": ["plain", "overlap"]})
    assert len(list(predicted.records(study, CORI, reasons=reasons))) == 1
    assert ["overlap" in why or "without images" in why for why in reasons.values()] == [True] * 3
    assert "--reduction overlap" in table.estimate(study, CORI)


def test_ranks_that_have_nothing_to_compute_are_counted_and_a_remark():
    more = {"nets": ["lenet5"], "dataset": "random:28x28x1,10", "batch_size": 16}
    idle = lambda **given: [one["idle"] for one in predicted.records(Study(more | given), CORI)]  # noqa: E731
    assert idle(grids=["batch=16,model=2"])[1:] == [0] and idle(grids=["batch=32,model=2"])[1:] == [32]
    made = list(predicted.records(Study({"nets": ["mlp:8,relu"], "grids": ["model=64"], "batch_size": 16}), CORI))
    assert "54 of the ranks have nothing to compute" in table.text(made)


def test_emulated_hosts_are_predicted_for_machines_with_as_many_ranks_a_node():
    one_a_node = dataclasses.replace(ETHERNET, node=ETHERNET.node | {"ranks": 1})
    two_a_node = dataclasses.replace(ETHERNET, node=ETHERNET.node | {"ranks": 2})
    assert ranks_of(one_a_node, hosts=4) == [1, 4] and ranks_of(two_a_node, hosts=4) == [1]
    assert ranks_of(two_a_node, hosts=2) == [1, 4]
    rates = {rate: ranks_of(one_a_node, hosts=4, rate=rate) for rate in (100, 1000, 10_000)}
    assert rates == {100: [1], 1000: [1, 4], 10_000: [1]}
    assert ranks_of(one_a_node, hosts=4, delay=50) == [1, 4] and ranks_of(one_a_node, hosts=4, delay=5000) == [1]


def test_shapes_are_those_of_the_data_of_each_point(tmp_path):
    (tmp_path / "three.csv").write_text("1,2,3,0\n4,5,6,1\n" * 20)
    study = Study({"nets": ["mlp:8,relu"], "ranks": [1], "dataset": ["airfoil", f"table:{tmp_path / 'three.csv'}"]})
    assert [record["shape"] for record in predicted.records(study, CORI, of_data=True)] == [[4], [3]]
    assert len({tuple(record["shape"]) for record in predicted.records(study, CORI)}) == 1
    assert [record["shape"] for record in predicted.records(study, CORI, [7], 2, of_data=True)] == [[7], [7]]


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_estimate_counts_nodes_of_the_allocation_and_says_what_it_does_not_know(monkeypatch, nodes):
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_NNODES", f"{nodes}")
    given = {"nets": ["mlp:8,relu"], "ranks": [8], "schemes": ["batch"], "repeats": 6, "most_repeats": 60}
    last = table.estimate(Study(given), CORI).splitlines()[-1]
    least, most = (float(last.split(", ")[2].split(" node-hours")[0].split(" to ")[i]) for i in range(2))
    assert last.startswith("1 point, 6 to 60 runs") and most == pytest.approx(10 * least, rel=0.05)
    assert least == pytest.approx(nodes * 6 * 2 / 3600, rel=0.2) and f"nodes of {8 // nodes} cores" in last
    series = [{"name": "two threads", "grid": "batch=*", "threads": 2}]
    for more in ({"threads": 2}, {"series": series, "schemes": ["batch"]}):
        assert "1 point without a prediction" in table.estimate(Study(given | more), CORI)
