"""An OTF2 archive has the spans of the timeline, and the events of MPI. The package, otf2-print and ViTE read it back."""

import gc
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gridgrad.nn import SGD, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.files.whole_files import NotWritten
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.transfer import Messages
from gridgrad.parallel.observe import timeline_files
from gridgrad.parallel.observe.chrome_trace import chrome_trace
from gridgrad.parallel.observe.timeline import TimelineEvent, timeline
from gridgrad.parallel.observe.trace import Trace
from tests.disk import files_end_at
from tests.mpi import mpi
from tests.parallel.observe.test_trace import Training, grids_of_one_axis

otf2 = pytest.importorskip(
    "otf2", reason="the package otf2 is not installed: requirements.lock has it for Python 3.11 on Linux"
)


class Archive:
    """What the package reads from an archive.

    spans: a list of (rank, name of the region, start, stop) in nanoseconds, of all locations. blocking: a Counter of (rank,
    operation, ranks of the communicator, bytes sent). others: the same, with start and stop, of collectives that do not block.
    sent, received: lists of (rank, the other rank, tag, bytes, start, stop).
    """

    def __init__(self, path):
        self.spans, self.sent, self.received, self.blocking, self.others = [], [], [], Counter(), Counter()
        around, begun, messages, last = {}, {}, {}, {}
        with otf2.reader.open(str(path / "traces.otf2")) as trace:
            assert trace.timer_resolution == 10**9
            self.titles = [group.name for group in trace.definitions.location_groups]
            for location, event in trace.events:
                assert event.time >= last.get(location, 0)
                last[location], rank = event.time, int(location.name.split(",")[0].removeprefix("rank "))
                name, inside = type(event).__name__, around.setdefault(location, [])
                if name == "Enter":
                    steps = [value for attribute, value in (event.attributes or {}).items() if attribute.name == "step"]
                    inside.append((event.region, event.time, f"step {steps[0]}" if steps else event.region.name))
                elif name == "Leave":
                    region, start, title = inside.pop()
                    assert region is event.region
                    self.spans.append((rank, title, start, event.time))
                elif name == "MpiCollectiveBegin":
                    assert inside[-1][1] == event.time
                    begun[location] = inside[-1]
                elif name == "MpiCollectiveEnd":
                    assert begun.pop(location) is inside[-1]
                    self.blocking[self.collective(rank, event)] += 1
                elif name == "NonBlockingCollectiveRequest":
                    begun[location, event.request_id] = event.time
                elif name == "NonBlockingCollectiveComplete":
                    start = begun.pop((location, event.request_id))
                    self.others[*self.collective(rank, event), start, event.time] += 1
                elif name in ("MpiIsend", "MpiIrecvRequest"):
                    messages[location, event.request_id] = event
                elif name == "MpiIsendComplete":
                    first = messages.pop((location, event.request_id))
                    to = members(first.communicator)[first.receiver]
                    self.sent.append((rank, to, first.msg_tag, first.msg_length, first.time, event.time))
                else:
                    assert name == "MpiIrecv"
                    first, source = messages.pop((location, event.request_id)), members(event.communicator)[event.sender]
                    self.received.append((rank, source, event.msg_tag, event.msg_length, first.time, event.time))
        assert not begun and not messages and not any(around.values())

    @staticmethod
    def collective(rank, event):
        return rank, str(event.collective_op).rpartition(".")[2], members(event.communicator), event.size_sent


def members(communicator):
    """The ranks of a communicator."""
    return tuple(int(location.name.removeprefix("rank ")) for location in communicator.group.members)


def slices(content):
    """The spans of the JSON file, as in an Archive."""
    found = [event for event in content["traceEvents"] if event["ph"] == "X"]
    times = [(round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)) for event in found]
    return [(event["pid"], event["name"], *time) for event, time in zip(found, times, strict=True)]


OPERATIONS = {
    "all-to-all": "ALLTOALLV", "broadcast": "BCAST", "scatter": "SCATTERV", "gather": "GATHERV", "all-reduce": "ALLREDUCE",
    "all-gather": "ALLGATHERV", "reduce-scatter": "REDUCE_SCATTER", "barrier": "BARRIER",
}  # fmt: skip


def check_archive(found, folder):
    """Write a Timeline both ways and compare them; returns the Archive."""
    timeline_files.write(folder / "t.json", found)
    timeline_files.write(folder / "t.otf2", found)
    content, archive = json.loads((folder / "t.json").read_text()), Archive(folder / "t.otf2")
    assert content == chrome_trace(found)
    assert Counter(archive.spans) == Counter(slices(content))
    spans = [(one.rank, span) for one in found.ranks for span in one.spans if span.event]
    mpi_s = [(rank, span) for rank, span in spans if span.event.kind in OPERATIONS and span.event.messages is None]
    of = lambda category: [(rank, *counted(span)) for rank, span in mpi_s if span.category == category]  # noqa: E731
    assert archive.blocking == Counter(one[:-2] for one in of("collective"))
    assert archive.others == Counter(of("flight"))
    messages = [(rank, span) for rank, span in spans if span.event.messages]
    for way, found_ones in (("sent", archive.sent), ("received", archive.received)):
        expected = [
            (rank, span.event.ranks[other], tag, size, span.start, span.stop)
            for rank, span in messages
            for other, tag, size in getattr(span.event.messages, way)
        ]
        assert Counter(found_ones) == Counter(expected)
    return archive


def counted(span):
    """(operation, ranks, bytes, start, stop) of a Span that is a collective of MPI."""
    return OPERATIONS[span.event.kind], span.event.ranks, span.event.bytes, span.start, span.stop


def printed(path):
    """{record: how many of them} of the events that otf2-print shows."""
    words = "otf2-print", str(path / "traces.otf2")
    finished = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0 and "ERROR" not in finished.stdout + finished.stderr, finished.stdout + finished.stderr
    return Counter(re.findall(r"^([A-Z_]+) +\d+ +\d+ ", finished.stdout, re.MULTILINE))


# ----- trainings


@mpi(1, 2, 3)
def test_an_archive_has_what_the_json_file_has(comm):
    for sizes in grids_of_one_axis(comm.size):
        with ProcessGrid(comm, **sizes) as grid:
            training = Training(grid)
            with Trace(training.net, steps=2) as trace:
                training.steps(3)
            found = trace.gathered()
        assert (found is None) == (comm.rank > 0)
        if comm.rank:
            continue
        with tempfile.TemporaryDirectory() as folder:
            archive = check_archive(found, Path(folder))
        assert archive.titles == [one.title for one in found.ranks]
        assert bool(archive.blocking) == (comm.size > 1)
        if comm.size > 1:
            assert {operation for _, operation, *_ in [*archive.blocking, *archive.others]} >= {"ALLREDUCE"}
            assert bool(archive.sent) == ("height" in sizes), "halos are messages"


@mpi(2, 4)
def test_each_message_of_a_pipeline_has_its_two_ends(comm):
    layers = [Linear(6, 8), ReLU(), Linear(8, 8), ReLU(), Linear(8, 3)]
    net = parallelize(Sequential(layers, seed=0), {"stage": 2, "batch": comm.size // 2}, micro_batches=3, cuts=(2,))
    optimizer, rng = SGD(net, lr=0.1), np.random.default_rng(0)
    x, y = rng.standard_normal((12, 6)).astype(np.float32), rng.integers(0, 3, 12)
    net.learn(x, y, SoftmaxCrossEntropy(), optimizer)
    with Trace(net, steps=2) as trace:  # sends of the last one are found complete after it
        for _ in range(3):
            net.learn(x, y, SoftmaxCrossEntropy(), optimizer)
    found = trace.gathered()
    if comm.rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            archive = check_archive(found, Path(folder))
        halves = comm.size // 2
        sent = Counter((rank, to, tag, size) for rank, to, tag, size, *_ in archive.sent)
        received = Counter((source, rank, tag, size) for rank, source, tag, size, *_ in archive.received)
        assert received == sent and sent.total() == 2 * 2 * 3 * halves  # forward and backward, in two steps
        assert {(rank, to) for rank, to, *_ in sent} == {
            (a, b) for i in range(halves) for a, b in ((i, i + halves), (i + halves, i))
        }
        assert sum(size for *_, size in sent.elements()) == 2 * 2 * 12 * 8 * 4  # bytes of all samples at the cut
    net.grid.free()


@mpi(2)
def test_the_halos_of_both_neighbours_are_messages(comm):
    with ProcessGrid(comm, height=2) as grid:
        training = Training(grid)
        with Trace(training.net, steps=2) as trace:
            training.steps(2)
        found = trace.gathered()
    if comm.rank:
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = check_archive(found, Path(folder))
    assert {(rank, to) for rank, to, *_ in archive.sent} == {(0, 1), (1, 0)}
    ends = Counter((source, rank, tag, size) for rank, source, tag, size, *_ in archive.received)
    assert ends == Counter((rank, to, tag, size) for rank, to, tag, size, *_ in archive.sent)
    shown = [span.event for one in found.ranks for span in one.spans if span.category == "flight"]
    assert sum(size for _, _, _, size, *_ in archive.sent) == sum(event.bytes for event in shown if event.kind == "exchange")


@mpi(2)
def test_a_trace_writes_itself(comm):
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    with ProcessGrid(comm, model=2) as grid:
        training = Training(grid)
        with Trace(training.net) as trace:
            training.steps(1)
        trace.write(Path(folder) / "t.json")
        trace.write(f"{folder}/t.otf2")
        trace.write(f"{folder}/t.otf2")  # instead of the former
    if comm.rank == 0:
        assert sorted(os.listdir(folder)) == ["t.json", "t.otf2"]
        content = json.loads((Path(folder) / "t.json").read_text())
        assert Counter(Archive(Path(folder) / "t.otf2").spans) == Counter(slices(content))
        shutil.rmtree(folder)


# ----- timelines by hand


def part(rank, *events, host="node"):
    return {"rank": rank, "coordinates": {"batch": rank}, "host": host, "events": list(events), "accuracy": 1e-6}


def layer(start, stop, name="0 Linear forward", step=0):
    return TimelineEvent("layer", name, start, stop, step)


def call(start, stop, kind="all-reduce", ranks=(0, 1), category="collective", messages=None, sent=8):
    return TimelineEvent(category, f"x {kind}", start, stop, 0, kind, ranks, sent, messages)


@pytest.mark.parametrize("kind", [*OPERATIONS, "shared sum", "push", "exchange"])
def test_of_each_kind_what_is_a_collective_of_mpi_is_told_as_one(tmp_path, kind):
    found = timeline([part(0, call(1, 3, kind)), part(1, call(2, 3, kind))])
    timeline_files.write(tmp_path / "t.otf2", found)
    archive = Archive(tmp_path / "t.otf2")
    assert archive.blocking == Counter(
        {(rank, OPERATIONS[kind], (0, 1), 8): 1 for rank in (0, 1)} if kind in OPERATIONS else {}
    )
    assert Counter(archive.spans) == Counter(slices(chrome_trace(found)))


def test_ranks_of_other_workers_and_hosts_are_there(tmp_path):
    message = Messages([(1, 7, 100)], [(0, 9, 0)])
    events = call(1, 2, ranks=(5, 3)), call(2, 3, "swap", (0, 5), "flight", message)
    timeline_files.write(tmp_path / "t.otf2", timeline([part(3, events[0], host="b"), part(5, *events, host="a")]))
    archive = Archive(tmp_path / "t.otf2")
    assert archive.titles == ["rank 0, not traced", "rank 3 (batch=3) on b", "rank 5 (batch=5) on a"]
    assert archive.blocking == Counter({(rank, "ALLREDUCE", (5, 3), 8): 1 for rank in (3, 5)}), "in the order of the group"
    second = 10**9
    assert archive.sent == [(5, 5, 7, 100, second, 2 * second)] and archive.received == [(5, 0, 9, 0, second, 2 * second)]


def test_an_all_gather_that_is_made_of_messages_is_told_as_them(tmp_path):
    flights = [call(1, 2, "all-gather", category="flight", messages=Messages([(1 - i, 4, 8)], [(1 - i, 4, 8)])) for i in (0, 1)]
    timeline_files.write(tmp_path / "t.otf2", timeline([part(rank, flight) for rank, flight in enumerate(flights)]))
    archive = Archive(tmp_path / "t.otf2")
    assert not archive.others and len(archive.sent) == len(archive.received) == 2
    timeline_files.write(tmp_path / "t.otf2", timeline([part(0, call(1, 2, "all-gather", ranks=(0,), category="flight"))]))
    assert Archive(tmp_path / "t.otf2").others == Counter({(0, "ALLGATHERV", (0,), 8, 0, 10**9): 1})


def test_what_outlasts_the_span_around_it_ends_with_it(tmp_path):
    found = timeline([part(0, layer(0, 4, "outer"), layer(3, 5, "inner"), layer(4, 4, "none"), layer(5, 6, "next"))])
    timeline_files.write(tmp_path / "t.otf2", found)
    spans = {name: (start / 1e9, stop / 1e9) for _, name, start, stop in Archive(tmp_path / "t.otf2").spans}
    assert spans == {"step 0": (0, 6), "outer": (0, 4), "inner": (3, 4), "none": (4, 4), "next": (5, 6)}


def test_a_timeline_in_which_nothing_happened(tmp_path):
    timeline_files.write(tmp_path / "t.otf2", timeline([part(0), part(1)]))
    archive = Archive(tmp_path / "t.otf2")
    assert archive.spans == [] and archive.titles == ["rank 0 (batch=0) on node", "rank 1 (batch=1) on node"]


@pytest.mark.parametrize("size", [0, 200, 5000, 50000])
def test_an_archive_appears_whole_or_not_at_all(tmp_path, capfd, size):
    (tmp_path / "t.otf2").mkdir()
    found = timeline([part(0, *(layer(i, i + 0.5) for i in range(5000)))])
    with files_end_at(size), pytest.raises(NotWritten, match=f"^can not write {tmp_path}/t.otf2: "):
        timeline_files.write(tmp_path / "t.otf2", found)
    assert [*tmp_path.iterdir()] == [tmp_path / "t.otf2"] and not [*(tmp_path / "t.otf2").iterdir()]
    gc.collect()
    assert "Traceback" not in capfd.readouterr().err  # though the library says there what it could not do


# ----- the programs of others


def example():
    """A Timeline of two ranks with all kinds of events."""
    flight = call(4, 6, category="flight")
    ends = [Messages([(1, 3, 64)], []), Messages([], [(0, 3, 64)])]
    parts = []
    for rank, messages in enumerate(ends):
        message = call(2, 2.5 + rank / 4, ("send", "receive")[rank], category="flight", messages=messages)
        begun, tested = call(4, 4.5, category="begin"), call(5.5, 6, category="progress")
        parts.append(part(rank, layer(0, 4), call(1 + rank / 4, 2), message, begun, flight, tested))
    return timeline(parts)


@pytest.mark.skipif(shutil.which("otf2-print") is None, reason="needs otf2-print, of the Debian package otf2-tools")
def test_otf2_print_reads_it(tmp_path):
    found = example()
    timeline_files.write(tmp_path / "t.otf2", found)
    spans = sum(len(one.spans) for one in found.ranks)
    of_mpi = {"MPI_COLLECTIVE_BEGIN": 2, "MPI_COLLECTIVE_END": 2, "NON_BLOCKING_COLLECTIVE_REQUEST": 2}
    of_mpi |= {
        "NON_BLOCKING_COLLECTIVE_COMPLETE": 2,
        "MPI_ISEND": 1,
        "MPI_ISEND_COMPLETE": 1,
        "MPI_IRECV_REQUEST": 1,
        "MPI_IRECV": 1,
    }
    assert printed(tmp_path / "t.otf2") == {"ENTER": spans, "LEAVE": spans} | of_mpi


@pytest.mark.skipif(shutil.which("vite") is None, reason="needs ViTE, of the Debian package vite")
def test_vite_draws_it(tmp_path):
    timeline_files.write(tmp_path / "t.otf2", example())
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen", "XDG_RUNTIME_DIR": str(tmp_path)}
    words = "vite", "-e", tmp_path / "t.svg", tmp_path / "t.otf2" / "traces.otf2"
    finished = subprocess.run(words, capture_output=True, text=True, timeout=100, env=environment)
    assert finished.returncode == 0 and "0 errors and 0 warnings were found" in finished.stdout + finished.stderr
    drawn = (tmp_path / "t.svg").read_text()
    assert "rank 0_" in drawn and "rank 1_" in drawn
