"""The settings that come with gridgrad: each is a study that `sweep` takes, and says what it is about."""

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.scaling import study as settings
from gridgrad.experiments.scaling.study import Study

FILES = sorted(path.name for path in settings.FILES.glob("*.toml"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_a_study(name):
    study = Study(settings.read(name))
    study.check_options()
    assert study.points and len((settings.FILES / name).read_text().splitlines()) <= 45


def test_a_rank_alone_may_be_slow_and_is_compared_with_all():
    study = Study(settings.read("laptops.toml"))
    (alone,) = {point.key: point for point in study.points if point.ranks == 1 and "50-500" in point.settings["net"]}.values()
    assert alone.settings["handicap"] == "0=1.604" and study.baseline == "alone"
    args = sweep.options().parse_args(["--schemes", "batch", "--ranks", "1,2", "--vary", "handicap=0=2"])
    assert "handicap" not in sweep.study_of(args).points[0].settings  # as the one rank of all series
