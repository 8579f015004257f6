"""Whatever a new user types is answered: by what was asked for, or by one line that says what is wrong."""

import pytest

from tests.experiments.command_lines import cases, folder_at, typed


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder in which all of them are typed, one after another."""
    return folder_at(tmp_path_factory.mktemp("typed"))


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "status", "words", "text"), list(cases()))
def test_it_is_answered(ranks, status, words, text, here, monkeypatch):
    monkeypatch.chdir(here)
    monkeypatch.setenv("GRIDGRAD_DATA", str(here / "data"))
    finished = typed(ranks, words)
    said = finished.stdout + finished.stderr
    assert finished.status == status and text in said and "Traceback" not in said, said
    if status:
        errors = [line for line in finished.stderr.splitlines() if ": error: " in line]
        assert len(errors) == 1 and text in errors[0], said
    assert said or "--quiet" in words
