"""`train` where no file can be long: `python -m tests.experiments.on_full_disk ROOM BYTES OPTIONS`, run by test_full_disk.py.

ROOM: bytes for which it looks before it trains. BYTES: that a file can have.
"""

import sys

from gridgrad.experiments import train
from gridgrad.experiments.common import options
from gridgrad.parallel.job.run import run
from tests.disk import files_end_at


def main():
    options.ROOM, size = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    with files_end_at(size):
        train.main()


if __name__ == "__main__":
    run(main)
