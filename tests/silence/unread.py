#!/usr/bin/env python3
"""Runs a command that may not read the memory of other processes, as where Yama's ptrace_scope is 1: process_vm_readv is refused, and so is
the way to a place in /proc/PID/mem."""

import ctypes
import os
import platform
import struct
import sys

read, seek = {"x86_64": (310, 8), "aarch64": (270, 62)}[platform.machine()]
# load the number of the call; these two: EPERM; all others: allowed
code = [(0x20, 0, 0, 0), (0x15, 1, 0, read), (0x15, 0, 1, seek), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


program = Program(len(code), ctypes.addressof(filters))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
