"""What a job script has to know of a site: a small TOML file each, those of `experiments/sites` or a user's own.

In the texts of a file that become part of a script, these stand for numbers and names of the job: {account}, {nodes},
{ranks}, {ranks_per_node}, {cores} (of a rank, each with a BLAS thread), {share} (CPUs of a rank) and {cpus} (of a node).
"""

import re
from dataclasses import dataclass, field, fields
from pathlib import Path

from gridgrad.experiments.common.programs import FOLDER
from gridgrad.nn.files import documents

SITES = FOLDER / "sites"
SYSTEMS = {"slurm": "sbatch", "pbs": "qsub", "mpirun": "bash"}  # and what starts their scripts
PLAIN = re.compile(r"[\w.+@:,%=/-]+", re.ASCII)
PLAIN_WORDS = "letters, digits and any of . _ + @ : , % = / -"
MEMORY = re.compile(r"0|[1-9][0-9]*[KMGT]")
MEMORY_WORDS = "0, for all, or a whole number and K, M, G or T, such as 64G"
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
BLANK = re.compile(r"(?<!\$)\{([a-z_]+)\}")  # and not ${name}, which is bash's


def is_plain(value):
    """Whether a text is a name in which nothing means anything to a shell or a batch system."""
    return isinstance(value, str) and PLAIN.fullmatch(value) is not None and not value.startswith("-")


def is_line(value):
    return isinstance(value, str) and value.isprintable()


def is_directive(value):
    return is_line(value) and value.startswith("-")


LINE = documents.Kind("a text of one line", is_line)
FILLED = documents.Kind(
    'a line for bash to fill in variables, without " ` \\ and $(',
    lambda value: is_line(value) and not re.search(r'["`\\]|\$\(', value),
)
WORD = documents.Kind("a text of one line that is not empty", lambda value: is_line(value) and bool(value))
NAME = documents.Kind(PLAIN_WORDS, is_plain)
MEMORY_SIZE = documents.Kind(MEMORY_WORDS, lambda value: isinstance(value, str) and MEMORY.fullmatch(value) is not None)
DIRECTIVE = documents.Kind("an option of the batch system, which begins with -", is_directive)
OF_SITE = {
    "name": LINE, "system": documents.Kind(f"one of {', '.join(SYSTEMS)}", SYSTEMS.__contains__), "launcher": [WORD],
    "cores": documents.WHOLE, "threads": documents.WHOLE, "gpus": documents.COUNT, "partition": NAME, "account": NAME, "qos":
    NAME, "constraint": NAME, "reservation": NAME, "mem": MEMORY_SIZE,
    "directives": [DIRECTIVE], "chunk": WORD, "login": documents.TRUTH, "setup": [LINE], "folder": FILLED, "python": WORD,
    "variables": documents.Each(FILLED), "notes": [LINE], "sources": documents.Each(LINE),
}  # fmt: skip
FORM = {name: documents.Optional(form) for name, form in OF_SITE.items()}


@dataclass(frozen=True)
class Site:
    """What is known of a site; the defaults are for jobs anywhere.

    name: in words. system: a name in SYSTEMS. launcher: the words that start ranks, without their number; () for those that
    fit the MPI library. cores: of a node, which a job has to itself; None where nodes may be shared. threads: of a core, where
    the batch system counts these as CPUs. gpus: of a node. partition, account, qos, constraint, reservation, mem: as
    the options. directives: further ones. chunk: what PBS is asked for of a node. login: whether the script's shell is a login
    shell. setup: lines to run first. folder: in which the job runs; bash fills in variables. python: the interpreter.
    variables: to export. notes, sources: for readers. gpu: entries that differ for jobs with GPUs.
    """

    name: str = ""
    system: str = "slurm"
    launcher: tuple = ()
    cores: int | None = None
    threads: int = 1
    gpus: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    mem: str | None = None
    directives: tuple = ("--threads-per-core=1",)
    chunk: str = "ncpus={cpus}:mpiprocs={ranks_per_node}:ompthreads={cores}"
    login: bool = False
    setup: tuple = ()
    folder: str | None = None
    python: str | None = None
    variables: dict = field(default_factory=dict)
    notes: tuple = ()
    sources: dict = field(default_factory=dict)
    gpu: dict = field(default_factory=dict)


NEEDED = "name", "system"
ENTRIES = [entry.name for entry in fields(Site)]
EMPTY = {"directives": (), "python": "python", "gpus": 0}  # what a file has that does not say it


def names():
    """The names of the sites that come with gridgrad."""
    return sorted(path.stem for path in SITES.glob("*.toml"))


def read(name):
    """The Site of a name in `names()`, or of the path of a file. ValueError or OSError, in one line, if there is none."""
    path = SITES / f"{name}.toml" if name in names() else Path(name)
    if path.suffix != ".toml":
        raise ValueError(f"there is no site {name}: use one of {', '.join(names())}, or a file of your own such as mine.toml")
    content = documents.content_of_toml_file(path)
    known(content, ENTRIES, path)
    documents.check(content, FORM | {name: OF_SITE[name] for name in NEEDED}, path.name)
    gpu = content.get("gpu", {})
    documents.check(gpu, FORM, f"{path.name}.gpu")
    known(gpu, [entry for entry in OF_SITE if entry not in ("name", "system")], f"{path}, [gpu]")
    for name in (*content.get("variables", ()), *gpu.get("variables", ())):
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"{path.name} has the variable '{name}': a name is letters, digits and _")
    return Site(**(EMPTY | {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}))


def known(content, entries, where):
    """Raise ValueError, which names the file, if there is an entry that is none of these."""
    if unknown := [name for name in content if name not in entries]:
        raise ValueError(f"{where} has the unknown entry {unknown[0]}: there are {', '.join(entries)}")


def filled(text, values):
    """A text with values {name: value} for its blanks such as {nodes}. ValueError for others, and for a value that is None."""

    def value(match):
        if match[1] not in values:
            raise ValueError(f"'{text}' has {match[0]}, which is none of {', '.join(f'{{{name}}}' for name in values)}")
        if values[match[1]] is None:
            raise ValueError(f"'{text}' has {match[0]}: add --{match[1]}")
        return str(values[match[1]])

    return BLANK.sub(value, text)
