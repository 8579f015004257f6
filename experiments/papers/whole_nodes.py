"""A cluster on each of whose nodes one process uses all cores, for predictions of papers whose processes do."""

from dataclasses import replace

from gridgrad.parallel.prediction import machine

SHIPPED = "cori-haswell"  # of whose file compute rates, memory and latencies are taken


def whole_nodes():
    """The Machine of the shipped file on which a whole node is a rank, at its peak."""
    shipped = machine.read(SHIPPED)
    flops = shipped.node["ranks"] * shipped.core["flops"]
    core = shipped.core | {"flops": flops, "bandwidth": shipped.node["bandwidth"]}
    return replace(shipped, name=f"{shipped.name}, a node a rank", core=core, node=shipped.node | {"ranks": 1})
