"""A timeline as an OTF2 archive, which viewers such as Vampir and ViTE show.

Each rank is a process. Its first location has the regions of what the rank does, and the events of MPI: a blocking collective
begins and ends within its region; one that does not block, and a message, is under way from where it began to where it was
found complete. Further locations have regions for what is under way. All regions are the spans of the timeline.

Format: Eschweiler, Wagner, Geimer, Knüpfer, Nagel and Wolf 2012, "Open Trace Format 2: The Next Generation of Scalable Trace
Formats and Support Libraries". The package otf2 is that of its authors.
"""

from errno import EIO
from itertools import count
from operator import attrgetter

import otf2
from _otf2 import Error  # which the package raises and does not export
from otf2 import CollectiveOp, CollectiveRoot, GroupType, LocationType, Paradigm, RegionRole, Type, events

from gridgrad.parallel.job.run import in_short
from gridgrad.parallel.observe.timeline import DOING

SECOND = 10**9  # the ticks of its clock: times are in nanoseconds
NO_ROOT, FIRST = CollectiveRoot.NONE.value, 0  # the root of a collective, as a rank of its group

COLLECTIVES = {  # kind: (operation of MPI, None if it is none; its root; the role of its regions)
    "all-reduce": (CollectiveOp.ALLREDUCE, NO_ROOT, RegionRole.COLL_ALL2ALL),
    "all-gather": (CollectiveOp.ALLGATHERV, NO_ROOT, RegionRole.COLL_ALL2ALL),
    "reduce-scatter": (CollectiveOp.REDUCE_SCATTER, NO_ROOT, RegionRole.COLL_ALL2ALL),
    "all-to-all": (CollectiveOp.ALLTOALLV, NO_ROOT, RegionRole.COLL_ALL2ALL),
    "broadcast": (CollectiveOp.BCAST, FIRST, RegionRole.COLL_ONE2ALL),
    "scatter": (CollectiveOp.SCATTERV, FIRST, RegionRole.COLL_ONE2ALL),
    "gather": (CollectiveOp.GATHERV, FIRST, RegionRole.COLL_ALL2ONE),
    "barrier": (CollectiveOp.BARRIER, NO_ROOT, RegionRole.BARRIER),
    "shared sum": (None, NO_ROOT, RegionRole.COLL_ALL2ALL),
}
OTHERS = None, NO_ROOT, RegionRole.POINT2POINT  # the row of all other kinds
ROLES = {"step": RegionRole.CODE, "waiting": RegionRole.ARTIFICIAL}  # of spans by their category; those of passes are functions
NOT_KNOWN = 0  # how many bytes a rank received in a collective


def write(timeline, anchor):
    """Write a Timeline as an OTF2 archive.

    anchor: the path of the file of the archive that viewers open; the others are beside it, in a folder that is made. OSError
    if they can not be written.
    """
    archive = None
    try:
        archive = otf2.writer.Writer(str(anchor.parent), anchor.stem, timer_resolution=SECOND)
        archive.creator = "gridgrad"
        archive.description = f"times on the clock of rank 0, accurate to {timeline.accuracy * 1e6:.3f} microseconds"
        written = write_events(timeline, archive)
        archive.close()
        with otf2.reader.open(str(anchor)) as reader:  # when a disk is full, the package does not always say so
            whole = sum(1 for _ in reader.events) == written
    except Error as error:
        if archive is not None:
            archive._handle = None  # else it would be closed again where it is collected, with a traceback
        raise OSError(EIO, error.description) from error
    if not whole:
        raise OSError(EIO, "there are fewer events than were written")


def write_events(timeline, archive):
    """Write a Timeline into an open archive; returns the number of events."""
    known, written = Definitions(archive.definitions, timeline), 0
    writers = {place: archive.event_writer_from_location(location) for place, location in known.locations.items()}
    for one in timeline.ranks:
        for thread in threads(one):
            found = list(of_regions([span for span in one.spans if span.thread == thread], known))
            if thread == DOING:
                found = sorted([*found, *of_requests(one.spans, known)], key=attrgetter("time"))
            for event in found:
                writers[one.rank, thread](event)
            written += len(found)
    return written


def threads(one):
    """The threads of a RankTimeline that have locations."""
    return sorted({DOING, *(span.thread for span in one.spans)})


class Definitions:
    """What the events of an archive refer to.

    registry: the definitions of the archive. locations: {(rank, thread): location}. Ranks that communicate with those of the
    timeline, such as other workers, have a location without events.
    """

    def __init__(self, registry, timeline):
        self.registry, self._regions, self._comms = registry, {}, {}
        self.step = registry.attributes.create("step", "the number of the training step", Type.UINT64)
        self.bytes = registry.attributes.create("bytes", "that the rank sends", Type.UINT64)
        job, found = registry.system_tree_nodes.create("job", "machine"), {one.rank: one for one in timeline.ranks}
        hosts = {
            host: registry.system_tree_nodes.create(host, "node", job) for host in sorted({one.host for one in timeline.ranks})
        }
        others = {rank for one in timeline.ranks for span in one.spans if span.event for rank in span.event.ranks}
        ranks, processes = sorted(found.keys() | others), {}
        for rank in ranks:
            title, node = (found[rank].title, hosts[found[rank].host]) if rank in found else (f"rank {rank}, not traced", job)
            processes[rank] = registry.location_groups.create(title, system_tree_parent=node)
        places = [(rank, DOING) for rank in ranks] + [(rank, thread) for rank in found for thread in threads(found[rank])[1:]]
        self.locations = {}
        for rank, thread in places:
            name = f"rank {rank}" + ", under way" * (thread != DOING)
            self.locations[rank, thread] = registry.locations.create(name, LocationType.CPU_THREAD, group=processes[rank])
        self._position = {rank: position for position, rank in enumerate(ranks)}
        members = tuple(self.locations[rank, DOING] for rank in ranks)
        registry.groups.create("all ranks", GroupType.COMM_LOCATIONS, Paradigm.MPI, members=members)
        self.comm(tuple(ranks))

    def comm(self, ranks):
        """The communicator of a group of ranks, a tuple in the order of the group."""
        if ranks not in self._comms:
            name, members = f"ranks {in_short(ranks)}", tuple(self._position[rank] for rank in ranks)
            group = self.registry.groups.create(name, GroupType.COMM_GROUP, Paradigm.MPI, members=members)
            self._comms[ranks] = self.registry.comm(name, group)
        return self._comms[ranks]

    def region(self, span):
        """The region of a Span. The steps have one together."""
        name = "step" if span.category == "step" else span.title
        communicates = bool(span.event and span.event.ranks)
        role = row_of(span.event)[2] if communicates else ROLES.get(span.category, RegionRole.FUNCTION)
        key = name, communicates
        if key not in self._regions:
            paradigm = Paradigm.MPI if communicates else Paradigm.USER
            self._regions[key] = self.registry.regions.create(name, region_role=role, paradigm=paradigm)
        return self._regions[key]

    def attributes(self, span):
        """What is said of a Span beside its region: the number of a step, and the bytes that a rank sends."""
        if span.category == "step":
            return {self.step: span.step}
        return {self.bytes: span.event.bytes} if span.event and span.event.bytes else None


def row_of(event):
    """The row of COLLECTIVES for a TimelineEvent."""
    return COLLECTIVES.get(event.kind, OTHERS)


def of_regions(spans, known):
    """Yields the events of the regions on one location, in the order of time. spans: of one thread, see RankTimeline.

    Regions have to be nested: what would outlast the span around it ends with that.
    """
    around = []
    for span in spans:
        while around and around[-1].stop <= span.start:
            yield from leave(around.pop(), known)
        stop = min(span.stop, around[-1].stop) if around else span.stop
        around.append(span._replace(stop=stop))
        yield from enter(span, known)
    while around:
        yield from leave(around.pop(), known)


def enter(span, known):
    """The events at the beginning of a Span."""
    yield events.Enter(span.start, known.region(span), known.attributes(span))
    if is_blocking(span):
        yield events.MpiCollectiveBegin(span.start)


def leave(span, known):
    """The events at the end of a Span."""
    if is_blocking(span):
        operation, root, _ = row_of(span.event)
        comm = known.comm(span.event.ranks)
        yield events.MpiCollectiveEnd(span.stop, operation, comm, root, span.event.bytes, NOT_KNOWN)
    yield events.Leave(span.stop, known.region(span))


def is_blocking(span):
    """Whether a Span is one of MPI's collectives from its beginning to its end."""
    return span.category == "collective" and row_of(span.event)[0] is not None


def of_requests(spans, known):
    """Yields the events of what is under way: of messages, and of MPI's collectives that do not block."""
    numbers = count()
    for span in spans:
        if span.category != "flight":
            continue
        (operation, root, _), comm = row_of(span.event), known.comm(span.event.ranks)
        if span.event.messages is None and operation is not None:
            number = next(numbers)
            yield events.NonBlockingCollectiveRequest(span.start, number)
            yield events.NonBlockingCollectiveComplete(span.stop, operation, comm, root, span.event.bytes, NOT_KNOWN, number)
        sent, received = span.event.messages or ((), ())
        for rank, tag, size in sent:
            number = next(numbers)
            yield events.MpiIsend(span.start, rank, comm, tag, size, number)
            yield events.MpiIsendComplete(span.stop, number)
        for rank, tag, size in received:
            number = next(numbers)
            yield events.MpiIrecvRequest(span.start, number)
            yield events.MpiIrecv(span.stop, rank, comm, tag, size, number)
