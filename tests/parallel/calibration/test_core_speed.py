"""What core_speed says of a machine."""

import platform

from gridgrad.parallel.calibration import core_speed


def test_the_identifier_of_a_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(core_speed, "START_ID", tmp_path / "boot_id")
    assert core_speed.machine() == platform.node()
    (tmp_path / "boot_id").write_text("abc\n")
    assert core_speed.machine() == "abc"
