#!/usr/bin/env python3
"""Delays all that a host of host-lab sends and receives, by so many milliseconds in each direction, until it is ended. Run it in the
network namespace of the lab's switch: the host's link leaves the bridge, and a tap device takes its place there.

Usage: delay.py LINK MILLISECONDS
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


def main():
    if sys.argv[1] == "--whole":
        return send_whole_packets(sys.argv[2])
    link, delay_s = sys.argv[1], float(sys.argv[2]) / 1000
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
                if address[2] != 4:  # not PACKET_OUTGOING: we sent that one ourselves
                    heapq.heappush(waiting, (due, number, tap, frame))
            else:
                heapq.heappush(waiting, (due, number, wire, os.read(tap, 1 << 17)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(waiting)
            try:
                os.write(tap, frame) if to is tap else wire.send(frame)
            except OSError as error:  # a segment that offloading made larger than the link takes
                print(error, len(frame), flush=True)


main()
