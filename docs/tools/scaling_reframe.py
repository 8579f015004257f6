"""A small scaling study as a test of ReFrame: `reframe --exec-policy serial -c docs/tools/scaling_reframe.py -r`.

It passes if every run of the study ended, and if the networks are the same on every grid: the loss after the same steps. Times,
speedups and bytes are logged as performance; give them a `reference` for a machine to have them checked as well.
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import deferrable, parameter, run_before, sanity_function, variable

STUDY = "study.jsonl"


@rfm.simple_test
class GridgradScaling(rfm.RunOnlyRegressionTest):
    """A sweep of one series. Set its variables by `-S`: `reframe -c FILE -S ranks=1,2,4,8 -S net=mlp:1024,1024,relu -r`."""

    descr = "scaling of a perceptron, strong, on one axis of the grid"
    series = parameter(["batch", "model"])
    ranks = variable(str, value="1,2")
    net = variable(str, value="mlp:64,64,relu")
    steps = variable(int, value=20)
    repeats = variable(int, value=2)
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "gridgrad"

    @run_before("setup")
    def ask_for_ranks(self):
        self.num_tasks = max(map(int, self.ranks.split(",")))

    @run_before("run")
    def start_the_sweep(self):
        self.executable_opts = [
            "sweep", "--dataset", "airfoil", "--nets", self.net, "--ranks", self.ranks, "--schemes", self.series,
            "--steps", str(self.steps), "--repeats", str(self.repeats), "--most-repeats", str(self.repeats), "--out", STUDY,
        ]  # fmt: skip
        self.job.launcher = getlauncher("local")()  # the sweep starts its jobs itself

    def runs(self):
        return [json.loads(line) for line in (Path(self.stagedir) / STUDY).read_text().splitlines()]

    @sanity_function
    def every_run_ends_with_the_same_network(self):
        runs = self.runs()
        wanted = len(self.ranks.split(",")) * self.repeats
        losses = [run.get("final_loss", float("nan")) for run in runs]
        return sn.all([
            sn.assert_eq([run["failed"] for run in runs if run.get("failed")], []),
            sn.assert_eq(len(runs), wanted, f"{len(runs)} runs instead of {wanted}"),
            sn.assert_lt(max(losses) - min(losses), 1e-4 * abs(losses[0]), f"losses differ: {losses}"),
        ])  # fmt: skip

    @run_before("performance")
    def log_each_number_of_ranks(self):
        for ranks in map(int, self.ranks.split(",")):
            self.perf_variables[f"step_on_{ranks}"] = sn.make_performance_function(self.milliseconds(ranks), "ms")
            self.perf_variables[f"sent_on_{ranks}"] = sn.make_performance_function(self.sent(ranks), "bytes")

    @deferrable
    def milliseconds(self, ranks):
        return 1e3 * min(run["seconds_per_step"]["median"] for run in self.runs() if run["P"] == ranks)

    @deferrable
    def sent(self, ranks):
        return sum(next(run["bytes"] for run in self.runs() if run["P"] == ranks).values())
