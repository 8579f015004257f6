"""What our one call costs a user, by Halstead's measures, beside the same training made parallel by hand and with PyTorch.

    gridgrad study usability

| program                                        | what it adds, and to which serial program                           |
|------------------------------------------------|---------------------------------------------------------------------|
| `automatic`, `data`, `model`, `2d`             | our one call and its import, to `serial.py`; three name their grid  |
| `by_hand_data`, `by_hand_model`, `by_hand_2d`  | mpi4py, to `serial.py`                                              |
| `ddp`                                          | DistributedDataParallel, to `torch_serial.py`                       |

`halstead.py` says what is counted and how. Everything follows from the sources; nothing is run. Writes FILE.json and, beside
it, FILE.md.
"""

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.studies.usability.halstead import added, measure, radon_effort, statements
from gridgrad.parallel.job.run import UserError, run_launcher

CALL = "net = parallelize(net)"
GRIDS = {"data": "batch=4", "model": "model=4", "2d": "batch=2,model=2"}
SERIAL = ("serial", "torch_serial")
BY_HAND = ("by_hand_data", "by_hand_model", "by_hand_2d")


def source(name):
    """The text of a program of this folder."""
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")


def one_call(grid=None):
    """The program with our one call, on a grid such as "batch=4" or on that of the planner."""
    call = f'net = parallelize(net, "{grid}")' if grid else CALL
    return source("automatic").replace(f"\n{CALL}\n", f"\n{call}\n")


def programs():
    """{name: (text, name of the serial program)} of all that is measured."""
    ours = {"automatic": one_call()} | {name: one_call(grid) for name, grid in GRIDS.items()}
    ours |= {name: source(name) for name in BY_HAND}
    return {name: (text, "serial") for name, text in ours.items()} | {"ddp": (source("ddp"), "torch_serial")}


def measures(text, chosen):
    """Lines (statements) and Halstead's measures of some statements of a program, as a dict."""
    found = measure(chosen)
    derived = {name: getattr(found, name) for name in ("volume", "difficulty", "effort", "time")}
    return {"lines": len(chosen), **asdict(found), **derived, "radon_effort": radon_effort(text, chosen)}


def results():
    """{program: measures of what it adds, "serial", "whole": measures of all of it, "less_effort_than": {program: percent}}.

    Each one call is compared with the same parallelism by hand or by PyTorch, `automatic` with the easiest by hand.
    """
    rows = {}
    for name, (text, serial) in programs().items():
        mine = measures(text, added(text, source(serial)))
        rows[name] = {"serial": serial, **mine, "whole": measures(text, statements(text))}
    easiest = min(BY_HAND, key=lambda name: rows[name]["effort"])
    compared = {
        "automatic": (easiest, "ddp"),
        "data": ("by_hand_data", "ddp"),
        "model": ("by_hand_model",),
        "2d": ("by_hand_2d",),
    }
    for name, others in compared.items():
        rows[name]["less_effort_than"] = {other: 100 * (1 - rows[name]["effort"] / rows[other]["effort"]) for other in others}
    return rows


def serial_programs():
    """{program: measures of all of it} of the two that the others add to."""
    return {name: measures(text, statements(text)) for name in SERIAL for text in [source(name)]}


def table(rows, serial):
    """The results as Markdown."""
    lines = [
        "# What making a training parallel costs its author",
        "",
        "Written by `gridgrad study usability`: Halstead's measures of the statements that each program of",
        "`experiments/studies/usability` adds to its serial program, counted as Grabaskas 2018 counts; effort in elementary",
        "discriminations, time at 18 of them a second. radon: the effort by radon, which counts no calls.",
        "",
        "| program | added to | lines | n1 | n2 | N1 | N2 | volume | difficulty | effort | time | less effort than | radon |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in rows.items():
        saved = ", ".join(f"`{other}` {percent:.1f} %" for other, percent in r.get("less_effort_than", {}).items())
        lines.append(
            f"| `{name}` | `{r['serial']}` | {r['lines']} | {r['n1']} | {r['n2']} | {r['N1']} | {r['N2']} | {r['volume']:.0f} "
            f"| {r['difficulty']:.1f} | {r['effort']:,.0f} | {r['time']:.0f} s | {saved or '-'} | {r['radon_effort']:.0f} |"
        )
    lines += ["", "The whole programs:", "", "| program | lines | effort | radon |", "|---|---|---|---|"]
    for name, r in (serial | {name: r["whole"] for name, r in rows.items()}).items():
        lines.append(f"| `{name}` | {r['lines']} | {r['effort']:,.0f} | {r['radon_effort']:.0f} |")
    return "\n".join(lines) + "\n"


def options():
    parser = Parser(prog="study usability", description="What does making a training parallel cost its author?")
    parser.add_argument(
        "--json",
        default="results/usability.json",
        metavar="FILE",
        help="the file to write; the table goes to the same name in .md",
    )
    return parser


def main():
    args = options().parse_args()
    path = Path(args.json)
    if path.suffix != ".json":
        raise UserError(f"--json {path}: give a name that ends in .json; the table goes to the same name in .md")
    with user_input():
        check_writable(path)
    try:
        import radon  # noqa: F401 (only whether it is here)
    except ImportError:
        raise UserError("radon is not installed here: pip install radon") from None
    rows, serial = results(), serial_programs()
    versions = {"python": python_version(), "radon": version("radon")}
    report.write_json(path, {"programs": rows, "serial": serial, "versions": versions})
    text = table(rows, serial)
    report.write_text(path.with_suffix(".md"), text)
    print(f"{terminal(text)}\nwritten to {path} and {path.with_suffix('.md')}")


if __name__ == "__main__":
    run_launcher(main)
