"""A training step as time-independent traces of SimGrid, which `smpirun -replay` plays through (SimGrid 3.32).

Operations are the flops that a core at its peak computes in their predicted seconds, so both simulators agree on computing.
Collectives of all ranks are those of SMPI, up to 2 GiB. Its replay knows no other communicators (`comm_split` is read and
ignored), so longer ones and those of other groups are messages (`experiments/export/messages.py`). All counts are in bytes.

The platform has a host for each node, which its ranks share, one core each; the network's link of a host; and a loopback for
messages within a node, with what a rank has of the memory's bandwidth when all use it, as in the cost model. SMPI's own factors
on latency and bandwidth, which were measured on another cluster, are set to 1.
"""

import re
import subprocess
from pathlib import Path

from gridgrad.experiments.export.actions import Collective, Compute, Expect, Receive, Send
from gridgrad.experiments.export.messages import OF_COLLECTIVES, meetings, rounds
from gridgrad.nn.files.whole_files import write_text
from gridgrad.parallel.prediction.machine import ACCESSES

BYTE = 6  # SMPI's number for the datatype of one byte
NATIVE = "all-reduce", "all-gather", "reduce-scatter", "all-to-all"  # kinds of collectives that SMPI has
LARGEST = 2**31 - 1  # bytes that SMPI counts with an int
TRACES, HOSTS, PLATFORM, SCRIPT = "traces.txt", "hosts.txt", "platform.xml", "replay.sh"
OPTIONS = (
    "--cfg=smpi/coll-selector:mpich",
    "--cfg=smpi/allreduce:rab_rdb",  # MPICH's for long arrays; the selector itself ends with "invalid pointer" in SimGrid 3.32
    "--cfg=smpi/bw-factor:0:1",
    "--cfg=smpi/lat-factor:0:1",
    "--cfg=network/crosstraffic:0",
)


def write(folder, actions, machine, native=NATIVE):
    """Write the traces, their list, hosts, platform and a script that replays them into a folder. actions: see `step_actions`.
    native: the kinds of collectives of all ranks that are left to SMPI. ValueError if a message is too long for SMPI."""
    folder, ranks, lists = Path(folder), len(actions), meetings(actions)
    for rank, of_rank in enumerate(actions):
        write_text(folder / f"rank{rank}.txt", text(trace(rank, of_rank, lists[rank], ranks, machine, native)))
    write_text(folder / TRACES, text(f"rank{rank}.txt" for rank in range(ranks)))
    write_text(folder / HOSTS, text(f"node{rank // machine.node['ranks']}" for rank in range(ranks)))
    write_text(folder / PLATFORM, platform(machine, ranks))
    write_text(folder / SCRIPT, f'cd "$(dirname "$0")" && exec {" ".join(command(ranks, machine))}\n')


def text(lines):
    return "".join(f"{line}\n" for line in lines)


def command(ranks, machine):
    """The words that replay the traces in the folder where they are."""
    files = ("-np", str(ranks), "-hostfile", HOSTS, "-platform", PLATFORM, "-replay", TRACES)
    return ["smpirun", *files, f"--cfg=smpi/host-speed:{machine.core['flops']:.17g}f", *OPTIONS]


def replayed(folder, ranks, machine, timeout=600):
    """Seconds of the step whose traces are in a folder, as SMPI simulates it. ValueError if that does not come to an end."""
    try:
        finished = subprocess.run(command(ranks, machine), cwd=folder, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError:
        raise ValueError("SimGrid's smpirun is not installed: install SimGrid, such as by apt install libsimgrid-dev") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"smpirun took more than {timeout} seconds for the traces in {folder}: use fewer ranks") from None
    found = re.search(r"Simulation time (\S+)", finished.stdout + finished.stderr)
    if finished.returncode or not found:
        last = (finished.stderr.strip() or "no output").splitlines()[-1]
        raise ValueError(f"smpirun did not replay the traces in {folder}: {last}")
    return float(found[1])


def platform(machine, ranks):
    """The text of the platform file: nodes on one switch, where each node has a link in either direction."""
    node, network = machine.node["ranks"], machine.links["network"]
    through_memory = max(machine.links["node"]["beta"], ACCESSES / machine.bandwidth(ranks))
    entries = {
        "id": "nodes", "prefix": "node", "suffix": "", "radical": f"0-{(ranks - 1) // node}",
        "speed": f"{machine.core['flops']:.17g}f", "core": node,
        "bw": f"{1 / network['beta']:.17g}Bps", "lat": f"{network['alpha'] / 2:.17g}s",  # a route has two of these links
        "loopback_bw": f"{1 / through_memory:.17g}Bps", "loopback_lat": f"{machine.links['node']['alpha']:.17g}s",
    }  # fmt: skip
    cluster = " ".join(f'{name}="{value}"' for name, value in entries.items())
    return (
        "<?xml version='1.0'?>\n"
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
        f'<platform version="4.1">\n  <cluster {cluster}/>\n</platform>\n'
    )


def trace(rank, actions, lists, ranks, machine, native):
    """Yield the lines of the trace of a rank. lists: its `meetings`. ranks: how many there are. native: as for `write`."""
    yield f"{rank} init"
    has_sent = False
    for one in actions:
        match one:
            case Compute():
                yield f"{rank} compute {one.seconds * machine.core['flops']:.12g}"
            case Collective():
                meeting = next(lists)
                is_of_all = len(one.ranks) == ranks  # then each rank sends, or gets, up to all bytes except its own
                if one.kind in native and is_of_all and sum(each.nbytes for each in meeting) // (ranks - 1) <= LARGEST:
                    yield f"{rank} {native_line(one.kind, meeting, one.place)}"
                else:
                    for sends, receives in rounds(meeting, one.place):  # sends first: SMPI waits at once for an empty message
                        yield from (f"{rank} isend {to} {OF_COLLECTIVES} {counted(nbytes)} {BYTE}" for to, nbytes in sends)
                        yield from (f"{rank} irecv {by} {OF_COLLECTIVES} {counted(nbytes)} {BYTE}" for by, nbytes in receives)
                        yield from (f"{rank} wait {rank} {to} {OF_COLLECTIVES}" for to, _ in sends)
                        yield from (f"{rank} wait {by} {rank} {OF_COLLECTIVES}" for by, _ in receives)
            case Send():
                has_sent = True
                yield f"{rank} isend {one.receiver} {one.tag} {counted(one.nbytes)} {BYTE}"
            case Expect():
                yield f"{rank} irecv {one.sender} {one.tag} {counted(one.nbytes)} {BYTE}"
            case Receive():
                yield f"{rank} wait {one.sender} {rank} {one.tag}"
    if has_sent:
        yield f"{rank} waitall"
    yield f"{rank} finalize"


def counted(nbytes):
    """A number of bytes as text; ValueError if SMPI can not count them."""
    if nbytes > LARGEST:
        raise ValueError(f"a message has {nbytes} bytes, and SMPI counts up to {LARGEST}: use more ranks, or a smaller batch")
    return str(nbytes)


def native_line(kind, meeting, place):
    """A collective of all ranks as SMPI has it. meeting: the Collectives of its ranks; place: of this one among them."""
    others = len(meeting) - 1
    match kind:
        case "all-reduce":  # of N bytes, of which all ranks together send 2 N (ranks - 1)
            return f"allreduce {sum(one.nbytes for one in meeting) // (2 * others)} 0 {BYTE}"
        case "all-gather":  # each rank sends its block to every other one
            blocks = [one.nbytes // others for one in meeting]
            return f"allgatherv {blocks[place]} {' '.join(map(str, blocks))} {BYTE}"
        case "reduce-scatter":  # each rank sends all but its own block
            whole = sum(one.nbytes for one in meeting) // others
            return f"reducescatter {' '.join(str(whole - one.nbytes) for one in meeting)} 0 {BYTE}"
        case "all-to-all":  # in which messages may differ
            sent = [meeting[place].messages.get(to, 0) for to in range(len(meeting))]
            received = [one.messages.get(place, 0) for one in meeting]
            both = (f"{counted(sum(counts))} {' '.join(map(str, counts))}" for counts in (sent, received))
            return f"alltoallv {' '.join(both)} {BYTE} {BYTE}"
