"""The system call filter of worker processes on Linux: it denies by default, with seccomp.

One table holds the numbers of all calls that some role may make; each role lists the calls that it
needs. Four roles have a filter: a verifier's child computes and writes its reply, a zygote forks
such children besides, a generator reads files, starts threads and runs event loops, and a contained
function does the same with alarms. Any other call fails with EPERM. A call of a foreign
architecture or of the x32 ABI kills the process.

A filter also holds for code that an answer managed to run. It neither hides memory from that code
nor keeps it from writing a reply of its own: the screen does. By hand, since `pyseccomp` needs a
library, takes five times as long in a child, and is unmaintained.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType

from ._system import PR_SET, prctl

AUDIT = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
"""The kernel's identifiers of the architectures, AUDIT_ARCH_*, by the machine's name in `uname`."""

_TABLE = """
    mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214, mremap 25 216, madvise 28 233,
    read 0 63, write 1 64, open 2 -, close 3 57, stat 4 -, fstat 5 80, lstat 6 -, poll 7 -,
    lseek 8 62, ioctl 16 29, pread64 17 67, writev 20 66, access 21 -, select 23 -, dup 32 23,
    fcntl 72 25, getcwd 79 17, readlink 89 -, getdents64 217 61, epoll_wait 232 -,
    epoll_ctl 233 21, openat 257 56, newfstatat 262 79, readlinkat 267 78, faccessat 269 48,
    pselect6 270 72, ppoll 271 73, epoll_pwait 281 22, epoll_create1 291 20, pipe2 293 59,
    statx 332 291, close_range 436 436, faccessat2 439 439,
    sendto 44 206, recvfrom 45 207, getsockname 51 204, getpeername 52 205, socketpair 53 199,
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, sched_yield 24 124,
    getpid 39 172, clone 56 220, exit 60 93, wait4 61 260, getppid 110 173, setsid 112 157,
    sigaltstack 131 132, prctl 157 167, gettid 186 178, futex 202 98, sched_getaffinity 204 123,
    set_tid_address 218 96, restart_syscall 219 128, exit_group 231 94, set_robust_list 273 99,
    prlimit64 302 261, rseq 334 293, clone3 435 435,
    nanosleep 35 101, gettimeofday 96 169, clock_gettime 228 113, clock_getres 229 114,
    clock_nanosleep 230 115,
    uname 63 160, getrusage 98 165, sysinfo 99 179, times 100 153, getuid 102 174, getgid 104 176,
    geteuid 107 175, getegid 108 177, getrandom 318 278,
    alarm 37 -, getitimer 36 102, setitimer 38 103, dup2 33 -, dup3 292 24, readv 19 65,
    chdir 80 49, getpgrp 111 -, getpgid 121 155, statfs 137 43, fstatfs 138 44, fadvise64 221 223,
    socket 41 198, connect 42 203, bind 49 200, shutdown 48 210, getsockopt 55 209,
    setsockopt 54 208, sendmsg 46 211, sendmmsg 307 269, recvmsg 47 212, recvmmsg 299 243,
    execve 59 221, waitid 247 95, pipe 22 -, arch_prctl 158 -, umask 95 166,
    creat 85 -, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35,
    rename 82 -, renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37, symlink 88 -,
    symlinkat 266 36, truncate 76 45, ftruncate 77 46, fallocate 285 47, pwrite64 18 68,
    pwritev 296 70, fsync 74 82, fdatasync 75 83, flock 73 32, chmod 90 -, fchmod 91 52,
    fchmodat 268 53, utimensat 280 88
"""
"""Name, number on x86_64, number on aarch64: memory, files, sockets, processes, time, identity;
from `alarm` on, what contained functions may do besides, always or where it is allowed."""

SYSTEM_CALLS: Mapping[str, list[int | None]] = MappingProxyType(
    {
        name: [int(number) if number.isdigit() else None for number in numbers]
        for name, *numbers in (row.split() for row in _TABLE.split(","))
    }
)
"""Numbers in the order of `AUDIT`; None where an architecture lacks the call."""

_OFFSETS = MappingProxyType(
    {
        "number": 0,
        "architecture": 4,
        "first": 16,
        "second": 24,
        "third": 32,
        "fifth": 48,
    }
)
"""Of the call's number, the architecture and the arguments in struct seccomp_data. Both
architectures are little-endian: an argument's low word comes first, its high one 4 bytes later."""


def _instruction(
    code: str,
    operand: int,
    *,
    then: int = 0,
    otherwise: int = 0,
) -> bytes:
    """Pack one struct sock_filter; jumps count the instructions to skip."""
    codes = {
        "load": 0x20,  # BPF_LD | BPF_W | BPF_ABS
        "if equal": 0x15,  # BPF_JMP | BPF_JEQ | BPF_K
        "if at least": 0x35,  # BPF_JMP | BPF_JGE | BPF_K
        "if any bit": 0x45,  # BPF_JMP | BPF_JSET | BPF_K
        "return": 0x06,  # BPF_RET | BPF_K
    }
    return struct.pack("=HBBI", codes[code], then, otherwise, operand)


_ALLOW = _instruction("return", 0x7FFF0000)

_REFUSE = _instruction("return", 0x00050000 | errno.EPERM)


def _if_equal(operand: int, body: Sequence[bytes]) -> list[bytes]:
    """Run the body if the loaded word equals the operand."""
    return [_instruction("if equal", operand, otherwise=len(body)), *body]


def _unless_any_bit(argument: str, bits: int) -> list[bytes]:
    """Allow the call unless the argument has one of these bits."""
    load = _instruction("load", _OFFSETS[argument])
    return [load, _instruction("if any bit", bits, then=1), _ALLOW, _REFUSE]


def _if_one_of(argument: str, *values: int) -> list[bytes]:
    """Allow the call if the argument is one of these values."""
    equal = [step for value in values for step in _if_equal(value, [_ALLOW])]
    return [_instruction("load", _OFFSETS[argument]), *equal, _REFUSE]


def _if_null(argument: str) -> list[bytes]:
    """Allow the call if the argument is a null pointer."""
    low, high = (_instruction("load", _OFFSETS[argument] + half) for half in (0, 4))
    return [low, *_if_equal(0, [high, *_if_equal(0, [_ALLOW])]), _REFUSE]


_Rules = Mapping[str, Sequence[bytes]]
"""What happens to each system call, by its name: instructions that end in a decision."""


def _allow(names: str) -> dict[str, Sequence[bytes]]:
    """Allow these system calls with any arguments."""
    return {name: [_ALLOW] for name in names.split()}


# Not CLONE_NEW*, CLONE_UNTRACED, CLONE_PARENT, CLONE_PTRACE, CLONE_VM
_PLAIN_FORK = _unless_any_bit("first", 0x7E82A100)

# pthread_create's flags, of glibc and of musl.
_THREAD = _if_one_of("first", 0x3D0F00, 0x7D0F00)

# SOCK_STREAM | SOCK_CLOEXEC: to each other alone.
_CONNECTED_PAIR = _if_one_of("second", 0x80001)

_COMPUTE: _Rules = {
    "mmap": _unless_any_bit("third", 0x4),  # PROT_EXEC
    "mprotect": _unless_any_bit("third", 0x4),
    "madvise": _if_one_of("third", 4),  # MADV_DONTNEED, all that malloc asks for
    **_allow(
        "brk munmap mremap futex getrandom clock_gettime gettimeofday getpid gettid"
    ),
    **_allow("sched_yield rt_sigreturn restart_syscall exit exit_group"),
}
"""What a running interpreter needs: memory that is not executable, the clock, and an end."""

_FORK_AND_WAIT: _Rules = {
    "clone": _PLAIN_FORK,
    "prctl": _if_one_of("first", *PR_SET.values()),
    "prlimit64": _if_one_of("first", 0),
    "socketpair": _CONNECTED_PAIR,
    **_allow(
        "write read close rt_sigprocmask wait4 setsid close_range set_robust_list rseq"
    ),
}
"""What a zygote needs besides, whose only descriptors are sockets to its children and its host.

It can't kill: a filter can't tell its own children from other processes.
"""

_GENERATE: _Rules = {
    "open": _unless_any_bit("second", 0x243),  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
    # TCGETS, TIOCGWINSZ, FIONBIO.
    "ioctl": _if_one_of("second", 0x5401, 0x5413, 0x5421),
    "madvise": _if_one_of("third", 4),  # MADV_DONTNEED
    "sendto": _if_one_of("fifth", 0),
    "socketpair": _CONNECTED_PAIR,
    "clone": _THREAD,
    # F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
    "fcntl": _if_one_of("second", 1, 2, 3, 1030),
    "openat": _unless_any_bit("third", 0x243),
    "prlimit64": _if_one_of("first", 0),
    # its flags are in memory; libraries then call clone
    "clone3": [_instruction("return", 0x00050000 | errno.ENOSYS)],
    **_allow("mmap mprotect munmap brk mremap"),
    # files for reading; writing needs a descriptor that is open already
    **_allow(
        "read write close stat fstat lstat lseek pread64 writev access dup getcwd readlink"
    ),
    **_allow("getdents64 newfstatat readlinkat faccessat pipe2 statx faccessat2"),
    # time, threads, signals to itself
    **_allow(
        "poll rt_sigaction rt_sigprocmask rt_sigreturn select sched_yield nanosleep exit"
    ),
    **_allow(
        "gettimeofday sigaltstack futex sched_getaffinity set_tid_address restart_syscall"
    ),
    **_allow("clock_gettime clock_getres clock_nanosleep exit_group pselect6 ppoll"),
    **_allow("set_robust_list rseq"),
    # event loops that wake themselves
    **_allow(
        "getsockname getpeername recvfrom epoll_wait epoll_ctl epoll_pwait epoll_create1"
    ),
    # identity and resources
    **_allow(
        "getpid uname getrusage sysinfo times getuid getgid geteuid getegid getppid gettid"
    ),
    **_allow("getrandom"),
}
"""What all tasks, and the programs of `codeio`, need to make problems: no file is written, no
process started or signaled, no socket opened to anybody."""

_FUNCTION: _Rules = {
    **_GENERATE,
    "prlimit64": _if_null("third"),  # reads limits alone: root could raise them
    **_allow(
        "alarm getitimer setitimer dup2 dup3 readv chdir getpgrp getpgid statfs fstatfs"
    ),
    **_allow("fadvise64"),
}
"""What contained functions need: as making problems, and alarms, which end some computations."""

OPTIONAL_PERMISSIONS: Mapping[str, _Rules] = MappingProxyType(
    {
        "network": {
            # TCGETS, TIOCGWINSZ, FIONBIO and FIONREAD.
            "ioctl": _if_one_of("second", 0x5401, 0x5413, 0x5421, 0x541B),
            "fcntl": _if_one_of("second", *range(5), 1030),  # F_SETFL as well
            **_allow("socket connect bind shutdown getsockopt setsockopt"),
            **_allow("sendto sendmsg sendmmsg recvmsg recvmmsg"),
        },
        # They can't leave the process group, with which they are killed, nor send signals.
        "processes": {
            "clone": [*_THREAD[:-1], *_PLAIN_FORK],
            "arch_prctl": _if_one_of("first", 0x1002),  # ARCH_SET_FS
            **_allow("execve wait4 waitid pipe umask close_range"),
        },
        "write": {
            **_allow(
                "open openat creat mkdir mkdirat rmdir unlink unlinkat rename renameat"
            ),
            **_allow(
                "renameat2 link linkat symlink symlinkat truncate ftruncate fallocate"
            ),
            **_allow(
                "pwrite64 pwritev fsync fdatasync flock chmod fchmod fchmodat utimensat"
            ),
            **_allow("umask"),
            # locks as well; not F_SETOWN, with which the kernel signals any process
            "fcntl": _if_one_of("second", *range(8), *range(36, 39), 1030),
        },
    }
)
"""What a contained function may be allowed besides."""


def _assemble(architecture: str, rules: _Rules) -> bytes:
    """Apply each rule to its system call, if the architecture has the call."""
    column = list(AUDIT).index(architecture)
    numbers = ((SYSTEM_CALLS[name][column], body) for name, body in rules.items())
    tests = (_if_equal(number, body) for number, body in numbers if number is not None)
    return b"".join(step for test in tests for step in test)


def _begin(architecture: str) -> bytes:
    """Kill callers of a foreign architecture or of the x32 ABI, then load the call's number."""
    kill = _instruction("return", 0x80000000)
    return b"".join(
        [
            _instruction("load", _OFFSETS["architecture"]),
            _instruction("if equal", AUDIT[architecture], then=1),
            kill,
            _instruction("load", _OFFSETS["number"]),
            _instruction("if at least", 0x40000000, otherwise=1),  # the numbers of x32
            kill,
        ]
    )


@cache
def _begin_compute(architecture: str) -> bytes:
    return _begin(architecture) + _assemble(architecture, _COMPUTE)


def verifier_child_filter(
    architecture: str, reply_fd: int, *, requests_fd: int | None = None
) -> bytes:
    """Assemble the filter of a child that may write to one descriptor and read from another."""
    pipes = {"write": _if_one_of("first", reply_fd)}
    if requests_fd is not None:
        pipes["read"] = _if_one_of("first", requests_fd)
    return _begin_compute(architecture) + _assemble(architecture, pipes) + _REFUSE


@cache
def zygote_filter(architecture: str) -> bytes:
    """Assemble the filter of a process that forks children and waits for their replies."""
    poll = _allow("poll" if architecture == "x86_64" else "ppoll")
    rules = {**_FORK_AND_WAIT, **poll}
    return _begin_compute(architecture) + _assemble(architecture, rules) + _REFUSE


def generator_filter(architecture: str) -> bytes:
    """Assemble the filter of a process that makes problems."""
    return _begin(architecture) + _assemble(architecture, _GENERATE) + _REFUSE


@cache
def function_filter(architecture: str, allow: frozenset[str]) -> bytes:
    """Assemble a contained function's filter; `allow` names "network", "processes" or "write"."""
    rules = dict(_FUNCTION)
    for loosening in sorted(allow):
        rules |= OPTIONAL_PERMISSIONS[loosening]
    return _begin(architecture) + _assemble(architecture, rules) + _REFUSE


OWN_ARCHITECTURE = (
    os.uname().machine if sys.platform == "linux" and sys.maxsize > 2**32 else ""
)
"""The architecture, if there is a filter for it; a 32-bit interpreter uses other numbers."""


if (
    OWN_ARCHITECTURE in AUDIT
):  # cached before any fork: the first use costs a child more than the filter itself
    zygote_filter(OWN_ARCHITECTURE)


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_verifier_child(
    reply_fd: int, *, requests_fd: int | None = None
) -> str | None:
    """Restrict the calling thread for good to computing and its pipes.

    Call it last: no module can be imported afterwards. It binds the calling thread and all that
    this thread starts.

    Args:
        reply_fd: the only descriptor that can be written to.
        requests_fd: the only descriptor that can be read from, if any.
    """
    return _install(
        partial(verifier_child_filter, reply_fd=reply_fd, requests_fd=requests_fd)
    )


def filter_zygote() -> str | None:
    """Restrict the calling thread for good to computing, forking and waiting.

    Its children can put the narrower filter on top. Returns as `filter_verifier_child`.
    """
    return _install(zygote_filter)


def filter_generator() -> str | None:
    """Restrict the calling thread for good to a generator: see `filter_verifier_child`."""
    return _install(generator_filter)


def filter_function(allow: frozenset[str]) -> str | None:
    """Restrict the calling thread for good to a contained function: see `filter_verifier_child`."""
    return _install(lambda architecture: function_filter(architecture, allow))


def _install(assemble: Callable[[str], bytes]) -> str | None:
    """Put the calling thread under the filter of its architecture."""
    if OWN_ARCHITECTURE not in AUDIT:
        return f"No system call filter: unsupported on {platform.system()}, {platform.machine()}."
    program = assemble(OWN_ARCHITECTURE)
    header = _FilterProgram(len(program) // 8, program)
    try:
        prctl("NO_NEW_PRIVS", 1)
        prctl("SECCOMP", 2, ctypes.addressof(header))  # SECCOMP_MODE_FILTER
    except OSError as error:
        return f"No system call filter: the kernel refuses it ({error.strerror})."
    return None
