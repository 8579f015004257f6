"""Training steps on one GPU beside PyTorch's on the same one, for `bench --device gpu`.

Both sides are in this process and take turns, with equal weights: first losses must be equal, then steps are timed. The results
are written after each network, so that a run that is ended keeps what it has.
"""

import gc
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from mpi4py import MPI

from gridgrad.experiments.benchmarks.rounds import AGAIN, quiet_rounds, shares, step_seconds
from gridgrad.experiments.benchmarks.serial import ROUND_SECONDS, STEP_TOLERANCE, without_dropout
from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import check_writable, user_input
from gridgrad.experiments.common.problems import minibatch
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import lines, range_of, spread, terminal
from gridgrad.nn import LOSSES, SGD, device
from gridgrad.nn.device import to_device, xp
from gridgrad.parallel import ProcessGrid, parallelize, train_step, use_device
from gridgrad.parallel.job.run import UserError, one_line

WARM_UP = 4  # steps: the third is recorded as a graph
UNITS = {"ours": 1e-3, "peer": 1e-3, "ratio": 1.0}
HEADS = ["network", "ms a step", "PyTorch, ms", "ratio", "at most", "MiB", "PyTorch, MiB", "ratio of MiB"]
TF32_TOLERANCE = 1e-2  # of the first loss, where factors have 10 bits
PAGE = """\
# Training steps on a GPU

Written by `gridgrad bench --device`. {device}, {kind}. {peer}. Medians over the rounds, and their range. Memory is what a
network took: all that our pools hold, and the most that PyTorch's arrays had at a time. At most 1.3 is wanted of its ratio.

"""


def compare(cases, args, end):
    """Compare StepCases until the moment `end`; writes the file that --out names, or gpu.json there, and .md beside it."""
    path = Path(args.out) if args.out.endswith(".json") else Path(args.out) / "gpu.json"
    with user_input():
        check_writable(path)
        use_device(MPI.COMM_SELF, args.device, args.tf32)
    if xp.is_cpu:
        raise UserError(f"--device {args.device}: there is no GPU here; without --device steps on the CPU are compared")
    torch, rows = None, {}
    with suppress(ImportError):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
        torch = torch if torch.cuda.is_available() else None
    results = {"versions": report.versions(), "torch": torch and torch.__version__, "tf32": args.tf32, "networks": rows}
    results |= {"graphs": device.records_graphs(), "rounds": args.rounds}
    for case, case_end in zip(progress(cases, "networks"), shares(end, [1] * len(cases))):
        try:
            found = compared(case, torch, args, case_end)
        except Exception as error:  # such as too little memory, of which each library has an error of its own: others go on
            found = {"failed": one_line(error)}
        rows[case.name] = {"bound": case.bound} | found
        report.write_json(path, results)
        report.write_text(path.with_suffix(".md"), table(results))
    print(terminal(table(results)))
    if failed := [name for name, found in rows.items() if "failed" in found]:
        raise UserError(f"not measured: {'; '.join(failed)}")


def compared(case, torch, args, end):
    """The seconds, bytes and first losses of both sides, or of ours where `torch` is None, as far as they get till `end`."""
    gc.collect()  # layers and networks refer to each other, and this one needs their memory
    for pool in device.memory_pools():
        pool.free_all_blocks()
    held = lambda: sum(pool.total_bytes() for pool in device.memory_pools())  # noqa: E731 # bytes taken from the GPU
    before, serial = held(), case.network()
    x, y = minibatch(serial.input_shape, case.outputs, case.batch_size, case.loss)
    with ProcessGrid(MPI.COMM_SELF, batch=1) as grid:
        net = parallelize(serial, grid)
        weights, data = net.state_dict(), (to_device(x), to_device(y), case.batch_size)
        step = partial(train_step, net, LOSSES[case.loss](), SGD(net, 0.01, 0.9), *data)
        sides, models = {"ours": lambda: (step(), device.synchronise())[0]}, []
        if torch:
            from gridgrad.experiments.benchmarks import torch_peer

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            models = [torch_peer.chain(serial.layers)]
            models[0].load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
            sides["peer"] = torch_peer.step(*models, x, y, case.loss, place="cuda")
        with without_dropout(net, models):
            losses = {side: one() for side, one in sides.items()}
        error = max(losses.values()) / min(losses.values()) - 1
        if not error <= (TF32_TOLERANCE if args.tf32 else STEP_TOLERANCE):
            raise UserError(f"the first loss is not PyTorch's, by {error:.1e}: they are not the same network")
        trials = []
        for one in sides.values():
            took = [(one(), time.perf_counter())[1] for _ in range(WARM_UP)]
            trials.append(partial(step_seconds, one, max(1, round(ROUND_SECONDS / (took[-1] - took[-2])))))
        turns, marks = quiet_rounds(trials, args.rounds, AGAIN * args.rounds, end)
        sizes = {"ours": held() - before} | ({"peer": torch.cuda.max_memory_allocated()} if torch else {})
    found = {side: range_of([turn[i, 1] for turn in turns]) for i, side in enumerate(sides)}
    if torch:
        found["ratio"] = range_of([turn[0, 1] / turn[1, 1] for turn in turns])
    return found | {"losses": losses, "memory": sizes} | marks


def table(results):
    """The results as Markdown."""
    torch, rows = results["torch"], results["networks"]
    kind = f"float32 {'with' if results['tf32'] else 'without'} TF32, {'with' if results['graphs'] else 'without'} graphs"
    peer = f"PyTorch {torch} is run eagerly" if torch else "Ours alone: there is no PyTorch here that can use the GPU"
    text = PAGE.format(device=results["versions"]["device"], kind=kind, peer=peer)
    cells = []
    for name, found in rows.items():
        times = [spread(found[side], unit) if side in found else None for side, unit in UNITS.items()]
        sizes = [size / 2**20 for size in found.get("memory", {}).values()]
        sizes += [sizes[0] / sizes[1]] if len(sizes) == 2 else [None] * (3 - len(sizes))
        label = f"{name}: {found['failed']}".replace("|", "/") if "failed" in found else name
        cells.append(dict(zip(HEADS, [label, *times, found["bound"], *sizes])))
    text += f"{lines(cells)}\n"
    ratios = [found["ratio"]["median"] for found in rows.values() if "ratio" in found]
    return text + (f"\nMedian of the ratios of time: {median(ratios):.2f}; at most 1.0 is wanted.\n" if ratios else "")
