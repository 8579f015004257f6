"""What the chunks of a pipeline send to one another is what they say they send, and what the others expect."""

from gridgrad.nn.device import xp
from gridgrad.parallel import ProcessGrid, parallelize
from tests.mpi import mpi
from tests.parallel.pipelines import dense, images, mlp, serial_net

OTHER = {"forward": "backward", "backward": "forward"}


@mpi(1, 2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_messages_have_the_sizes_that_are_said(comm):
    ways = [
        (layers, {"stage": comm.size}, None, name) for layers in (dense, images) for name in ("1f1b", "interleaved:2", "zbv")
    ]
    ways.append((mlp, {"model": comm.size}, "hypergraph", "1f1b"))
    for layers, sizes, plan, pipeline in ways:
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(serial_net(layers), grid, plan, pipeline=pipeline)
            for chunk, boundary in net.stage_map.boundaries.items():
                for way in OTHER:
                    sent, received = messages(boundary, way, 5)
                    assert boundary.counts(way, 5) == sent and all(sent.values())
                    of_all = comm.allgather((sent, received))
                    for rank, (there, _) in enumerate(of_all):
                        assert {to: got[rank] for to, (_, got) in enumerate(of_all) if rank in got} == there, (
                            chunk,
                            way,
                            pipeline,
                        )


def messages(boundary, way, samples):
    """({rank: elements} of the messages from this rank, the same of those to it)."""
    sent = received = {}
    if boundary.is_sender(way):
        before = xp.zeros(boundary.shape(OTHER[way], samples))
        sent = boundary.sends(way, before, samples, xp.empty)
    if boundary.is_receiver(way):
        received = boundary.receives(way, samples, xp.zeros(boundary.shape(way, samples)), xp.empty)
    return ({rank: message.size for rank, message in of.items()} for of in (sent, received))
