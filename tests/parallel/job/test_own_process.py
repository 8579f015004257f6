"""The process of a rank: which files of MPI are its own, and that a serial run leaves none."""

import os
import subprocess
import sys
from pathlib import Path

from gridgrad.parallel.job import own_process
from gridgrad.parallel.job.own_process import MARK

SERIAL = """
import time
from gridgrad.parallel.job.run import run
run(lambda: (print("runs", flush=True), time.sleep(600)))
"""


def test_only_files_of_mpi_count_and_only_where_the_process_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(own_process, "SHARED_MEMORY", tmp_path)
    names = "mpich_shm_0_0", "mpich_vci_ab12_3", "sm_segment.host.0.1", "dataset.npy", "gridgrad_1", "psm_1"
    files = [open(tmp_path / name, "w") for name in names]  # noqa: SIM115
    try:
        assert set(own_process.segments_of(os.getpid())) == {tmp_path / name for name in names[:3]}
        assert own_process.segments_of(os.getppid()) == own_process.segments_of(1 << 30) == {}
    finally:
        for file in files:
            file.close()


def test_a_serial_run_that_is_killed_has_left_no_file():
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    process = subprocess.Popen([sys.executable, "-c", SERIAL], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout.readline() == "runs\n"
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert any(name in maps for name in own_process.LIBRARIES) and not own_process.segments_of(process.pid)
    finally:
        process.kill()
        process.communicate()
