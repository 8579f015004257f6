"""The BLAS of both sides and what this machine can do at the most, one thread: prints a line of JSON, for `bench`."""

import json

from gridgrad.experiments.benchmarks import torch_peer
from gridgrad.experiments.common import report
from gridgrad.experiments.common.core_limits import copy_bandwidth, gemm_peak
from gridgrad.experiments.common.options import Parser
from gridgrad.parallel.job.run import run_launcher

SECONDS = 0.5  # for each measurement


def main():
    Parser(prog="bench_limits", description="Measure the peak of matrix products and of memory.").parse_args()
    found = {
        "ours": {"blas": str(report.blas()), "flops": gemm_peak(SECONDS)},
        "peer": {"blas": torch_peer.blas(), "flops": torch_peer.gemm_peak(SECONDS)},
        "copy": copy_bandwidth(SECONDS),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    run_launcher(main)
