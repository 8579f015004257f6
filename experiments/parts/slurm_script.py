"""Job scripts for batch systems, as texts: what a script asks for, the environment, the command, and what follows its end.

The template is `experiments/templates/job.sh.jinja`, with what each batch system is asked for in files beside it. Four things
are the same on every system: each rank gets cores of its own and one BLAS thread a core; `check` runs first, so that a job in
which something is wrong ends at once; a job that is about to end is told so by SIGUSR1, upon which the program saves what it
needs to go on and ends with status CHECKPOINTED; and the same command line serves first start and restarts.
"""

import os
import shlex
import subprocess
from dataclasses import dataclass

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.common.templates import environment
from gridgrad.experiments.parts.slurm_sites import SYSTEMS, VARIABLE, Site, filled
from gridgrad.parallel.job.run import CHECKPOINTED

LAST = 60  # seconds in which all ranks have to end after the first one has, before srun ends them
INHERITED = "GRIDGRAD_", "MPI4PY_"  # what variables begin with that a job needs as they are now


@dataclass
class BatchJob:
    """What a script asks for and runs.

    site: the Site, with what the options say in its place. kind: "single", "array" or "requeue". nodes; per_node: ranks of a
    node; cores: of a rank, each with a BLAS thread. gpus: of a node. seconds: the time limit; warn: how many seconds before it
    the signal comes. mpi: "pmi2" or "pmix" for srun with that option, "srun" for it without, or "mpiexec".
    mpiexec: the words of that launcher; open_mpi: whether it is Open MPI's. program: the words that start the program. check:
    those that start `check`, or [] where that is the program. starts_jobs: whether the program starts MPI jobs itself. folder:
    in which it runs, None for that of the site. parts: tasks of an array. restarts: at most. script: the path of the script,
    or None. gather: the command to run after an array.
    """

    site: Site
    kind: str
    name: str
    nodes: int
    per_node: int
    cores: int
    gpus: int
    seconds: int
    warn: int
    mpi: str
    mpiexec: list
    open_mpi: bool
    program: list
    check: list
    starts_jobs: bool
    folder: str | None
    parts: int
    restarts: int
    script: str | None = None
    gather: str = ""

    @property
    def system(self):
        return self.site.system

    @property
    def ranks(self):
        return self.nodes * self.per_node

    @property
    def share(self):
        """CPUs of a rank, as the batch system counts them: its cores or, where it has a node to itself, its part of that."""
        whole = self.site.cores and self.site.cores // self.per_node
        return (whole or self.cores) * self.site.threads

    def filled(self, text):
        """A text of the site with the numbers and names of this job."""
        return filled(text, {
            "account": self.site.account, "nodes": self.nodes, "ranks": self.ranks, "ranks_per_node": self.per_node,
            "cores": self.cores, "share": self.share, "cpus": self.per_node * self.share,
        })  # fmt: skip

    @property
    def passes_on(self):
        """Whether the shell waits for the signal, to pass it on to a job that goes on later."""
        return self.kind == "requeue" and self.system == "slurm" and self.forwards

    @property
    def forwards(self):
        """Whether the signal goes to the shell, which passes it on: srun's ranks get it from Slurm."""
        return self.mpi == "mpiexec" or self.starts_jobs


def clock(seconds):
    """HH:MM:SS"""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def launcher(job, each=False):
    """The words that start all ranks, each on cores of its own.

    each: for each of the jobs of a program that starts jobs itself, which says how many ranks it has.
    """
    count = [] if each else ["-n", str(job.ranks)]
    if job.site.launcher:
        first, *rest = map(job.filled, job.site.launcher)
        return [first, *(count if job.mpi == "mpiexec" else []), *rest]  # srun starts as many as the job asks for
    if job.mpi != "mpiexec":
        kind = [] if job.mpi == "srun" else [f"--mpi={job.mpi}"]
        return ["srun", *kind, "--cpu-bind=cores", f"--wait={LAST}"]
    if job.open_mpi:
        where = f"slot:pe={job.cores}" if each else f"ppr:{job.per_node}:node:pe={job.cores}"
        return [*job.mpiexec, *count, "--map-by", where, "--bind-to", "core"]
    return [*job.mpiexec, *count, *([] if each else ["-ppn", str(job.per_node)]), "-bind-to", f"core:{job.cores}"]


def quoted(word):
    """A word as bash reads it back; also those with commas in quotes, which shellcheck would take for separators."""
    safe = shlex.quote(word)
    return f"'{word}'" if "," in safe and safe == word else safe


def lines_of_words(parts):
    """The words of a bash array, a line for each option with what belongs to it."""
    lines, line = [], ""
    for word in map(quoted, parts):
        if line and (word.startswith("-") or len(line) + len(word) > 100):
            lines.append(line)
            line = ""
        line += f" {word}" if line else word
    return "\n" + "".join(f"    {text}\n" for text in [*lines, line])


TEMPLATES = environment(clock=clock, counted=counted, join_words=shlex.join, lines_of_words=lines_of_words, quote=shlex.quote)


def script(job, environ=os.environ):
    """The text of the script. environ: the variables among which are those that the job inherits."""
    submit = f"{SYSTEMS[job.system]} {shlex.quote(job.script) if job.script else 'SCRIPT'}"
    inherited = {name: environ[name] for name in sorted(environ) if name.startswith(INHERITED) and VARIABLE.fullmatch(name)}
    return TEMPLATES.get_template("job.sh.jinja").render(
        job=job, submit=submit, inherited=inherited, launcher=launcher, usual_chunk=Site.chunk, checkpointed=CHECKPOINTED
    )


def check_syntax(text):
    """Raise ValueError with bash's words if a text is no script. Without bash nothing is checked."""
    try:
        found = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return
    if found.returncode:
        line = found.stderr.strip().splitlines()[0]
        raise ValueError(f"the script would be no shell script, because of a line of --setup: {line}")
