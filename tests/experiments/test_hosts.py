"""Emulated hosts: a job runs on them, the network has the chosen rate and delay, and nothing remains afterwards."""

import json
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from gridgrad.experiments.emulation import shaper
from gridgrad.experiments.launching.leftovers import processes
from gridgrad.parallel.job.own_process import MARK
from tests.clock import Clock

PROGRAM = """
import json, os, socket, time, numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
ones = np.ones(1 << 18, np.float32)
world.Allreduce(MPI.IN_PLACE, ones.copy())
start = time.perf_counter()
world.Allreduce(MPI.IN_PLACE, ones)
seconds = world.allreduce(time.perf_counter() - start, MPI.MAX)
names = world.allgather(socket.gethostname())
if world.rank == 0: print(json.dumps([names, ones.tolist().count(3), seconds, os.environ["GRIDGRAD_LINK"]]))
"""
LIMIT = 300  # seconds after which something hangs, however busy the machine is


def run(*words):
    command = [sys.executable, "-m", "gridgrad", "launch", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)


def system():
    """Named network namespaces, interfaces and mounts of this machine."""
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return names, sorted(os.listdir("/sys/class/net")), sorted(Path("/proc/self/mounts").read_text().splitlines())


def test_hosts_have_names_and_a_network_between_them_and_leave_nothing(monkeypatch):
    """1 MB all-reduced by two hosts moves 1 MB each way, which takes 84 ms at 100 Mbit/s or more."""
    if (tried := run("--hosts", 1, "-n", 1, "true")).returncode == 2:
        pytest.skip(tried.stderr.strip())  # no host can be played here
    before, mark = system(), uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    finished = run("--hosts", 2, "--rate", 100, "--delay", 5000, "-n", 3, sys.executable, "-m", "mpi4py", "-c", PROGRAM)
    assert finished.returncode == 0, finished.stderr
    names, right, seconds, link = json.loads(finished.stdout)
    assert names == ["host0", "host0", "host1"] and right == 1 << 18 and seconds > 0.08
    assert "2 hosts" in link and "100 Mbit/s, 5000 us" in link
    deadline = time.monotonic() + LIMIT
    while (processes(mark) or system() != before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes(mark) and system() == before


def test_the_switch_keeps_rate_delay_and_order(monkeypatch):
    """Ten packets from host 1 and ten from host 3 share the cable to host 2; what goes nowhere is dropped.

    In made-up time, which passes while the switch waits. It is stopped when it would wait for ever.
    """
    assert [shaper.bytes_on_cable(length) for length in (1500, 52 + 3 * 1448, 40)] == [1538, 3 * 1538, 78]
    ends = {i: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for i in (1, 2, 3)}
    stop, clock, times = os.memfd_create("stop"), Clock(), []

    def select_now(descriptors, write, errors, wait):
        ready = select.select([one for one in descriptors if one != stop], write, errors, 0)[0]
        if not ready and wait is not None:
            clock.sleep(wait)
        return ready or ([stop] if wait is None else []), [], []

    def write(descriptor, packet):
        times.append(clock.now)
        return os.write(descriptor, packet)

    monkeypatch.setattr(shaper, "time", clock)
    monkeypatch.setattr(shaper, "select", SimpleNamespace(select=select_now))
    monkeypatch.setattr(shaper, "os", SimpleNamespace(read=os.read, write=write))
    switch = shaper.Switch({i: inner.fileno() for i, (inner, _) in ends.items()}, rate=1e6, delay=0.05)

    def packet(target, number):
        return bytes(10) + bytes([0x45]) + bytes(15) + bytes([10, 77, 0, target]) + bytes([number]) * 1000

    for number in range(10):
        ends[1][1].send(packet(2, number))
        ends[3][1].send(packet(2, 100 + number))
    ends[1][1].send(packet(9, 0))
    switch.run(stop)
    a_packet = shaper.bytes_on_cable(1020) / 1e6
    assert times == pytest.approx([0.05 + number * a_packet for number in range(1, 21)])
    numbers = [ends[2][1].recv(2000, socket.MSG_DONTWAIT)[-1] for _ in range(20)]
    assert [n for n in numbers if n < 100] == list(range(10)) and [n - 100 for n in numbers if n >= 100] == list(range(10))
    for pair in ends.values():
        pair[0].close(), pair[1].close()
    os.close(stop)
