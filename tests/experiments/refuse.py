"""A job in which a program refuses many command lines: `mpiexec -n P python -m tests.experiments.refuse PROGRAM FILE`.

FILE has the command lines, and then the messages: see `tests.experiments.programs.assert_refused`.
"""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from gridgrad.experiments.common.programs import module
from gridgrad.parallel.job.run import UserError, one_line, run


def main():
    name, path, main_of = sys.argv[1], Path(sys.argv[2]), module(sys.argv[1]).main
    command_lines, messages = json.loads(path.read_text()), []
    for words in command_lines:
        sys.argv = [name, *words]
        try:
            main_of()
        except UserError as error:
            message = one_line(error)
        else:
            message = ""
        found = MPI.COMM_WORLD.allgather(message)
        assert message and found == [message] * len(found), f"{words}: {found}"
        messages.append(message)
    if MPI.COMM_WORLD.rank == 0:
        path.write_text(json.dumps(messages))


if __name__ == "__main__":
    run(main)
