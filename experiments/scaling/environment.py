"""What a run was measured on. Runs compare, and are drawn as one curve, only where all of `SAME` agrees."""

import hashlib
import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np

import gridgrad
from gridgrad.experiments.launching.start_ranks import cores, slots
from gridgrad.nn.files.documents import LONGEST, PLAIN, TEXT, WHOLE, Optional
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.measure_table import ensure_measured
from gridgrad.nn.kernels.processor import blas, processor
from gridgrad.parallel.job.run import in_short, library_name

PACKAGE = Path(__file__).resolve().parents[2]
FOLDERS = "nn", "parallel", "datasets", "experiments"
SAME = {"processor": "processor", "cores": "cores", "governor": "governor of the clock", "blas": "BLAS",
        "threads": "BLAS threads a rank", "numpy": "NumPy", "kernels": "table of kernels", "mpi": "MPI library",
        "binding": "binding of ranks", "code": "code of gridgrad"}  # fmt: skip # {entry: in words}
FORM = dict.fromkeys(SAME, Optional(TEXT)) | {"cores": Optional(WHOLE), "threads": Optional(PLAIN)}
BINDING = ("HYDRA_BINDING", "SLURM_CPU_BIND", "OMP_PROC_BIND", "OMP_PLACES", "PRTE_MCA_hwloc_default_binding_policy",
           "OMPI_MCA_hwloc_base_binding_policy", "I_MPI_PIN_DOMAIN")  # fmt: skip # variables that bind ranks to cores
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def here():
    """What this process would start runs on: SAME, and what may differ. A processor without a table of kernels gets one now."""
    ensure_measured()
    binding = {name: os.environ[name] for name in BINDING if name in os.environ}
    if "SLURM_CPU_BIND" in binding:  # only the kind: behind it stand the cores of this job
        binding["SLURM_CPU_BIND"] = binding["SLURM_CPU_BIND"].partition(":")[0]
    return {
        "processor": processor().title, "cores": len(cores()), "slots": slots(),
        "governor": GOVERNOR.read_text().strip() if GOVERNOR.exists() else None, "blas": str(blas()),
        "threads": os.environ.get("OMP_NUM_THREADS"), "numpy": np.__version__, "kernels": kernels().name,
        "mpi": library_name(), "binding": " ".join(f"{name}={value}" for name, value in binding.items())[:LONGEST] or None,
        "code": code(), "gridgrad": gridgrad.__version__, "commit": commit(),
        "python": platform.python_version(), "host": platform.node(), "may_use": in_short(cores()),
        "job": os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID"),
    }  # fmt: skip


def same(environment):
    """The entries of SAME of an environment: what must agree."""
    return {name: environment.get(name) for name in SAME}


def differences(one, other):
    """Words for each entry of SAME in which two environments differ."""
    return [f"{words} ({one.get(name)}, {other.get(name)})" for name, words in SAME.items() if one.get(name) != other.get(name)]


@lru_cache
def code():
    """A digest of all code: runs with the same one ran the same program."""
    sha = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            sha.update(f"{path.relative_to(PACKAGE)}\n".encode())
            sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


@lru_cache
def commit():
    """The commit of the repository that has this code, and whether files were changed since; None without a repository."""
    ask = lambda *words: subprocess.run(  # noqa: E731
        ["git", "-C", str(PACKAGE), *words], capture_output=True, text=True, timeout=30, check=True
    ).stdout.strip()
    try:
        if Path(ask("rev-parse", "--show-toplevel")).resolve() != PACKAGE:
            return None
        changed = ask("status", "--porcelain", "--untracked-files=no", "--", *FOLDERS)
        return ask("rev-parse", "--short=12", "HEAD") + (" with uncommitted changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
