"""A machine fitted to few ranks, on made-up measurements: what it predicts, how sure, and which points it leaves out."""

import numpy as np
import pytest

from gridgrad.experiments.scaling import model, records
from gridgrad.experiments.scaling.summary import rows
from tests.experiments.scaling import made_up_studies as made_up

OF_DATA = {"features": 4, "outputs": 1}
WIDE = {"ranks": [1, 2, 4], "nets": ["mlp:64,64,relu", "mlp:256,256,relu", "mlp:96,32,48,relu"], "schemes": ["batch", "model"]}
CONSTANTS = np.array([1e-6, 2e-10, 1e-10, 5e-6, 1e-9, 0, 0])


def as_if(constants, noise=0.0, **settings):
    """Records whose seconds are the counts of their terms times these constants."""
    rng = np.random.default_rng(3)
    found = [record | OF_DATA for record in made_up.records(lambda point, n: 1.0, **WIDE | settings)]
    counts = {records.key_of(row.runs[0]): model.counts_of(row) for row in rows(found)}
    for record in found:
        seconds = float(constants @ counts[records.key_of(record)]) * float(np.exp(noise * rng.standard_normal()))
        record["seconds_per_step"] = {"median": seconds}
    return found


def fitted(found, up_to=2):
    """(Fit, table rows of the points on more ranks, {reason: Rows that are left out}) of records of one machine."""
    [of_machine] = model.machines(rows(found)).values()
    known, further, left_out = model.sorted_out(of_machine, up_to)
    machine = model.fit(known)
    return machine, model.forecast(machine, further), left_out


def test_a_machine_that_is_one_is_found_and_predicts_more_ranks():
    found, lines, left_out = fitted(as_if(CONSTANTS))
    assert len(lines) == 3 * 2 and all(abs(line["error %"]) < 0.1 and line["within"] for line in lines)
    assert found.spread < 1e-6 and left_out == {}


def test_noise_widens_the_interval_and_the_truth_is_within():
    found, lines, _ = fitted(as_if(CONSTANTS, noise=0.05))
    assert found.spread > 0.005 and all(line["within"] for line in lines)
    assert all(line["from"] < line["ms predicted"] < line["to"] for line in lines)
    assert (found.constants >= 0).all()


def coverage(nets, spread, trials=40):
    """How often intervals hold the medians of points on 4 and 8 ranks of made-up machines, which are fitted on 1 and 2.

    spread: of the random factor of each point. The runs of a point spread by 5 % around it.
    """
    found = [record | OF_DATA for record in made_up.records(repeats=1, **WIDE | {"nets": nets, "ranks": [1, 2, 4]})]
    [of_machine] = model.machines(rows(found)).values()
    counts = np.array([model.counts_of(row) for row in of_machine])
    few = np.array([row.ranks <= 2 for row in of_machine])
    rng, inside = np.random.default_rng(7), []
    for _ in range(trials):
        machine = np.array([5e-6, 3e-11, 1e-10, 1e-5, 5e-10, 0, 0]) * np.exp(rng.standard_normal(len(model.TERMS)))
        truth = (counts @ machine) * np.exp(spread * rng.standard_normal(len(counts)))
        runs = truth[:, None] * np.exp(0.05 * rng.standard_normal((len(counts), 6)))
        medians = np.median(runs, axis=1)
        of_few = model.fit_of(counts[few], medians[few], runs[few])
        for place in np.flatnonzero(~few):
            _, low, high = of_few.seconds(counts[place])
            inside.append(low <= medians[place] <= high)
    return np.mean(inside)


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.3])
def test_intervals_hold_95_of_100_points_of_machines_that_the_terms_describe(spread):
    studies = WIDE["nets"], ["mlp:256,256,relu"], ["mlp:512,512,relu", "mlp:1024,1024,relu"]
    assert np.mean([coverage(nets, spread) for nets in studies]) >= 0.95


def test_ranks_of_emulated_hosts_that_share_cores_compute_in_turns():
    series = [{"name": "hosts", "grid": "batch=*", "hosts": 4}]
    found = [record | OF_DATA for record in made_up.records(**WIDE | {"ranks": [4], "schemes": [], "series": series})]
    alone = [model.counts_of(row) for row in rows(found)]
    shared = [model.counts_of(row) for row in rows([record | {"slots": 2, "oversubscribed": True} for record in found])]
    for one, other in zip(alone, shared, strict=True):
        assert np.allclose(other[:3], 2 * one[:3]) and np.allclose(other[3:], one[3:])


def test_more_ranks_than_cores_are_neither_fitted_nor_predicted_and_are_named():
    found = as_if(CONSTANTS, ranks=[1, 2, 4])
    crowded = [record | {"oversubscribed": True, "seconds_per_step": {"median": 9.0}} if record["P"] == 4 else record
               for record in found]  # fmt: skip
    machine, lines, left_out = fitted(crowded)
    assert lines == [] and machine.spread < 1e-6 and [len(of) for of in left_out.values()] == [6]
    assert list(left_out) == [model.CROWDED]
    assert fitted(crowded, up_to=4)[0].spread < 1e-6  # of the fit too
    *_, (title, _, [line]) = model.tables(rows(crowded), 2)
    assert title.startswith("Left out of the fit") and (line["points"], line["why"]) == (6, "more ranks than cores")


def test_a_network_of_images_is_fitted_too_and_what_can_not_be_is_left_out_alone():
    found = as_if(CONSTANTS)
    images = [record | {"features": 784, "outputs": 10}
              for record in made_up.records(nets=["lenet5"], dataset="mnist", schemes=["batch"])]  # fmt: skip
    unknown = [record | {"features": 785} for record in images]
    assert all((model.counts_of(row) >= 0).all() for row in rows(images))
    for more, why in ((unknown, "the report does not say enough to build the network"),
                      (as_if(CONSTANTS, nets=["mlp:8,relu"]), None)):  # fmt: skip
        left_out = fitted(found + more)[2]
        assert [reason for reason in left_out] == ([why] if why else [])
    pipeline = made_up.records(grids=["stage=2"], schemes=[], nets=["mlp:8,8,relu"], ranks=[1])
    reasons = fitted(found + [record | OF_DATA for record in pipeline])[2]
    assert list(reasons) == ["pipelines have idle times that are no term"]


def test_points_that_the_terms_do_not_describe_have_a_reason():
    record = next(one for one in made_up.records(schemes=["batch"]) if one["P"] == 2) | OF_DATA
    for settings, why in (({"protocol": "local:4"}, "not synchronous"), ({"shares": "1,2"}, "unequal shares or speeds"),
                          ({"hosts": -1}, "no job on -1 hosts"), ({"plan": 3}, "there is no plan 3"),
                          ({"plan": "nonsense"}, "nonsense")):  # fmt: skip
        [row] = rows([record | {"point": record["point"] | settings}])
        with pytest.raises(ValueError, match=why):
            model.counts_of(row)


def test_what_no_point_on_few_ranks_has_is_not_predicted():
    found = as_if(CONSTANTS, schemes=["batch"])
    assert list(fitted(found, up_to=1)[2]) == [
        "the fitted points, on at most 1 ranks, have no rounds in a node and no bytes in a node"
    ]


def test_each_machine_is_fitted_alone():
    slow = [record | {"environment": made_up.ENVIRONMENT | {"processor": "another"}} for record in as_if(3 * CONSTANTS)]
    both = rows(as_if(CONSTANTS) + slow)
    found = model.machines(both)
    assert list(found) == ["processor a processor", "processor another"]
    constants = [model.fit(model.sorted_out(of, 4)[0]).constants for of in found.values()]
    assert constants[1] == pytest.approx(3 * constants[0], rel=1e-4)
    titles = [title for title, *_ in model.tables(both, 2)]
    assert sum(title.startswith("A machine fitted to the points on at most 2 ranks: processor") for title in titles) == 2
    wider = model.machines(rows(as_if(CONSTANTS) + as_if(CONSTANTS, dtype="float64")))
    assert list(wider) == ["dtype float32", "dtype float64"]


def test_too_few_points_are_no_machine_and_are_said_so():
    with pytest.raises(ValueError, match="2 points are too few to fit a machine: at least 3 are needed"):
        fitted(as_if(np.ones(7), nets=["mlp:8,relu"], schemes=["batch"], ranks=[1, 2]))
    few = model.tables(rows(made_up.records(ranks=[1])), 2)
    assert any(words.startswith("No machine was fitted: ") for _, words, _ in few)
