"""A network in user space: interfaces whose packets a process carries from one to another, at a rate and after a delay.

Every host is connected to a switch by a cable of its own that carries `rate` in each direction. A packet occupies the sender's
cable and then the receiver's, and the switch is cut-through: on idle cables a packet arrives when its last byte has passed one
of them, plus the delay. The switch loses nothing. Kernels can do this too (tc netem), but many are built without it.
"""

import contextlib
import fcntl
import heapq
import os
import select
import struct
import time

DEVICE = "/dev/net/tun"
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0  # linux/if_tun.h
TUN, NO_INFORMATION, OFFLOAD_HEADER = 0x1, 0x1000, 0x4000
CHECKSUMS, SEGMENTS = 0x1, 0x2  # left to the interface: TCP's checksums, and cutting 64 KB into packets
OFFLOAD_BYTES = 10  # of the header that comes before each packet and says what was left

PAYLOAD, HEADERS = 1448, 52  # bytes of a full packet of 1500: data, and IP's and TCP's headers with time stamps
FRAME = 38  # bytes that Ethernet adds on the cable: addresses and type 14, checksum 4, preamble 8, gap 12


def interface(name):
    """Make a network interface in this process's network; returns the descriptor of its other end, which gives and takes IP
    packets, each behind its offload header. The interface is gone when the descriptor is closed."""
    end = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), TUN | NO_INFORMATION | OFFLOAD_HEADER))
    fcntl.ioctl(end, TUNSETOFFLOAD, CHECKSUMS | SEGMENTS)
    return end


def bytes_on_cable(length):
    """The bytes that `length` bytes of IP occupy on the cable: the kernel hands over up to 64 KB of TCP as one large packet."""
    packets = max(1, -(-(length - HEADERS) // PAYLOAD))
    return length + (packets - 1) * HEADERS + packets * FRAME


class Switch:
    """ports: {last byte of the IPv4 address: descriptor of its interface}. rate: bytes/s of a cable. delay: seconds."""

    def __init__(self, ports, rate, delay):
        self.ports, self.rate, self.delay = ports, rate, delay
        self.sent = dict.fromkeys(ports.values(), 0.0)  # when each cable towards the switch is free again
        self.received = dict.fromkeys(ports.values(), 0.0)  # and away from it
        self.under_way = []  # a heap of (time of arrival, number, port, packet)
        self.count = 0

    def run(self, stop):
        """Carry packets until there is something to read from the descriptor `stop`."""
        descriptors = [stop, *self.ports.values()]
        while True:
            while self.under_way and self.under_way[0][0] <= time.perf_counter():
                *_, port, packet = heapq.heappop(self.under_way)
                with contextlib.suppress(OSError):  # an interface that is down
                    os.write(port, packet)
            wait = max(0.0, self.under_way[0][0] - time.perf_counter()) if self.under_way else None
            ready = select.select(descriptors, (), (), wait)[0]  # to the microsecond, as poll is not
            if stop in ready:
                return
            for port in ready:
                self._accept(port)

    def _accept(self, source):
        """Take a packet from a port and compute when it arrives. IPv6 packets, which only look for routers, are dropped."""
        packet = os.read(source, 1 << 17)
        is_ipv4 = packet[OFFLOAD_BYTES] >> 4 == 4
        target = self.ports.get(packet[OFFLOAD_BYTES + 19]) if is_ipv4 else None
        if target is None:
            return
        seconds = bytes_on_cable(len(packet) - OFFLOAD_BYTES) / self.rate
        self.sent[source] = max(time.perf_counter(), self.sent[source]) + seconds
        self.received[target] = max(self.sent[source], self.received[target] + seconds)
        heapq.heappush(self.under_way, (self.received[target] + self.delay, self.count, target, packet))
        self.count += 1
