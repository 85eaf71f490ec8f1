"""What filters of system calls are tried with, and the kernel's reading of them."""

import os
import struct
import sys

import pytest

where_filtered = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"),
    reason="there is no filter for this system",
)

FORBIDDEN = {
    "write a file": "open(path, 'w')",
    "read a file": "os.open('/etc/passwd', os.O_RDONLY)",
    "make a folder": "os.mkdir(path)",
    "remove a file": "os.unlink('/nonexistent')",
    "list a folder": "os.listdir('/')",
    "open a socket": "socket.socket()",
    "make a pipe": "os.pipe()",
    "copy a descriptor": "os.dup(1)",
    "close the reply": "os.close(1)",
    "read a descriptor": "os.read(0, 1)",
    "write elsewhere": "os.write(2, b'forged')",
    "start a process": "os.fork()",
    "start a thread": "threading.Thread(target=int).start()",
    "become another program": "os.execv('/bin/true', ['true'])",
    "signal the parent": "os.kill(parent, 0)",
    "signal itself": "os.kill(own, 0)",
    "change a limit": "libc_call('prlimit', 0, 4, 0, 0)",
    "leave its session": "os.setsid()",
    "change its user": "os.setuid(12345)",
    "sleep": "time.sleep(0)",
    "make memory executable": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    "poison a page": "libc_call('madvise', page, 4096, 100)",
    "merge pages with others": "libc_call('madvise', page, 4096, 12)",
    "keep memory from its forks": "libc_call('madvise', page, 4096, 10)",
    "ask for huge pages": "libc_call('madvise', page, 4096, 14)",
    "trace the parent": "libc_call('ptrace', 16, parent, 0, 0)",
    "read the parent's memory": "libc_call('process_vm_readv', parent, 0, 0, 0, 0, 0)",
    "lift its protection": "libc_call('prctl', 4, 1, 0, 0, 0)",
}

PROLOGUE = """
import ctypes, mmap, os, socket, sys, threading, time
from reasoning_gym_environment.sandbox import _limits, _seccomp as system_calls
path, parent, own = sys.argv[1], os.getppid(), os.getpid()
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, 8192)
page = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
def libc_call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
"""

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE = 0x00050001


def decision(
    program: bytes, *, audit: int, number: int, arguments: tuple[int, ...] = ()
) -> int:
    """What the kernel's interpreter of such programs returns; of its instructions, five."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<iIQ6Q", number, audit, 0, *padded)
    steps = list(struct.iter_unpack("=HBBI", program))
    word = position = 0
    while True:
        code, then, otherwise, operand = steps[position]
        position += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (word,) = struct.unpack_from("<I", data, operand)
            continue
        tests = {
            0x15: word == operand,
            0x35: word >= operand,
            0x45: bool(word & operand),
        }
        position += then if tests[code] else otherwise
