"""Job scripts for batch systems, as texts: what a script asks for, the environment, the command, and what follows its end.

A script is a list of blocks of lines, each of which begins with a comment. Four things are the same on every system: each
rank gets cores of its own and one BLAS thread a core; `check` runs first, so that a job in which something is wrong ends at
once; a job that is about to end is told so by SIGUSR1, upon which the program saves what it needs to go on and ends with status
CHECKPOINTED; and the same command line serves first start and restarts.
"""

import os
import shlex
import subprocess
from dataclasses import dataclass

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.parts.slurm_sites import SYSTEMS, Site, filled
from gridgrad.parallel.job.run import CHECKPOINTED

LAST = 60  # seconds in which all ranks have to end after the first one has, before srun ends them
INHERITED = "GRIDGRAD_", "MPI4PY_"  # what variables begin with that a job needs as they are now
CHECK = """\
"${launcher[@]}" "${check[@]}" || {
    status=$?
    echo "the job ends with status $status, and the program was not started: above, check says what is wrong" >&2
    exit "$status"
}"""
LISTEN = """\
again=
launched=
trap 'again=1; [ -z "$launched" ] || kill -USR1 "$launched"' USR1"""
FORWARD = """\
status=$((128 + 10))  # where the signal has come before
if [ -z "$again" ]; then
    {run} &
    launched=$!
    [ -z "$again" ] || kill -USR1 "$launched"  # it came meanwhile
    again=1
    while ((again)); do again=0; wait "$launched"; status=$?; done  # a signal ends `wait`, not the job
fi"""
GOES_ON = "((status == {checkpointed} || status == 128 + 10))"  # or the signal (10) ended the program before it listened
SAVED = f"# ----- {CHECKPOINTED}, or 128 + the signal that came too early: it can go on"
REQUEUE = """\
if {goes_on}; then
    if ((${{SLURM_RESTART_COUNT:-0}} < {restarts})); then
        echo "stopped early, to go on after a requeue"
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "not requeued, after {restarts} restarts: submit the script again to go on" >&2
    fi
fi
exit "$status\""""
RESUBMIT = """\
if {goes_on}; then
    restart=$((${{RESTART:-0}} + 1))
    if ((restart <= {restarts})); then
        echo "stopped early, to go on in the next job"
        qsub -v RESTART="$restart" {script}
    else
        echo "not submitted again, after {restarts} restarts: submit the script to go on" >&2
    fi
fi
exit "$status\""""
EACH = """\
(($#)) || set -- {{1..{parts}}}
trap 'kill "$launched"' INT TERM
for part; do
    {run} --part "$part/{parts}" &
    launched=$!
    wait "$launched" || exit
done"""


@dataclass
class Job:
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


def slurm_directives(job):
    site = job.site
    yield "nodes, ranks of a node, and CPUs of a rank"
    yield from (f"--nodes={job.nodes}", f"--ntasks-per-node={job.per_node}", f"--cpus-per-task={job.share}")
    if job.gpus:
        yield "GPUs of a node"
        yield f"--gpus-per-node={job.gpus}"
    yield "time limit, hours:minutes:seconds"
    yield f"--time={clock(job.seconds)}"
    if site.mem:
        yield "memory of a node" + (": all of it" if site.mem == "0" else "")
        yield f"--mem={site.mem}"
    asked = "partition", "account", "qos", "constraint", "reservation"
    if words := [f"--{name}={value}" for name in asked if (value := getattr(site, name))]:
        yield "where the job runs, and who is charged"
        yield from words
    if site.directives:
        yield "further options of sbatch"
        yield from map(job.filled, site.directives)
    if job.kind == "array":
        yield "tasks of the array, each a job of its own; behind the numbers %4 would let only 4 of them run at a time"
        yield f"--array=1-{job.parts}"
    yield "one log, to which a restart adds" if job.kind == "requeue" else "the log"
    yield from (f"--job-name={job.name}", f"--output={job.name}-{'%A_%a' if job.kind == 'array' else '%j'}.log")
    yield "--open-mode=append"
    if job.kind == "single":
        yield "Slurm does not start it again by itself after the failure of a node, as it does where --kind is requeue"
        yield "--no-requeue"
    else:
        yield "after the failure of a node, or where another job takes its place, it goes on in the queue"
        yield "--requeue"
    if job.kind == "requeue":
        receiver = "this shell, which passes it on" if job.forwards else "all ranks"
        yield f"so many seconds before the time limit, and up to a minute earlier, SIGUSR1 comes to {receiver}"
        yield f"--signal={'B:' if job.forwards else ''}USR1@{job.warn}"


def pbs_directives(job):
    site = job.site
    yield "nodes, and what is asked for of each"
    own = site.chunk != Site.chunk  # which says all that a node has
    more = f":ngpus={job.gpus}" * bool(job.gpus and not own) + f":mem={site.mem}b".lower() * bool(site.mem)
    more += f":{site.constraint}" * bool(site.constraint)
    yield f"-l select={job.nodes}:{job.filled(site.chunk)}{more}"
    if job.nodes > 1:
        yield "each of these on a node of its own"
        yield "-l place=scatter"
    yield "time limit, hours:minutes:seconds"
    yield f"-l walltime={clock(job.seconds)}"
    if words := [f"{option} {value}" for option, value in (("-q", site.partition), ("-A", site.account)) if value]:
        yield "where the job runs, and who is charged"
        yield from words
    if site.directives:
        yield "further options of qsub"
        yield from map(job.filled, site.directives)
    if job.kind == "array":
        yield "tasks of the array, each a job of its own"
        yield f"-J 1-{job.parts}"
    yield "the log has the errors too"
    yield from (f"-N {job.name}", "-j oe")
    yield "whether it may start again after the failure of a node"
    yield f"-r {'n' if job.kind == 'single' else 'y'}"


def about(site):
    """What readers of the script should know of the site."""
    if site.name:
        yield f"# For {site.name}:"
        yield from (f"# - {note}" for note in site.notes)
        yield from (f"# [{tag}] {address}" for tag, address in site.sources.items())


def head(job):
    """The first lines: what the script is for, how to start it, and what it asks for."""
    what = {"single": "One job", "array": f"A sweep in {job.parts} parts", "requeue": "A job that goes on where it stopped"}
    start = f"{SYSTEMS[job.system]} {shlex.quote(job.script) if job.script else 'SCRIPT'}"
    yield f"#!/bin/bash{' -l' * job.site.login}"
    yield f"# {what[job.kind]} on {counted(job.ranks, 'rank')} with {counted(job.cores, 'core')} each. Start it with: {start}"
    yield from about(job.site)
    if job.kind == "array":
        if job.system == "mpirun":
            yield "# All parts one after another or, on several machines that share this folder, those whose numbers are given."
        yield "# Started again, it does what is missing. When all parts are done, put them together:"
        yield f"#   {job.gather}"
    directives = {"slurm": (slurm_directives, "#SBATCH"), "pbs": (pbs_directives, "#PBS")}.get(job.system)
    if directives:
        yield ""
        for text in directives[0](job):
            yield f"{directives[1]} {text}" if text.startswith("-") else f"# {text}"


def surroundings(job, environ):
    """The environment of the shell, which all ranks inherit."""
    yield "# ----- the environment: modules, variables, virtual environments"
    yield from map(job.filled, job.site.setup)
    folder = f'"{job.filled(job.site.folder)}"' if job.folder is None else shlex.quote(job.folder)
    yield f"cd {folder} || exit 1"
    yield f"export OMP_NUM_THREADS={job.cores}  # BLAS threads of a rank: as many as it has cores"
    if job.system == "slurm" and job.mpi != "mpiexec":
        yield f"export SRUN_CPUS_PER_TASK={job.share}  # srun does not read --cpus-per-task above"
    inherited = sorted(name for name in environ if name.startswith(INHERITED))
    for name, value in job.site.variables.items():
        if name not in inherited:
            yield f'export {name}="{job.filled(value)}"'
    for name in inherited:
        yield f"export {name}={shlex.quote(environ[name])}"
    if job.starts_jobs:
        yield f"export MPIEXEC={shlex.quote(shlex.join(launcher(job, each=True)))}  # starts each of its jobs"


def quoted(word):
    """A word as bash reads it back; also those with commas in quotes, which shellcheck would take for separators."""
    safe = shlex.quote(word)
    return f"'{word}'" if "," in safe and safe == word else safe


def words(lead, parts):
    """A bash array of these words, a line for each option with what belongs to it."""
    lines, line = [], ""
    for word in map(quoted, parts):
        if line and (word.startswith("-") or len(line) + len(word) > 100):
            lines.append(line)
            line = ""
        line += f" {word}" if line else word
    return [f"{lead}=(", *(f"    {text}" for text in [*lines, line]), ")"]


def commands(job):
    """What is run, and what follows its end."""
    passes_on = job.kind == "requeue" and job.system == "slurm" and job.forwards
    if passes_on:
        yield from ("# ----- a signal to this shell is for the program", LISTEN, "")
    if job.check or not job.starts_jobs:
        yield "# ----- what starts all ranks"
        yield from words("launcher", launcher(job))
        yield ""
    if job.check:
        yield "# ----- first: do the ranks find each other, and has each of them cores of its own?"
        yield from words("check", job.check)
        yield from (CHECK, "")
    yield "# ----- what is run"
    yield from words("program", job.program)
    run = '"${program[@]}"' if job.starts_jobs else '"${launcher[@]}" "${program[@]}"'
    stopped = {"restarts": job.restarts, "goes_on": GOES_ON.format(checkpointed=CHECKPOINTED)}
    if job.kind == "array":
        number = {"slurm": "$SLURM_ARRAY_TASK_ID", "pbs": "$PBS_ARRAY_INDEX"}.get(job.system)
        yield f'exec {run} --part "{number}/{job.parts}"' if number else EACH.format(run=run, parts=job.parts)
    elif job.kind == "single" or job.system == "mpirun":  # there `supervise` starts a job again
        yield f"exec {run}"
    elif job.system == "pbs":
        yield f"# {job.warn} seconds before the time limit SIGUSR1 comes to the program; SECONDS have passed in this script"
        yield f'timeout --foreground --preserve-status --signal=USR1 "$(({job.seconds - job.warn} - SECONDS))" {run}'
        yield from ("status=$?", "", f"{SAVED}; submit this script again")
        yield RESUBMIT.format(script=shlex.quote(job.script), **stopped)
    else:
        yield from (FORWARD.format(run=run),) if passes_on else (run, "status=$?")
        yield from ("", f"{SAVED}; put this job back into the queue")
        yield REQUEUE.format(**stopped)


def script(job, environ=os.environ):
    """The text of the script. environ: the variables among which are those that the job inherits."""
    blocks = (head(job), surroundings(job, environ), commands(job))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def check_syntax(text):
    """Raise ValueError with bash's words if a text is no script. Without bash nothing is checked."""
    try:
        found = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return
    if found.returncode:
        line = found.stderr.strip().splitlines()[0]
        raise ValueError(f"the script would be no shell script, because of a line of --setup: {line}")
