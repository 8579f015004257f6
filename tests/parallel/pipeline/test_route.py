"""Routes: who holds what, and who sends to whom."""

import pytest

from gridgrad.parallel.pipeline.schedule import Route


def test_whole_chunks():
    route = Route.contiguous(3)
    assert route.places == ((0,), (1,), (2,)) and route.senders == ({}, {1: (0,)}, {2: (1,)})
    assert (route.chunks, route.ranks) == (3, 3)
    assert [route.held(rank) for rank in range(3)] == [(0,), (1,), (2,)]
    assert [route.receivers(0, 0), route.receivers(2, 2), route.sources(1, 1), route.sources(0, 0)] == [(1,), (), (0,), ()]


def test_several_chunks_on_a_rank():
    looped, v_shaped = Route.looped(2, 3), Route.v_shaped(3)
    assert [looped.held(rank) for rank in range(2)] == [(0, 2, 4), (1, 3, 5)]
    assert [v_shaped.held(rank) for rank in range(3)] == [(0, 5), (1, 4), (2, 3)]
    assert v_shaped.local_before(3, 2) and v_shaped.local_after(2, 2) and v_shaped.senders[3] == {}
    assert not v_shaped.local_before(2, 2) and not v_shaped.local_after(5, 0) and not v_shaped.local_before(0, 0)
    assert v_shaped.receivers(2, 2) == () and v_shaped.sources(4, 1) == (2,)
    assert Route.looped(1, 2).senders == ({}, {})


def test_parts_of_chunks():
    route = Route.everywhere(3, [{}, {0: (1, 2), 2: (0,)}, {1: (0,)}])
    assert route.places == ((0, 1, 2),) * 3 and route.held(1) == (0, 1, 2)
    assert [route.receivers(0, rank) for rank in range(3)] == [(2,), (0,), (0,)]
    assert route.receivers(1, 0) == (1,) and route.receivers(2, 0) == ()
    assert route.local_before(1, 1) and route.local_after(1, 1) and not route.local_after(2, 1)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Route.of_stages((0, 2)), "rank 1 of the pipeline holds no chunk"),
        (lambda: Route.of_stages(()), "rank 0 of the pipeline holds no chunk"),
        (lambda: Route.contiguous(0), "stages must be a whole number"),
        (lambda: Route.looped(2, 0), "chunks of a rank must be"),
        (lambda: Route(((0,), (1,)), ({}, {}), 2), "nothing comes to rank 1 for chunk 1"),
        (lambda: Route(((0,), (1,)), ({},), 2), "needs as many senders"),
        (lambda: Route.everywhere(2, [{}, {0: (0,)}]), r"what rank 0 needs for chunk 1 can not come from ranks \(0,\)"),
        (lambda: Route.everywhere(2, [{1: (0,)}]), r"what rank 1 needs for chunk 0"),
    ],
)
def test_what_is_no_route(make, message):
    with pytest.raises(ValueError, match=message):
        make()
