"""The report of a run: the versions and the machine, and how the time was spent and what was sent."""

import contextlib
import hashlib
import io
import json
import math
import platform
import resource
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median  # not NumPy's: that imports numpy.ma, 40 ms in every program
from types import SimpleNamespace

import numpy as np
from threadpoolctl import threadpool_info

import gridgrad
from gridgrad.experiments.common.machine_load import QUIET, load_of_process, seen_asleep
from gridgrad.experiments.common.options import check_writable
from gridgrad.experiments.common.tables import range_of, spread
from gridgrad.nn import device, network_summary
from gridgrad.nn.device import to_host
from gridgrad.nn.files.documents import UNFIT, content_of_file
from gridgrad.nn.files.whole_files import write_text, written_whole
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.processor import blas, processor
from gridgrad.parallel.job.run import library_name
from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS

ROWS = 1 << 23  # bytes of an array that are gathered at a time
PARTS = "compute", "read", "communicate", "wait"  # of the time of a step, in the order in which figures stack them


def versions():
    """gridgrad, Python, NumPy, BLAS and its threads, table of kernels, MPI library, machine, device: those of this rank."""
    return {
        "gridgrad": gridgrad.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": str(blas()),
        "threads": blas_threads(),
        "kernels": kernels().name,
        "mpi": library_name(),
        "host": platform.node(),
        "processor": processor().title,
        "device": device.describe(),
    }


def blas_threads():
    """How many threads BLAS runs in this rank."""
    return max([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"], default=1)


def busy_cores():
    """How many cores others took, or the host, while this process slept: 0 on an idle machine. None where nobody knows."""
    load = load_of_process(seen_asleep(2.0))
    return load and load.taken


def busy_words(busy):
    """A sentence about what `busy_cores` found, with a space before it; empty where hardly anything was busy."""
    return f" Other programs kept {busy:.1f} cores busy." if busy and busy > QUIET else ""


def in_words(measured):
    """The rows of the table with which a training ends. measured: what `time_and_bytes` returned, and "samples_per_step"."""
    step, time = measured["seconds_per_step"], measured["time"]
    spent = sum(time[part] for part in PARTS)
    found = {
        "steps that count": measured["timed_steps"],
        "ms, median (min - max)": spread(step, 1e-3),
        "samples a second": measured["samples_per_step"] / step["median"],
        **{f"{part}, % of the time": round(100 * time[part] / spent) if spent else None for part in PARTS},
        "MB sent by all ranks": sum(measured["bytes"].values()) / 1e6,
        "MiB of memory, most of a rank": measured["peak_memory"] / 2**20,
    }
    return [{"a training step": name, "measured": value} for name, value in found.items()]


def flops_a_sample(net):
    """Operations of the products of a training step for one sample: three times those of a serial network's forward pass."""
    return 3 * sum(row.flops for row in network_summary.rows(net, net.input_shape))


def peak_memory():
    """The most memory this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def digest(net):
    """A hash of the names, shapes and values of all arrays of `state_dict`, gathered some rows at a time. Collective."""
    sha = hashlib.sha256()
    net.allocate()
    for layer, p in net.parameters + net.buffers:
        shape = tuple(int(p.stored_shape[axis]) for axis in p.torch_axes)
        rows = shape[0] if shape and p.stored_shape == p.shape else 1  # else the array is gathered as a whole
        step = max(1, ROWS * rows // max(1, math.prod(shape) * net.dtype.itemsize))
        for start in range(0, max(1, rows), step):
            some = p if step >= rows else rows_of(p, p.torch_axes[0], start, min(start + step, rows))
            value = net.global_value(some)
            if value is not None:
                if not start:
                    sha.update(f"{layer.name}.{p.name} {shape} {value.dtype}".encode())
                value = to_host(value).reshape(p.stored_shape if some is p else some.shape).transpose(p.torch_axes)
                sha.update(np.ascontiguousarray(value).reshape(-1))  # one dimension, as a hash wants it, but no copy
    return sha.hexdigest()


def rows_of(p, dim, start, stop):
    """The rows from `start` to `stop` along a dimension of a Parameter, with what `global_value` needs of one."""

    def cut(block):
        part = block[dim]
        if isinstance(part, slice):
            first, last = (min(max(end - part.start, 0), part.stop - part.start) for end in (start, stop))
            held = slice(part.start + first - start, part.start + last - start)
        else:
            first, last = np.searchsorted(part, (start, stop))
            held = part[first:last] - start
        return slice(first, last), (*block[:dim], held, *block[dim + 1 :])

    layout, cut_shape = p.layout, (*p.shape[:dim], stop - start, *p.shape[dim + 1 :])
    if hasattr(layout, "block"):  # else the network is serial
        kept = {"sharded": layout.sharded, "is_counted": layout.is_counted, "shape": cut_shape}
        layout = SimpleNamespace(block=lambda place: cut(p.layout.block(place))[1], **kept)
    held = p.value.reshape(p.block_shape)[(*[slice(None)] * dim, cut(p.index)[0])]
    return SimpleNamespace(shape=cut_shape, layout=layout, value=held.copy())


def time_and_bytes(grid, step_seconds, read_seconds, peak):
    """Seconds and bytes of a step, a dict on rank 0. Collective. step_seconds: of each step. read_seconds: of all
    minibatches."""
    # A step takes as long as its slowest rank. The rank that comes last to a collective waits for nobody: what the fastest rank
    # spends in it is its cost, what another spends beyond that is waiting. Both are means over the ranks that take part. Bytes
    # are those of all ranks; of sums in shared memory, where nothing is sent, those read from other ranks' buffers.
    mine = {key: (r.calls, r.bytes, r.seconds) for key, r in grid.tally.records.items()}
    gathered = grid.gather((mine, list(step_seconds), read_seconds, peak))
    if gathered is None:
        return None
    everyone, seconds, reads, peaks = zip(*gathered)
    ranks = len(gathered)
    if len(set(map(len, seconds))) == 1:
        slowest = np.max(np.array(seconds, np.float64), axis=0)
    else:  # workers have taken unequally many turns: a mean, of the slowest one over the mean number of turns
        slowest = np.array([max(map(sum, seconds)) * ranks / sum(map(len, seconds))])
    steps, table, communicate = max(sum(map(len, seconds)) / ranks, 1), [], 0.0
    for key in sorted(set().union(*everyone)):
        calls, sent, took = zip(*(records[key] for records in everyone if key in records))
        cost = min(took) * (len(took) / ranks)  # of all ranks those that take part
        communicate += cost
        row = {"calls": sum(calls) / steps, "bytes": sum(sent) / steps, "seconds": cost / steps}
        table.append({"layer": key[0], "kind": key[1], **row})
    spent = sum(took for records in everyone for *_, took in records.values()) / ranks
    # Servers also serve after the last step, which may take longer than a tiny network computes.
    computed = [max(0.0, sum(total) - read - sum(took for *_, took in records.values()))
                for records, total, read in zip(everyone, seconds, reads)]  # fmt: skip
    time = sum(computed) / ranks, sum(reads) / ranks, communicate, spent - communicate
    kinds = sorted({row["kind"] for row in table})
    return {
        "seconds_per_step": range_of(slowest) if len(slowest) else None,
        "timed_steps": round(steps) if len(slowest) else 0,
        "time": {part: seconds / steps for part, seconds in zip(PARTS, time)},
        "compute_max": max(computed) / steps,
        "bytes": {kind: sum(row["bytes"] for row in table if row["kind"] == kind) for kind in kinds},
        "communication": table,
        "peak_memory": max(peaks),
    }


def core_speed(grid, step_seconds, reference):
    """Seconds of the reference product on these cores, and a step counted in such products, which changes less where cores are
    slowed down: a dict on rank 0; None where no step was timed, or ranks took different numbers of them. Collective."""
    gathered = grid.gather((list(step_seconds), list(reference)))
    counts = {len(values) for pair in gathered or () for values in pair}
    if len(counts) != 1 or counts == {0}:
        return None
    seconds, references = (np.array(of, np.float64) for of in zip(*gathered))
    products = seconds.max(axis=0) / references.max(axis=0)
    return {"reference_seconds": float(median(references.flat)), "reference_products_per_step": float(median(products))}


def memory(net, optimizer, grid):
    """{array: most bytes that any rank holds}; of parameters in shared memory each rank counts its share. Collective."""
    state = sum(array.nbytes for array in optimizer.state_arrays().values())
    unsharded = len(optimizer.state_names) * net.params.nbytes
    held = grid.max(np.array([net.params.nbytes / net.reduction.sharers, net.grads.nbytes, state, unsharded]))
    return dict(zip(("parameters", "gradients", "optimizer_state", "optimizer_state_unsharded"), map(int, held)))


def overlap(net):
    """How much of the sums of gradients was hidden: a dict, or None where nothing overlaps. Collective. "in_flight": mean
    seconds of a step in which a sum was under way. "exposed": those in which a rank could only wait."""
    seconds = net.reduction.seconds_of_step()
    if seconds is None:
        return None
    in_flight, exposed = net.grid.mean(np.array(seconds, np.float64))
    hidden = 1 - exposed / in_flight if in_flight else 0.0
    return {"in_flight": float(in_flight), "exposed": float(exposed), "hidden": float(hidden)}


def losses_of_all(grid, net, protocol, losses):
    """The mean loss over each global minibatch, a list on rank 0. Collective. losses: of the turns of this worker."""
    mine = list(zip(protocol.taken, losses, strict=True)) if net.grid.rank == 0 else []
    workers = grid.gather(mine)
    if workers is None:
        return None
    sums, weights = defaultdict(float), defaultdict(float)
    for turns in workers:
        for (step, weight), loss in turns:
            sums[step] += weight * loss
            weights[step] += weight
    return [sums[step] / weights[step] for step in sorted(sums)]


def of_protocol(grid, net, protocol, batch_size):
    """What a report says of the protocol: a dict on rank 0, None elsewhere; empty where there is one worker. Collective.
    effective_batch: samples of one update. interval: steps between two exchanges, None for one at the end. staleness: {updates
    by others in between: gradients}. turns: minibatches of each worker. protocol_memory: bytes, on the rank with the most."""
    if protocol.workers.size == 1:
        return {}
    kept = sum(array.nbytes for array in protocol.own_arrays().values())
    ranks = grid.gather((net.grid.rank, len(protocol.taken), protocol.staleness, kept))
    if ranks is None:
        return None
    return {
        "workers": protocol.workers.size,
        "effective_batch": protocol.effective_batch(batch_size),
        "interval": protocol.interval,
        "staleness": dict(sorted(sum((stale for _, _, stale, _ in ranks), Counter()).items())),
        "turns": [turns for rank, turns, *_ in ranks if rank == 0],
        "lost_workers": protocol.lost,
        "protocol_memory": max(kept for *_, kept in ranks),
    }


def workers_in_words(followed, measured):
    """A line about what `of_protocol` and `time_and_bytes` returned."""
    interval = {None: "once", 1: "in every turn"}.get(followed["interval"], f"every {followed['interval']} turns")
    staleness = followed["staleness"]
    gradients = sum(staleness.values())
    mean = f", staleness {sum(k * n for k, n in staleness.items()) / gradients:.2f} updates on average" if gradients else ""
    sent = sum(row["bytes"] for row in measured["communication"] if row["layer"] == BETWEEN_WORKERS)
    batch = followed["effective_batch"]
    return f"effective batch {batch:g}, exchange {interval}{mean}, {sent:.0f} bytes a step between workers"


def confusion_in_words(confusion, names=None):
    """The rows of a table: for each class how many of its samples were taken for which, and the share that was right."""
    names, rows = names or [str(number) for number in range(len(confusion))], []
    for place, (name, counts) in enumerate(zip(names, confusion)):
        right = round(100 * counts[place] / sum(counts), 2) if any(counts) else None
        rows.append({"class \\ taken for": name, **dict(zip(names, counts)), "right, %": right})
    return rows


def write_array(path, array):
    """Write a NumPy file; it appears whole or not at all."""
    content = io.BytesIO()  # NumPy does not say why it can not write to a file
    np.save(content, array, allow_pickle=False)
    with written_whole(path) as beside:
        beside.write_bytes(content.getbuffer())


def write_json(path, content, indent=1):
    """Write `content` as JSON; the file appears whole or not at all. indent: None for one line."""
    write_text(path, json.dumps(content, indent=indent, allow_nan=False) + "\n")


@contextlib.contextmanager
def fitting(words):
    """Errors over unfit content of a file become a ValueError with these words."""
    try:
        yield
    except UNFIT as error:
        raise ValueError(f"{words} ({type(error).__name__}: {error})") from None


def earlier_results(path, entries, program, document):
    """The results in a file, a list of dicts that have these entries; none if there is no file. ValueError for anything else.
    document: as in `write_results`, tried before anything is measured. OSError if the file can not be written."""
    check_writable(path)
    found = content_of_file(path) if Path(path).exists() else []
    if not isinstance(found, list) or any(not isinstance(r, dict) or not set(entries) <= r.keys() for r in found):
        raise ValueError(f"{path} holds no results of {program}: give another name")
    with fitting(f"{path} holds results of {program} that are damaged: give another name"):
        list(document(found) if found else ())
    return found


def write_results(path, before, result, problem, document):
    """Write the earlier results, with a new one in the place of its problem's, as JSON and beside it as Markdown. problem: the
    entries that name it. document: a function of all results that yields lines."""
    results = [*(one for one in before if any(one[name] != result[name] for name in problem)), result]
    write_text(path, json.dumps(results, indent=1) + "\n")
    write_text(Path(path).with_suffix(".md"), "\n".join(document(results)) + "\n")
