"""The programs by their names: those of the front door, in the order of use, and the studies."""

import ast
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

FRONT = (
    "train", "predict", "sweep", "plot", "explain", "calibrate", "check", "launch",
    "slurm", "supervise", "checkpoints", "summary", "partition", "bench", "reproduce",
)  # fmt: skip
STUDY = "study"
PACKAGE = __name__.removesuffix(".common.programs")
FOLDER = Path(__file__).parents[1]
STUDIES = FOLDER / "studies"
GONE = {  # {study or program that there was: what to use instead}
    "hosts": "use gridgrad launch --hosts 4",
    "thresholds": "use gridgrad explain --map",
    "scaling-page": "use gridgrad plot speedup FILE.jsonl --out page.html",
    "scaling-model": "use gridgrad plot speedup FILE.jsonl --model",
    "kernels": "use gridgrad summary --measure kernels",
    "roofline": "use gridgrad summary --measure --out FILE.json, and gridgrad plot roofline FILE.json",
}


def studies():
    """The names of the studies, such as "pruned"."""
    found = {path.stem for path in STUDIES.glob("*.py")} | {path.parent.name for path in STUDIES.glob("*/__main__.py")}
    return sorted(name.replace("_", "-") for name in found if name != "__init__")


def study_of(name):
    """The name of the study that is called so, with hyphens or underscores; None if there is none."""
    return name.replace("_", "-") if name.replace("_", "-") in studies() else None


def module_of(name):
    """The dotted name, behind `gridgrad.experiments`, of "train", a study such as "pruned", or "papers.marques2016_job"."""
    return f"studies.{name.replace('-', '_')}" if study_of(name) else name


def as_module(name):
    """The words behind `python` that run what `module_of` knows."""
    if name in (*FRONT, STUDY):
        return ["-m", "gridgrad", name]
    if study := study_of(name):
        return ["-m", "gridgrad", STUDY, study]
    return ["-m", f"{PACKAGE}.{name}"]


def words_of(name):
    """The words behind `python` that run a program, a file such as mine.py, or a module; ValueError if there is none."""
    name = name.removeprefix(f"{PACKAGE}.").removeprefix("experiments.")
    if name in (*FRONT, STUDY):
        return as_module(name)
    if name.endswith(".py") and Path(name).is_file():
        return ["-m", "mpi4py", name]  # which ends the whole job where a rank fails
    for module in (f"{PACKAGE}.{name}", name):
        with suppress(ImportError, ValueError, TypeError):
            spec = find_spec(module)
            if spec and spec.submodule_search_locations is not None:  # a package
                spec = find_spec(f"{module}.__main__")
            if spec:
                return ["-m", module]
    raise ValueError(f"{there_is_none(name)}: give the name of one, such as train, a file such as mine.py, or a module")


def there_is_none(name, kind="program"):
    """The words for a program or study that is not there; of one that there was, what to use instead."""
    plain = name.replace("_", "-")
    if plain in GONE:
        return f"the {kind} {plain} is gone: {GONE[plain]}"
    if (FOLDER / "settings" / f"{plain}.toml").is_file():
        return f"{plain} is a sweep: use gridgrad sweep {plain}.toml"
    if study_of(name):
        return f"{plain} is a study: use gridgrad study {plain}"
    return f"there is no {kind} {name}{suggestion(name, studies() if kind == STUDY else (*FRONT, STUDY, 'help', 'completion'))}"


def suggestion(word, names):
    """As `did_you_mean`, whose import takes longer than a page of help."""
    from gridgrad.nn.arguments import did_you_mean

    return did_you_mean(word, names)


def module(name):
    """The module of a program of `FRONT` or of a study, imported."""
    found = import_module(f"{PACKAGE}.{module_of(name)}")
    return import_module(f"{found.__name__}.__main__") if hasattr(found, "__path__") else found


def parser_of(name):
    """The parser of the options of a program of `FRONT`, or of a study."""
    return module(name).options()


def check_job(words, ranks):
    """Raise ValueError if a program would refuse its options in a job of so many ranks. Nothing is run. words: the program's
    name, behind "study" that of a study, and its options. The program may have a `check_job(args, ranks)`."""
    from gridgrad.parallel.grid.process_grid import check_places, parse_grid
    from gridgrad.parallel.job.run import UserError, one_line

    name, *arguments = words[1:] if words[0] == STUDY else words
    try:
        args = parser_of(name).parse_args(arguments)
        if hasattr(program := module(name), "check_job"):
            program.check_job(args, ranks)
        elif words[0] == STUDY and isinstance(grid := getattr(args, "grid", None), str):
            check_places(grid, parse_grid(grid), ranks)
    except (UserError, ValueError, OSError) as error:
        program = " ".join(words[: len(words) - len(arguments)])
        message = one_line(error).replace("(see --help)", f"(see gridgrad {program} --help)")
        raise ValueError(f"{name}: {message}") from None


def check_enough(wanted, ranks, what):
    """Raise ValueError if a job has fewer ranks than something needs. what: the words for it."""
    if wanted > ranks:
        raise ValueError(f"{what} has {wanted} ranks but the whole job only {ranks}: ask for more nodes, or ranks of a node")


def source(name):
    """The text of a program of `FRONT` or of a study. No program is run or imported."""
    path = FOLDER.joinpath(*module_of(name).split("."))
    return next(file for file in (path.with_name(f"{path.name}.py"), path / "__main__.py") if file.is_file()).read_text("utf-8")


def description(name):
    """The `description` of a program's command line, which its --help prints."""
    for node in ast.walk(ast.parse(source(name))):
        if isinstance(node, ast.keyword) and node.arg == "description":
            return ast.literal_eval(node.value)
    raise ValueError(f"the program {name} has no description")


def starts_jobs(words):
    """Whether a program starts jobs instead of being a rank of one; ValueError if there is none. words: as in `check_job`."""
    name, *rest = words
    if name == STUDY:
        name = rest[0] if rest else ""
        if study_of(name) is None:
            raise ValueError(f"{there_is_none(name, STUDY)} (see gridgrad study)")
    elif name not in FRONT:
        raise ValueError(f"{there_is_none(name)}: give the name of one, such as train")
    return "run_launcher(main)" in source(name)
