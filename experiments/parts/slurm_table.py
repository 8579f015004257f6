"""What a job asks for and may use at most, as a table: how many starts it has, nodes, cores, GPUs, and their hours."""

from gridgrad.experiments.parts.slurm_script import clock

HOUR = 3600
NO_LIMIT = "no limit"


def starts(job):
    """How often the job starts at most: the tasks of an array, or the first time and all restarts."""
    return {"single": 1, "array": job.parts, "requeue": 1 + job.restarts}[job.kind]


def table(job):
    """The table. Hours are those of the time limit, which a job need not reach; without one there are none to tell."""
    count, limited = starts(job), job.system != "mpirun"
    cores, gpus = job.nodes * job.per_node * job.share // job.site.threads, job.nodes * job.gpus
    rows = [
        row("", "one start", "in all"),
        row("starts, at most", 1, count),
        row("nodes", job.nodes),
        row("ranks", job.ranks),
        row("cores", cores),
        row("GPUs", gpus),
        row("time limit, h:min:s", clock(job.seconds) if limited else NO_LIMIT),
    ]
    for name, number in (("node", job.nodes), ("core", cores), ("GPU", gpus)):
        hours = number * job.seconds / HOUR
        rows.append(
            row(f"{name}-hours, at most", *(map(in_short, (hours, count * hours)) if limited else (NO_LIMIT, NO_LIMIT)))
        )
    return "\n".join(rows)


def row(what, one, total=""):
    return f"{what:22} {one!s:>11} {total!s:>11}".rstrip()


def in_short(hours):
    """Hours as text, with at most two digits behind the point."""
    return f"{hours:.2f}".rstrip("0").rstrip(".")
