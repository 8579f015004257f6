"""Job scripts for batch systems, as texts: what is known of a site, what a job asks for there, and what it runs.

The template is `experiments/templates/job.sh.jinja`, with what each batch system is asked for in files beside it. Four things
are the same on every system: each rank gets cores of its own and one BLAS thread a core; `check` runs first, so that a job in
which something is wrong ends at once; a job that is about to end is told so by SIGUSR1, upon which the program saves what it
needs to go on and ends with status CHECKPOINTED; and the same command line serves first start and restarts.

A site is a small TOML file, one of `experiments/sites` or a user's own. In its texts that become part of a script, these stand
for numbers and names of the job: {account}, {nodes}, {ranks}, {ranks_per_node}, {cores} (of a rank, each with a BLAS thread),
{share} (CPUs of a rank), {cpus} (of a node) and {gpus} (of a node).
"""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from gridgrad.experiments.common.programs import FOLDER
from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.common.templates import environment
from gridgrad.nn.files import documents
from gridgrad.nn.files.documents import Kind
from gridgrad.parallel.job.run import CHECKPOINTED

SITES = FOLDER / "sites"
SYSTEMS = {"slurm": "sbatch", "pbs": "qsub", "mpirun": "bash"}  # and what starts their scripts
HOUR, NO_LIMIT = 3600, "no limit"
LAST = 60  # seconds in which all ranks have to end after the first one has, before srun ends them
INHERITED = "GRIDGRAD_", "MPI4PY_"  # what variables begin with that a job needs as they are now
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
BLANK = re.compile(r"(?<!\$)\{([a-z_]+)\}")  # and not ${name}, which is bash's


def text(words, pattern):
    """The Kind of texts that match a whole pattern."""
    return Kind(words, lambda value: isinstance(value, str) and value.isprintable() and bool(re.fullmatch(pattern, value)))


LINE = text("a text of one line", ".*")
WORD = text("a text of one line that is not empty", ".+")
FILLED = text('a line for bash to fill in variables, without " ` \\ and $(', r'(?!.*\$\()[^"`\\]*')
PLAIN = text("letters, digits and any of . _ + @ : , % = / -", r"(?a:(?!-)[\w.+@:,%=/-]+)")
MEMORY = text("0, for all, or a whole number and K, M, G or T, such as 64G", "0|[1-9][0-9]*[KMGT]")
DIRECTIVE = text("one option of the batch system, such as --exclusive", "-.*")


@dataclass(frozen=True)
class Site:
    """What is known of a site: the entries of its file, their forms, and the defaults of jobs anywhere."""

    name: LINE = ""
    system: Kind(f"one of {', '.join(SYSTEMS)}", SYSTEMS.__contains__) = "slurm"
    launcher: [WORD] = ()  # the words that start ranks, without their number; () for those that fit the MPI library
    cores: documents.WHOLE = None  # of a node that a job has to itself; None where nodes may be shared
    threads: documents.WHOLE = 1  # of a core, where the batch system counts these as CPUs
    gpus: documents.COUNT = None  # of a node
    gpu_request: LINE = None  # in a directive of Slurm, or a chunk of PBS; None: as most sites want it
    partition: PLAIN = None
    account: PLAIN = None
    qos: PLAIN = None
    constraint: PLAIN = None
    mem: MEMORY = None
    directives: [DIRECTIVE] = ("--threads-per-core=1",)
    chunk: WORD = "ncpus={cpus}:mpiprocs={ranks_per_node}:ompthreads={cores}"  # what PBS is asked for of a node
    login: documents.TRUTH = False  # whether the script's shell is a login shell
    setup: [LINE] = ()
    folder: FILLED = None  # in which the job runs; bash fills in variables
    python: WORD = None
    variables: documents.Each(FILLED) = field(default_factory=dict)
    notes: [LINE] = ()
    sources: documents.Each(LINE) = field(default_factory=dict)
    gpu: dict = field(default_factory=dict)  # entries that differ for jobs with GPUs: all but name and system

    def request(self):
        """How the job asks for the GPUs of a node. A site that says what a node has says it of GPUs too."""
        usual = "ngpus={gpus}" if self.chunk == Site.chunk else ""
        return {"slurm": "--gpus-per-node={gpus}", "pbs": usual}[self.system] if self.gpu_request is None else self.gpu_request


NEEDED = "name", "system"
FORMS = {name: documents.Optional(form) for name, form in Site.__annotations__.items() if name != "gpu"}
EMPTY = {"directives": (), "python": "python", "gpus": 0}  # what a file has that does not say it


def site_names():
    """The names of the sites that come with gridgrad."""
    return sorted(path.stem for path in SITES.glob("*.toml"))


def read_site(name):
    """The Site of a name in `site_names()`, or of the path of a file. ValueError or OSError, in one line, if there is none."""
    path = SITES / f"{name}.toml" if name in site_names() else Path(name)
    if path.suffix != ".toml":
        words = f"use one of {', '.join(site_names())}, or a file of your own such as mine.toml"
        raise ValueError(f"there is no site {name}: {words}")
    content = documents.content_of_toml_file(path)
    gpu, of_gpu = content.get("gpu", {}), [name for name in FORMS if name not in NEEDED]
    documents.check(content, FORMS | {name: FORMS[name].form for name in NEEDED}, path.name)
    documents.check(gpu, FORMS, f"{path.name}.gpu")
    for where, entries, known in ((path, content, [*FORMS, "gpu"]), (f"{path}, [gpu]", gpu, of_gpu)):
        if unknown := [name for name in entries if name not in known]:
            raise ValueError(f"{where} has the unknown entry {unknown[0]}: there are {', '.join(known)}")
        if bad := [name for name in entries.get("variables", ()) if not VARIABLE.fullmatch(name)]:
            raise ValueError(f"{path.name} has the variable '{bad[0]}': a name is letters, digits and _")
    return Site(**(EMPTY | {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}))


@dataclass
class BatchJob:
    """What a script asks for and runs."""

    site: Site  # with what the options say in its place
    kind: str  # single, array or requeue
    name: str
    nodes: int
    per_node: int  # ranks
    cores: int  # of a rank, each with a BLAS thread
    gpus: int  # of a node
    seconds: int  # the time limit
    warn: int  # so many seconds before it the signal comes
    mpi: str  # pmi2 or pmix for srun with that option, srun for it without, or mpiexec
    mpiexec: list  # the words of that launcher
    open_mpi: bool  # whether it is Open MPI's
    program: list  # the words that start the program
    check: list  # those that start `check`, [] where that is the program
    starts_jobs: bool  # whether the program starts MPI jobs itself
    folder: str | None  # in which it runs; None for that of the site
    parts: int  # tasks of an array
    restarts: int  # at most
    script: str | None  # its path
    gather: str  # the command to run after an array

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

    @property
    def passes_on(self):
        """Whether the shell waits for the signal, to pass it on to a job that goes on later."""
        return self.kind == "requeue" and self.system == "slurm" and self.forwards

    @property
    def forwards(self):
        """Whether the signal goes to the shell, which passes it on: srun's ranks get it from Slurm."""
        return self.mpi == "mpiexec" or self.starts_jobs

    def filled(self, text):
        """A text of the site with the numbers and names of this job. ValueError for another blank, and one without a value."""
        values = {"account": self.site.account, "nodes": self.nodes, "ranks": self.ranks, "ranks_per_node": self.per_node,
                  "cores": self.cores, "share": self.share, "cpus": self.per_node * self.share, "gpus": self.gpus}  # fmt: skip

        def value(match):
            if match[1] not in values:
                raise ValueError(f"'{text}' has {match[0]}, which is none of {', '.join(f'{{{name}}}' for name in values)}")
            if values[match[1]] is None:
                raise ValueError(f"'{text}' has {match[0]}: add --{match[1]}")
            return str(values[match[1]])

        return BLANK.sub(value, text)

    def launcher(self, each=False):
        """The words that start all ranks, each on cores of its own. each: for each of the jobs of a program that starts jobs
        itself, which says how many ranks it has."""
        count = [] if each else ["-n", str(self.ranks)]
        if self.site.launcher:
            first, *rest = map(self.filled, self.site.launcher)
            return [first, *(count if self.mpi == "mpiexec" else []), *rest]  # srun starts as many as the job asks for
        if self.mpi != "mpiexec":
            kind = [] if self.mpi == "srun" else [f"--mpi={self.mpi}"]
            return ["srun", *kind, "--cpu-bind=cores", f"--wait={LAST}"]
        if self.open_mpi:
            where = f"slot:pe={self.cores}" if each else f"ppr:{self.per_node}:node:pe={self.cores}"
            return [*self.mpiexec, *count, "--map-by", where, "--bind-to", "core"]
        return [*self.mpiexec, *count, *([] if each else ["-ppn", str(self.per_node)]), "-bind-to", f"core:{self.cores}"]


def clock(seconds):
    """HH:MM:SS, of days too: Slurm and PBS both read hours beyond 24."""
    return f"{seconds // HOUR:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


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
    return "\n" + "".join(f"    {line}\n" for line in [*lines, line])


TEMPLATES = environment(clock=clock, counted=counted, join_words=shlex.join, lines_of_words=lines_of_words, quote=shlex.quote)


def script(job, environ=os.environ):
    """The text of the script. environ: the variables among which are those that the job inherits."""
    submit = f"{SYSTEMS[job.system]} {shlex.quote(job.script) if job.script else 'SCRIPT'}"
    inherited = {name: environ[name] for name in sorted(environ) if name.startswith(INHERITED) and VARIABLE.fullmatch(name)}
    found = TEMPLATES.get_template("job.sh.jinja")
    return found.render(job=job, submit=submit, inherited=inherited, checkpointed=CHECKPOINTED)


def check_syntax(text):
    """Raise ValueError with bash's words if a text is no script. Without bash nothing is checked."""
    try:
        found = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return
    if found.returncode:
        line = found.stderr.strip().splitlines()[0]
        raise ValueError(f"the script would be no shell script, because of a line of --setup: {line}")


def table(job):
    """What a job asks for and may use at most. Hours are those of the time limit, which a job need not reach."""
    starts = {"single": 1, "array": job.parts, "requeue": 1 + job.restarts}[job.kind]
    limited, units = job.system != "mpirun", {"node": job.nodes, "core": job.ranks * job.share // job.site.threads}
    units["GPU"] = job.nodes * job.gpus
    rows = [("", "one start", "in all"), ("starts, at most", 1, starts), ("nodes", job.nodes, ""), ("ranks", job.ranks, ""),
            ("cores", units["core"], ""), ("GPUs", units["GPU"], ""),
            ("time limit, h:min:s", clock(job.seconds) if limited else NO_LIMIT, "")]  # fmt: skip
    for unit, number in units.items():
        hours = [f"{times * number * job.seconds / HOUR:.2f}".rstrip("0").rstrip(".") for times in (1, starts)]
        rows.append((f"{unit}-hours, at most", *(hours if limited else (NO_LIMIT, NO_LIMIT))))
    return "\n".join(f"{what:22} {one!s:>11} {total!s:>11}".rstrip() for what, one, total in rows)
