"""What a verifier's child may still ask of the Linux kernel: to write its reply, and to end.

One that scores many groups may read its requests besides.

A classic BPF program of about 50 instructions, installed by two unprivileged `prctl` calls.
Everything that is not listed is refused with EPERM: files, sockets, processes, signals. A
syscall of a foreign architecture kills the process, as do those of the x32 numbering. A process
that forks such children, and runs none of their answers, has a filter that leaves it just that.

It holds against code that an answer managed to run. It does not hide memory from that code,
nor keep it from writing a reply of its own: that is what the screen is for.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
from dataclasses import dataclass

from . import bpf

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_PROT_EXEC = 4
MADV_DONTNEED = 4
_MORE_THAN_A_FORK = 0x7E82A100
"""CLONE_NEW*, CLONE_UNTRACED, CLONE_PARENT, CLONE_PTRACE, CLONE_VM."""


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """Syscall numbers of one architecture.

    Attributes:
        audit: the kernel's name for it, AUDIT_ARCH_*.
        maps: mmap and mprotect, refused when they ask for executable memory.
        madvise: allowed for giving memory back, which is all that malloc asks for.
        free: allowed whatever the arguments.
        clone, prctl, prlimit: a parent of children may fork with the first, protect itself with
            the second, and limit itself with the third.
        parents: what else it may do, whatever the arguments.
    """

    audit: int
    read: int
    write: int
    maps: tuple[int, ...]
    madvise: int
    free: tuple[int, ...]
    clone: int
    prctl: int
    prlimit: int
    parents: tuple[int, ...]


# Allowed freely, in this order: brk, munmap, mremap, futex, getrandom, clock_gettime, gettimeofday,
# getpid, gettid, sched_yield, rt_sigreturn, restart_syscall, exit, exit_group.
# To parents of children: read, close, poll or ppoll, rt_sigprocmask, pipe2, wait4, setsid,
# close_range, set_robust_list, rseq.
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        read=0,
        write=1,
        maps=(9, 10),
        madvise=28,
        free=(12, 11, 25, 202, 318, 228, 96, 39, 186, 24, 15, 219, 60, 231),
        clone=56,
        prctl=157,
        prlimit=302,
        parents=(0, 3, 7, 14, 293, 61, 112, 436, 273, 334),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        read=63,
        write=64,
        maps=(222, 226),
        madvise=233,
        free=(214, 215, 216, 98, 278, 113, 169, 172, 178, 124, 139, 128, 93, 94),
        clone=220,
        prctl=167,
        prlimit=261,
        parents=(63, 57, 73, 135, 59, 260, 157, 436, 99, 293),
    ),
}


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _all_but_write(machine: _Machine) -> bytes:
    """The filter up to the last question; what is not allowed by then is a write or refused."""
    steps = bpf.begin(machine.audit)
    for number in machine.maps:
        steps += bpf.if_equal(number, *bpf.unless_any_bit(bpf.THIRD_ARGUMENT, _PROT_EXEC))
    steps += bpf.if_equal(machine.madvise, *bpf.if_one_of(bpf.THIRD_ARGUMENT, (MADV_DONTNEED,)))
    for number in machine.free:
        steps += bpf.if_equal(number, bpf.ALLOW)
    return b"".join(steps)


def _reads(machine: _Machine, requests_fd: int) -> bytes:
    """Let a child that scores many groups read what it is asked."""
    read_from_it = bpf.if_one_of(bpf.FIRST_ARGUMENT, (requests_fd,))
    return b"".join(bpf.if_equal(machine.read, *read_from_it))


def _write_only(machine: _Machine, reply_fd: int) -> bytes:
    """The end of the filter."""
    return b"".join(
        [*bpf.if_equal(machine.write, *bpf.if_one_of(bpf.FIRST_ARGUMENT, (reply_fd,))), bpf.REFUSE]
    )


def _forks_and_waits(machine: _Machine) -> bytes:
    """The end of the filter of a parent of children, which has no descriptor but pipes to them.

    It can't kill: a filter can't tell its own children from other processes.
    """
    protections = (
        _PR_SET_PDEATHSIG,
        _PR_SET_DUMPABLE,
        _PR_SET_SECCOMP,
        _PR_SET_NO_NEW_PRIVS,
    )
    steps = [
        *bpf.if_equal(machine.clone, *bpf.unless_any_bit(bpf.FIRST_ARGUMENT, _MORE_THAN_A_FORK)),
        *bpf.if_equal(machine.prctl, *bpf.if_one_of(bpf.FIRST_ARGUMENT, protections)),
        *bpf.if_equal(machine.prlimit, *bpf.if_one_of(bpf.FIRST_ARGUMENT, (0,))),
    ]
    for number in (machine.write, *machine.parents):
        steps += bpf.if_equal(number, bpf.ALLOW)
    return b"".join([*steps, bpf.REFUSE])


def _own_machine() -> _Machine | None:
    """None where there is no filter; a 32-bit interpreter has other numbers than its kernel."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    return _MACHINES.get(os.uname().machine)


# Made before any fork: the first use of anything costs a child more than the filter itself.
_MACHINE = _own_machine()
_BEGIN = _all_but_write(_MACHINE) if _MACHINE else b""
_FORKS_AND_WAITS = _forks_and_waits(_MACHINE) if _MACHINE else b""
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
if _LIBC:
    _LIBC.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)


def _prctl(option: int, first: int, second: int = 0) -> None:
    """Set a property of this process; raises OSError where the kernel refuses."""
    if _LIBC is None or _LIBC.prctl(option, first, second, 0, 0) != 0:
        number = ctypes.get_errno() or errno.ENOSYS
        raise OSError(number, os.strerror(number))


def install(reply_fd: int, *, requests_fd: int | None = None) -> str | None:
    """Leave the calling process, for good, the syscalls of a running interpreter alone.

    Call it last: modules not yet imported can't be any more. It binds the calling thread and
    what that starts; a fresh fork has no other.

    Args:
        reply_fd: the descriptor that can still be written to.
        requests_fd: the one that can still be read from, if any.

    Returns:
        None when the filter holds, else a sentence that says what is not enforced.
    """
    if _MACHINE is None:
        return enforce(b"")
    reads = b"" if requests_fd is None else _reads(_MACHINE, requests_fd)
    return enforce(_BEGIN + reads + _write_only(_MACHINE, reply_fd))


def install_for_parent() -> str | None:
    """Leave the calling process what `install` does, and forks of itself that it waits for.

    Its children can put the narrower filter on top.

    Returns:
        As `install`.
    """
    return enforce(_BEGIN + _FORKS_AND_WAITS)


def enforce(program: bytes) -> str | None:
    """Put the calling thread under a filter; what it starts from then on has it as well.

    Args:
        program: empty where there is none for this system.

    Returns:
        None when the filter holds, else a sentence that says what is not enforced.
    """
    if not program:
        return f"No syscall filter: there is none for {platform.system()} on {platform.machine()}."
    header = _FilterProgram(len(program) // 8, program)
    try:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))
    except OSError as error:
        return f"No syscall filter: the kernel refuses it ({error.strerror})."
    return None


def undumpable() -> str | None:
    """Keep others of the same user from tracing this process, and end it with its parent.

    A fork inherits the first and must ask for the second itself.

    Returns:
        None when both hold, else a sentence that says what is not enforced.
    """
    if sys.platform != "linux":
        return f"No protection from tracing, no end with the parent: {sys.platform} has neither."
    try:
        _prctl(_PR_SET_DUMPABLE, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except OSError as error:
        return f"No protection from tracing or no end with the parent: {error.strerror}."
    return None
