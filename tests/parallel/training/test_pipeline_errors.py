"""What does not fit a pipeline is refused in one line, on all ranks, before anything runs; and what fits after all."""

import pytest

from gridgrad.nn import LOSSES, Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose.shares import measured_shares
from gridgrad.parallel.pipeline.generators import complete, gpipe
from gridgrad.parallel.pipeline.schedule_names import to_csv
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.mpi import mpi
from tests.parallel.equality import assert_same, grids, serial
from tests.parallel.pipelines import csv_file, dense, minibatches, mlp, momentum, own_csv, piped, serial_net


def refusal(grid, net=None, plan=None, pipeline=None, **options):
    """The message with which `parallelize` refuses. Each rank may have a file of its own."""
    with pytest.raises(ValueError) as caught:
        parallelize(net or serial_net(mlp), grid, plan, pipeline=pipeline, **options)
    message = str(caught.value)
    if str(pipeline).endswith(".csv"):
        message = message.replace(pipeline, "schedule.csv")
        assert message.count("schedule.csv") == 1
    assert "\n" not in message
    assert grid.comm.allgather(message) == [message] * grid.size
    return message


def wrong_file(grid, text, **options):
    with csv_file(text) as name:
        return refusal(grid, pipeline=name, **options)


@mpi(2, 3)
def test_cuts_names_and_numbers(comm):
    p = comm.size
    with ProcessGrid(comm, stage=p) as grid:
        for cuts, words in (
            ((1,) * p, f"{p} cuts make {p + 1} chunks, but pipeline 1f1b on {p} stages has {p}"),
            ((8,) * (p - 1), "from 0 to 7"),
            ((-1,) * (p - 1), "from 0 to 7"),
            ((1.5,) * (p - 1), "whole numbers"),
            ("1" * (p - 1), "whole numbers"),
            (2, "whole numbers"),
        ):
            assert words in refusal(grid, cuts=cuts), cuts
        assert "do not decrease" in refusal(grid, pipeline="interleaved:2", cuts=tuple(reversed(range(2 * p - 1))))
        assert f"has {3 * p}" in refusal(grid, pipeline="interleaved:3", cuts=(1, 2))
        for name in ("foo", "interleaved:0", "interleaved", "async", "async:0", "async:2:bound=-1", "zbv:2", "", 3):
            assert "pipeline schedule" in refusal(grid, pipeline=name)
        for number in (0, -1, 2.5, "4"):
            assert "micro_batches must be a whole number" in refusal(grid, micro_batches=number)
        assert "updates after each minibatch" in refusal(grid, pipeline="async:2", micro_batches=2)
        with pytest.raises(OSError, match="missing.csv"):
            parallelize(serial_net(mlp), grid, pipeline="missing.csv")
        assert "choose where to cut" in refusal(grid, shares={"stage": (1,) * p})
        assert "nothing to parallelize" in refusal(grid, Sequential([ReLU()]))
        assert "size of the images" in refusal(grid, Sequential([Conv2d(1, 2, 3), Flatten(), Linear(8, 2)]))
    with ProcessGrid(comm, batch=p) as grid:
        assert "use a grid with the axis stage" in refusal(grid, cuts=(1,) * (p - 1))
        assert "4 ranks, not 1" in wrong_file(grid, to_csv(gpipe(4, 2)))


@mpi(2, 3, 4)
def test_schedules_in_files(comm):
    p = comm.size
    with ProcessGrid(comm, stage=p) as grid:
        good = complete(gpipe(p, 3))
        text = to_csv(good)
        parts = text.split("\n")
        assert f"{p + 1} ranks, not {p}" in wrong_file(grid, to_csv(gpipe(p + 1, 3)))
        assert "3 micro-batches, not 4" in wrong_file(grid, text, micro_batches=4)
        assert "row 1, column 2" in wrong_file(grid, "0F0,nonsense\n" + "\n".join(parts[1:]))
        assert "rank 0 never does 0I1" in wrong_file(grid, text.replace(",0B1", "", 1))
        first = parts[0].replace("0RECV_B0,", "").replace("0SEND_F0", "0RECV_B0,0SEND_F0")
        assert "wait for ever" in wrong_file(grid, "\n".join([first, *parts[1:]]))
        with own_csv(p, 3) as name:
            net = parallelize(serial_net(mlp), grid, pipeline=name)
            assert net.micro_batches == 3
            batches = minibatches(mlp, (5, 2))  # in the second there are fewer samples than micro-batches
            expected = serial(serial_net(mlp), momentum, "cross-entropy", batches, micro_batches=3)
            optimizer, loss = momentum(net), LOSSES["cross-entropy"]()
            losses = [net.learn(x, y, loss, optimizer) for x, y in batches]
            assert_same((losses, net.state_dict(everywhere=True)), expected, 1e-10, "a file")


@mpi(2, 4)
def test_shares_are_not_chosen(comm):
    machine, out = read("cori-haswell"), PlacementSpec(plan="out")
    for sizes in ({"stage": comm.size}, {"stage": 2, "batch": comm.size // 2}):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(serial_net(mlp), grid)
            for words, refused in (
                ("shares are not chosen for a pipeline", lambda: measured_shares(serial_net(mlp), grid, out, 8, machine)),  # noqa: B023
                ("shares are not chosen", lambda: parallelize(serial_net(mlp), grid, shares="auto", machine=machine)),  # noqa: B023
                ("leave rebalancing out", lambda: net.adopt(None)),  # noqa: B023
            ):
                with pytest.raises(ValueError, match=words) as caught:
                    refused()
                assert "\n" not in str(caught.value)


@mpi(2, 3, 4, 6, long=(4, 6))
def test_every_plan_goes_with_stages(comm):
    for layers, plans in ((mlp, ("laugier", "marques", "hypergraph", "out", "in", "replicate")), (dense, ("marques", "out"))):
        batches = minibatches(layers, (9, 4, 2))
        expected = serial(serial_net(layers), momentum, "cross-entropy", batches, micro_batches=3)
        for sizes in grids(comm.size, ("stage", "model")):
            if sizes["stage"] == 1:
                continue
            for plan in plans:
                for name in ("1f1b", "zbv"):
                    with ProcessGrid(comm, **sizes) as grid:
                        found = piped(layers, grid, batches, 3, plan=plan, pipeline=name)
                    assert_same(found, expected, 1e-10, (sizes, plan, name))
