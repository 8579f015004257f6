"""`gridgrad train` on a machine with one GPU, which the stand-in plays.

mpiexec -n 3 python -m tests.train_with_one_gpu --device hybrid
"""

from gridgrad.experiments.train import main
from gridgrad.nn import device
from gridgrad.parallel.job.run import run
from tests import standin

if __name__ == "__main__":
    device.KINDS["gpu"] = standin.Device
    device.gpus = lambda: ["the only one"]
    run(main)
