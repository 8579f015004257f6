"""How fast parameter servers are.

    gridgrad launch 4 study servers --parts steps,access
    gridgrad launch 8 study servers --parts limit
    gridgrad plot lines results/servers.json --x workers --y measured,simulated --where part=limit

Three parts are measured on the ranks of the job:

- steps: training steps with parameter servers that wait for all workers or for none, on one rank or spread over all, beside
  steps with an all-reduce. All ways take turns in one process, so that a drift of the machine's speed affects all alike.
- access: how long the other ranks take to push gradients to the first one and to fetch its parameters, by messages that it
  serves or by one-sided communication, while it computes and while it waits.
- limit: updates a second against the number of workers, beside a simulation and the formula; and how much of a core a rank
  takes that only waits for messages.

Adds the results to those in a JSON file, with tables beside it.
"""

import os

from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.kept_results import earlier_results, write_results
from gridgrad.experiments.common.markdown import lines
from gridgrad.experiments.common.options import (
    Parser,
    add_problem,
    number,
    of_parallelize,
    user_input,
    whole,
)
from gridgrad.experiments.common.tables import spread, terminal
from gridgrad.experiments.launching.start_ranks import cores
from gridgrad.experiments.plots.style import measured_on
from gridgrad.experiments.studies.servers import access as server_access
from gridgrad.experiments.studies.servers import limit as server_limit
from gridgrad.experiments.studies.servers import steps as server_steps
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.job.run import UserError, on_root, run

PARTS = "steps", "access", "limit"
KEYS = "part", "problem", "ranks", "link", "mpi"  # what names a result
FEWEST = 2  # parameters of a layer


def options():
    parser = Parser(prog="study servers", description="How many workers can parameter servers serve?")
    add = parser.add_argument
    add("--parts", default=",".join(PARTS), metavar="PART,..", help="what to measure")
    add("--rounds", type=whole(1), default=9, help="rounds, in each of which everything that is compared has its turn")
    add("--seconds", type=number(above=0), default=1.0, help="length of a turn in the parts access and limit")
    add_problem(parser, "mnist-cnn", [28, 28, 1], outputs=10, batch_size=128)
    add("--steps", type=whole(1), default=10, help="steps of a way in a round")
    add("--reduction", default="plain", help=f"of the all-reduce; {of_parallelize('reduction')}")
    add("--sizes", type=parameter_list, default=[10_000, 100_000, 1_000_000, 4_000_000], metavar="N,N,..",
        help="numbers of parameters that are accessed")  # fmt: skip
    add("--served", type=whole(FEWEST), default=1_000_000, metavar="N", help="parameters of the server of the part limit")
    add("--ratio", type=number(above=0), default=2.0, metavar="T/TAU", help="how many updates the server could do while a "
        "worker computes, in the part limit")  # fmt: skip
    add("--out", default="results/servers.json", metavar="FILE.json", help="file of the results, to which these are added")
    return parser


def parameter_list(text):
    """An option type: numbers of parameters, separated by commas."""
    return [whole(FEWEST)(word) for word in text.split(",")]


def parts_of(text):
    """The parts in the value of --parts. ValueError for others."""
    for name in (names := text.split(",")):
        if name not in PARTS:
            raise ValueError(f"--parts {text}: there is no part '{name}': use {', '.join(PARTS)}")
    return names


def measure(part, args, comm):
    """What the results have of a part, a dict on the first rank. Collective."""
    if part == "steps":
        if args.batch_size < comm.size:
            raise ValueError(f"--batch-size {args.batch_size} leaves some of {comm.size} ranks without samples: use more")
        serial = network_names.build(args.net, args.shape, args.outputs)
        rows = server_steps.measure(
            comm, serial, args.outputs, args.batch_size, args.reduction, args.rounds, args.steps
        )  # fmt: skip
        return {"problem": f"{args.net}, batch {args.batch_size}", "reduction": args.reduction, "rows": rows}
    if part == "access":
        problem = f"beside {server_access.COMPUTED}, batch {server_access.SAMPLES}"
        return {"problem": problem, "rows": server_access.measure(comm, args.sizes, args.rounds, args.seconds)}
    found = server_limit.measure(comm, args.served, args.ratio, args.rounds, args.seconds)
    return {"problem": f"{args.served:,} parameters, T set to {args.ratio:g} tau"} | (found or {})


# ----- what is written


def named(middle, least, most):
    """A median and its range as `spread` takes them."""
    return {"median": middle, "min": least, "max": most}


def steps_cells(result):
    """The rows of the part steps as dicts of what is in the cells of the table."""
    for row in result["rows"]:
        yield {
            "way": f"all-reduce ({result['reduction']})" if row["way"] == "sync" else row["way"],
            "ms a step": spread(named(row["seconds"], row["fastest"], row["slowest"]), 1e-3),
            "times the all-reduce": spread(named(row["ratio"], *row["ratio_range"])),
            "MB a step, all ranks": row["bytes"] / 1e6,
            "MB of the rank that sends most": row["most_bytes"] / 1e6,
            "messages a step": row["messages"],
        }


def access_cells(result):
    """The same of the part access."""
    for row in result["rows"]:
        yield {
            "parameters": f"{row['parameters']:,}",
            "way": row["way"],
            "ms, the server computes": spread(row["computes"], 1e-3),
            "ms, the server waits": spread(row["waits"], 1e-3),
            "speed of the server's own steps": spread(row["speed"]),
        }


def limit_cells(result):
    """The same of the part limit."""
    for row in result["rows"]:
        yield {
            "workers": row["workers"],
            "updates a second, measured": spread(named(row["measured"], row["least"], row["most"])),
            "server's share of a core": row["server"],
            "simulated": row["simulated"],
            "predicted": row["predicted"],
        }


def limit_words(result):
    """What was measured besides updates a second, as a sentence."""
    compute, alone, tau, own, idle = (result[name] for name in ("compute", "alone", "tau", "own", "idle"))
    shared = result["cores"] / (tau + own)
    waits = f"{100 * min(idle):.1f} to {100 * max(idle):.1f} % of a core"
    return (
        f"T = {1e3 * compute:.3g} ms, R = {1e3 * alone:.3g} ms, tau = {1e3 * tau:.3g} ms: T / tau = {compute / tau:.1f}, "
        f"and no more than {1 / tau:.0f} updates a second. A worker is busy with an update for {1e3 * own:.3g} ms, so "
        f"{result['cores']} cores can do {shared:.0f} a second. A rank that only waits for messages takes {waits}."
    )


STEPS = """\
A step is of as many turns as there are workers, and so of one global minibatch. Ratios are of times in the same round. The
messages within the library's all-reduce are not known."""
ACCESS = """\
Served: by messages, at the progress points of the server's layers. One-sided: the other ranks lock the parameters and their
velocities, get them, update them and put them back. The server's own steps are compared with those that it takes when nobody
accesses its memory."""
LIMIT = """\
The first rank serves, and up to all others are workers that sleep for T instead of computing. R is how long an update takes
when nobody else wants one, tau how long the server is busy with it. Predicted is min(W / (T + R), 1 / tau). Where the server
does not have a core to itself, it is slower than that."""
SECTIONS = {
    "steps": ("Training steps", STEPS, steps_cells),
    "access": ("Push and fetch while the server computes", ACCESS, access_cells),
    "limit": ("Updates a second", LIMIT, limit_cells),
}


def document(results):
    """All results of a file as Markdown."""
    yield "# Parameter servers\n"
    yield "Written by `gridgrad study servers`. Numbers are medians of the rounds, with their range."
    for part, (heading, words, cells) in SECTIONS.items():
        found = [result for result in results if result["part"] == part]
        yield from (f"\n## {heading}\n", words) if found else ()
        for result in found:
            ranks = f"{result['ranks']} ranks on {result['cores']} cores" + (f" ({result['link']})" if result["link"] else "")
            yield f"\n{result['problem']}; {ranks}; {measured_on(result['versions'])}:\n"
            yield lines(list(cells(result)))
            if part == "limit":
                yield f"\n{limit_words(result)}"


def write(args, result):
    """Add a result to those in the file, and print its table."""
    before = earlier_results(args.out, (*KEYS, "rows"), "servers", document)
    write_results(args.out, before, result, KEYS, document)
    print(terminal("\n".join(document([result]))), f"\nresults added to {args.out}, and the tables beside it", flush=True)


def prepare(args):
    """Whether the results can be written: OSError or ValueError if not."""
    earlier_results(args.out, (*KEYS, "rows"), "servers", document)


def main():
    args, comm = options().parse_args(), MPI.COMM_WORLD
    if comm.size == 1:
        raise UserError("one worker needs no server: start at least 2 ranks")
    on_root(comm, lambda: prepare(args))
    with user_input():
        parts = parts_of(args.parts)
    where = {"ranks": comm.size, "cores": len(cores()), "link": os.environ.get(LINK, ""), "versions": report.versions()}
    for part in parts:
        with user_input():
            result = {"part": part, "mpi": where["versions"]["mpi"]} | where | measure(part, args, comm)
        on_root(comm, lambda result=result: write(args, result))


if __name__ == "__main__":
    run(main)
