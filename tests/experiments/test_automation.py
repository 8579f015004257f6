"""The study of automated and manual parallelism: its versions are one training, and what it reports of their times."""

import json

import numpy as np
import pytest

from gridgrad.experiments.studies.automation.__main__ import AUTOMATED, BY_HAND, cases, difference, measure, sides_of, warmed_up
from tests.experiments.programs import assert_refused, job
from tests.mpi import mpi


@mpi(2, 3, 4)
def test_the_versions_are_one_training(comm):
    """Also with dropout, whose masks are those of the global minibatch, and columns that nothing divides."""
    names = ["airfoil", "mnist-cnn", "cifar-cnn"] if comm.size == 2 else ["airfoil"]
    found = cases(names, comm.size, [7])
    assert {case.grid["model"] for case in found} == {2: {1, 2}, 3: {1, 3}, 4: {1, 2, 4}}[comm.size]
    for case in found:
        sides = sides_of(case, comm, "float64")
        _, differences = warmed_up(sides)
        assert differences.keys() == AUTOMATED.keys() and max(differences.values()) < 1e-10, (case, differences)
        first = sides[BY_HAND].version.parameters()[0]
        assert not np.array_equal(first, case.network.serial("float64").params[: first.size].reshape(first.shape)), "it learns"
        for side in sides.values():
            side.version.free()


@mpi(2)
def test_a_version_begins_in_each_round_in_another_place(comm):
    case = cases(["airfoil"], comm.size, [5])[0]
    row = measure(case, comm, "float64", "some")
    assert (row["net"], row["grid"], row["batch_size"], row["parameters"]) == ("airfoil", "batch=2", 5, 2301)
    for name in AUTOMATED:
        assert 0 < row["ratio"][name]["lower"] <= row["ratio"][name]["median"] <= row["ratio"][name]["upper"]


def test_a_difference_is_relative_to_each_array():
    assert difference([np.ones(2), np.array([1e-3])], [np.ones(2), np.array([2e-3])]) == pytest.approx(0.5)


def test_one_sample_is_for_columns_alone():
    found = [(case.name, case.grid["batch"], case.batch_size) for case in cases(["airfoil", "cifar-cnn"], 2, [100, 64])]
    assert found == [("airfoil", 2, 64), ("airfoil", 2, 100), ("airfoil", 1, 1), ("airfoil", 1, 64), ("airfoil", 1, 100),
                     ("cifar-cnn", 2, 64), ("cifar-cnn", 2, 100)]  # fmt: skip


def test_reports_of_other_networks_between_hosts_are_kept(tmp_path):
    out = tmp_path / "a.json"
    words = ["study", "automation", "--nets", "airfoil", "--batch-sizes", "6", "--rounds", "2", "--out", out]
    for link in ("one machine", "a cable"):
        finished = job(2, *words, "--link", link)
        assert finished.status == 0, finished.stderr
    reports = json.loads(out.read_text())
    assert [report["link"] for report in reports] == ["one machine", "a cable"]
    for report in reports:
        assert report["versions"]["processor"] and (report["ranks"], report["hosts"], report["rounds"]) == (2, 1, 2)
        assert [row["grid"] for row in report["rows"]] == ["batch=2", "model=2", "model=2"]
        assert all(
            set(row["seconds"]) == {BY_HAND, *AUTOMATED} and set(row["ratio"]) == set(AUTOMATED) for row in report["rows"]
        )


def test_bad_options_are_refused(tmp_path):
    bad = [
        (["--nets", "airfoil,lenet"], "there is no lenet"),
        (["--batch-sizes", "1"], "each rank needs a sample"),
        (["--batch-sizes", "2000"], "there are 1000 in all"),
        (["--out", "/proc/no/a.json"], "can not write"),
    ]
    assert_refused(2, "automation", bad, ["--out", tmp_path / "a.json"])
    assert job(1, "study", "automation").status == 2
