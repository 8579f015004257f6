"""Jobs in the foreground: they have the output of the process that starts them, and get the signals that it gets."""

import os
import select
import signal
import threading
import time
from pathlib import Path

from gridgrad.experiments.launching.start_ranks import care_no_more, find_mpiexec, is_open_mpi, launch
from gridgrad.parallel.job.run import UserError

WORDS = 5.0  # seconds in which the last words of a job arrive, where something that it started holds its output open
PASSED_ON = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1


class Foreground:
    """Starts jobs, one after another. From when it is made, signals to this process are passed on to the job that runs.

    signalled: the number of the first such signal, None so far. After it no other job is started.
    """

    def __init__(self):
        self.signalled, self._process, self._launcher, self._full = None, None, None, None
        for number in PASSED_ON:
            signal.signal(number, self._hear)

    def _hear(self, number, frame):
        again, self.signalled = self.signalled is not None, self.signalled or number
        if self._process:
            self._process.send_signal(number if again else for_launcher(self._launcher, number))

    def run(self, ranks, command, options=()):
        """Run the words of a command on `ranks` ranks without input; returns the status to exit with.

        options: of the launcher, in addition. If the job fails, its remaining processes are killed and its shared-memory files
        deleted, and so they are if this process is killed. After a signal that came between two jobs, the status is that of a
        process that the signal ended. UserError after a job that went well, but whose output could not be written.
        """
        launcher = find_mpiexec()
        self._launcher = launcher[0]
        is_open_mpi(launcher[0])  # asks the launcher, which is not to be done while a signal is handled
        if self.signalled:
            return 128 + self.signalled
        process, caretaker = launch(launcher, ranks, command, options=options)  # in a session: Ctrl-C comes once, from here
        said = [
            threading.Thread(target=self._pass_on, args=(pipe, descriptor), daemon=True)
            for pipe, descriptor in ((process.stdout, 1), (process.stderr, 2))
        ]
        for thread in said:
            thread.start()
        self._process = process
        if self.signalled:  # while it was being started
            process.terminate()
        status = process.wait()
        self._process = None
        care_no_more(caretaker, clean=not status)
        for thread in said:
            thread.join(WORDS)
        if self.signalled == signal.SIGINT:  # of which launchers make statuses of their own
            return 128 + signal.SIGINT
        if self._full and not status:
            raise UserError(f"can not write the output: {self._full.strerror}")
        return 128 - status if status < 0 else status

    def _pass_on(self, pipe, descriptor):
        """Pass on what a job prints, but nothing that it and its launcher say after Ctrl-C, or that nobody reads any more."""
        with pipe:
            while said := os.read(pipe.fileno(), 1 << 16):
                while said and self.signalled != signal.SIGINT:
                    try:
                        said = said[os.write(descriptor, said) :]
                    except BlockingIOError:  # another program has made the stream one that does not wait
                        select.select([], [descriptor], [])
                    except OSError as error:
                        said = b""
                        if descriptor == 1 and not isinstance(error, BrokenPipeError):
                            self._full = error

    def pause(self, seconds):
        """Wait so long, or until a signal comes."""
        deadline = time.monotonic() + seconds
        while self.signalled is None and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))


def for_launcher(launcher, number):
    """The signal that a launcher, the path of a program, has to get so that its ranks get this one, or one that means the same.

    MPICH's mpiexec passes all of them on. At SIGTERM Open MPI's mpiexec and Slurm's srun kill the ranks, and pass SIGUSR1 on.
    """
    kills = Path(launcher).name == "srun" or is_open_mpi(launcher)
    return signal.SIGUSR1 if number == signal.SIGTERM and kills else number
