"""What a generator may ask of the Linux kernel: memory, time, threads, and to read files.

The library reads its data files, imports as it goes, and runs the programs of `codeio`, some of
which start threads and event loops. No more is needed: no file is written, no process started or
signalled, no socket opened to anybody. What is not listed is refused with EPERM.
"""

from __future__ import annotations

import os
import sys
from types import MappingProxyType

from . import bpf, seccomp

_AUDIT = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
"""The kernel's names for the architectures, AUDIT_ARCH_*; below, numbers stand in this order."""

Numbers = tuple[int | None, int | None]
"""Of one system call; None where an architecture lacks it."""

_FREE: MappingProxyType[str, Numbers] = MappingProxyType(
    {
        # memory
        "mmap": (9, 222),
        "mprotect": (10, 226),
        "munmap": (11, 215),
        "brk": (12, 214),
        "mremap": (25, 216),
        # files, for reading; writing is bound to descriptors that are open
        "read": (0, 63),
        "write": (1, 64),
        "close": (3, 57),
        "stat": (4, None),
        "fstat": (5, 80),
        "lstat": (6, None),
        "lseek": (8, 62),
        "pread64": (17, 67),
        "writev": (20, 66),
        "access": (21, None),
        "dup": (32, 23),
        "getcwd": (79, 17),
        "readlink": (89, None),
        "getdents64": (217, 61),
        "newfstatat": (262, 79),
        "readlinkat": (267, 78),
        "faccessat": (269, 48),
        "pipe2": (293, 59),
        "statx": (332, 291),
        "faccessat2": (439, 439),
        # time, threads, signals to itself
        "poll": (7, None),
        "rt_sigaction": (13, 134),
        "rt_sigprocmask": (14, 135),
        "rt_sigreturn": (15, 139),
        "select": (23, None),
        "sched_yield": (24, 124),
        "nanosleep": (35, 101),
        "exit": (60, 93),
        "gettimeofday": (96, 169),
        "sigaltstack": (131, 132),
        "futex": (202, 98),
        "sched_getaffinity": (204, 123),
        "set_tid_address": (218, 96),
        "restart_syscall": (219, 128),
        "clock_gettime": (228, 113),
        "clock_getres": (229, 114),
        "clock_nanosleep": (230, 115),
        "exit_group": (231, 94),
        "pselect6": (270, 72),
        "ppoll": (271, 73),
        "set_robust_list": (273, 99),
        "rseq": (334, 293),
        # event loops that wake themselves
        "getsockname": (51, 204),
        "getpeername": (52, 205),
        "recvfrom": (45, 207),
        "epoll_wait": (232, None),
        "epoll_ctl": (233, 21),
        "epoll_pwait": (281, 22),
        "epoll_create1": (291, 20),
        # what it is and where it runs
        "getpid": (39, 172),
        "uname": (63, 160),
        "getrusage": (98, 165),
        "sysinfo": (99, 179),
        "times": (100, 153),
        "getuid": (102, 174),
        "getgid": (104, 176),
        "geteuid": (107, 175),
        "getegid": (108, 177),
        "getppid": (110, 173),
        "gettid": (186, 178),
        "getrandom": (318, 278),
    }
)
"""Allowed whatever the arguments."""

_WRITES = 0x1 | 0x2 | 0x40 | 0x200  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_A_THREAD = (0x3D0F00, 0x7D0F00)  # the flags of pthread_create, of glibc and of musl
_A_STREAM = 0x80001  # SOCK_STREAM | SOCK_CLOEXEC; its ends know each other and nobody else
_OF_DESCRIPTORS = (1, 2, 3, 1030)  # F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
_ASKED = (0x5401, 0x5413, 0x5421)  # TCGETS, TIOCGWINSZ (is it a terminal, how wide), FIONBIO

_CHECKED: MappingProxyType[str, tuple[Numbers, list[bytes]]] = MappingProxyType(
    {
        "open": ((2, None), bpf.unless_any_bit(bpf.SECOND_ARGUMENT, _WRITES)),
        "ioctl": ((16, 29), bpf.if_one_of(bpf.SECOND_ARGUMENT, _ASKED)),
        "madvise": ((28, 233), bpf.if_one_of(bpf.THIRD_ARGUMENT, (seccomp.MADV_DONTNEED,))),
        "sendto": ((44, 206), bpf.if_one_of(bpf.FIFTH_ARGUMENT, (0,))),
        "socketpair": ((53, 199), bpf.if_one_of(bpf.SECOND_ARGUMENT, (_A_STREAM,))),
        "clone": ((56, 220), bpf.if_one_of(bpf.FIRST_ARGUMENT, _A_THREAD)),
        "fcntl": ((72, 25), bpf.if_one_of(bpf.SECOND_ARGUMENT, _OF_DESCRIPTORS)),
        "openat": ((257, 56), bpf.unless_any_bit(bpf.THIRD_ARGUMENT, _WRITES)),
        "prlimit64": ((302, 261), bpf.if_one_of(bpf.FIRST_ARGUMENT, (0,))),
        "clone3": ((435, 435), [bpf.UNKNOWN]),  # its flags lie in memory; clone takes its place
    }
)
"""Allowed by an argument."""


def program(machine: str) -> bytes:
    """Assemble the filter of an architecture, by the name that `uname` gives it."""
    place = list(_AUDIT).index(machine)
    steps = bpf.begin(_AUDIT[machine])
    free = ((numbers, [bpf.ALLOW]) for numbers in _FREE.values())
    for numbers, body in (*_CHECKED.values(), *free):
        if (number := numbers[place]) is not None:
            steps += bpf.if_equal(number, *body)
    return b"".join([*steps, bpf.REFUSE])


def install() -> str | None:
    """Leave the calling thread, for good, what making problems needs; threads it starts as well.

    Returns:
        None when the filter holds, else a sentence that says what is not enforced.
    """
    machine = os.uname().machine
    known = sys.platform == "linux" and sys.maxsize > 2**32 and machine in _AUDIT
    return seccomp.enforce(program(machine) if known else b"")
