"""The jobs that programs start."""

from gridgrad.parallel.job.run import UserError

SHOWN = 300  # characters of what a job said last, where its errors are


def check_ended(job, what):
    """Raise UserError with the job's own last words unless it ended well. job: a Finished. what: the words for what was run."""
    if job.status != 0:
        raise UserError(f"{what} ended with status {job.status}: {job.stderr.strip()[-SHOWN:]}")
