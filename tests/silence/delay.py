#!/usr/bin/env python3
"""Delays all that a host of host-lab sends and receives, by so many milliseconds in each direction, until it is ended. Run it in the
network namespace of the lab's switch: the host's link leaves the bridge, and a tap device takes its place there.

Usage: delay.py LINK MILLISECONDS [FILE]
           while FILE is there, large packets are lost, but those of ssh are not; if it has the word `to`, only those to the host
       delay.py --whole LINK        in the host itself, before: have its kernel send whole packets, with their checksums"""

import array
import fcntl
import heapq
import os
import selectors
import socket
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000
SIOCETHTOOL, SET_CHECKSUMS, SET_SCATTER, SET_TCP_SEGMENTS, SET_SEGMENTS = 0x8946, 0x17, 0x19, 0x1F, 0x24


def send_whole_packets(link):
    """Switches off what a network card would do for the kernel."""
    any_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for command in (SET_TCP_SEGMENTS, SET_SEGMENTS, SET_SCATTER, SET_CHECKSUMS):
        off = array.array("I", [command, 0])
        try:
            fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", link.encode(), off.buffer_info()[0]))
        except OSError as error:
            print(hex(command), error, flush=True)


def is_of_ssh(frame):
    ports = 14 + (frame[14] & 15) * 4
    return 22 in struct.unpack_from("!HH", frame, ports)


class Losses:
    """Which packets are lost now."""

    LARGE = 600

    def __init__(self, name):
        self.name = name

    def has(self, frame, is_to_host):
        if self.name is None or len(frame) <= self.LARGE or not os.path.exists(self.name) or is_of_ssh(frame):
            return False
        with open(self.name) as file:
            return is_to_host or file.read().strip() != "to"


def main():
    if sys.argv[1] == "--whole":
        return send_whole_packets(sys.argv[2])
    link, delay_s = sys.argv[1], float(sys.argv[2]) / 1000
    losses = Losses(sys.argv[3] if len(sys.argv) > 3 else None)
    tap_name = "t" + link
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", tap_name.encode(), IFF_TAP | IFF_NO_PI))
    ip = lambda *words: subprocess.run(["ip", "link", "set", *words], check=True)
    ip(link, "nomaster")
    ip(link, "promisc", "on")
    ip(tap_name, "master", "br0", "up")
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.bind((link, 0))
    waiting, number = [], 0
    events = selectors.DefaultSelector()
    events.register(tap, selectors.EVENT_READ)
    events.register(wire, selectors.EVENT_READ)
    print("delays", flush=True)
    while True:
        timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in events.select(timeout):
            due = time.monotonic() + delay_s
            number += 1
            if key.fileobj is wire:
                frame, address = wire.recvfrom(1 << 17)
                # PACKET_OUTGOING is what we sent ourselves
                if address[2] != 4 and not losses.has(frame, is_to_host=False):
                    heapq.heappush(waiting, (due, number, tap, frame))
            else:
                frame = os.read(tap, 1 << 17)
                if not losses.has(frame, is_to_host=True):
                    heapq.heappush(waiting, (due, number, wire, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(waiting)
            try:
                os.write(tap, frame) if to is tap else wire.send(frame)
            except OSError as error:  # a segment that offloading made larger than the link takes
                print(error, len(frame), flush=True)


main()
