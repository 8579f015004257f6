"""The jobs that programs start."""

import json

from gridgrad.parallel.job.run import UserError

SHOWN = 300  # characters of what a job said last, where its errors are


def printed_json(job, what):
    """The content of the JSON in the last line that a job has printed. UserError, and the arguments: as for `check_ended`."""
    check_ended(job, what)
    return json.loads(job.stdout.strip().splitlines()[-1])


def check_ended(job, what):
    """Raise UserError with the job's own last words unless it ended well. job: a Finished. what: the words for what was run."""
    if job.status != 0:
        raise UserError(f"{what} ended with status {job.status}: {job.stderr.strip()[-SHOWN:]}")
