"""What a verifier's child may still ask of the Linux kernel: to write its reply, and to end.

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
import struct
import sys
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_PROT_EXEC = 4
_MADV_DONTNEED = 4
_MORE_THAN_A_FORK = 0x7E82A100
"""CLONE_NEW*, CLONE_UNTRACED, CLONE_PARENT, CLONE_PTRACE, CLONE_VM."""

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_KILL = 0x80000000
_REFUSE = 0x00050000 | errno.EPERM
_ALLOW = 0x7FFF0000

# Offsets into struct seccomp_data; both machines are little-endian: the low word comes first.
_NUMBER = 0
_ARCHITECTURE = 4
_FIRST_ARGUMENT = 16
_THIRD_ARGUMENT = 32

_X32_NUMBERS = 0x40000000


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


def _instruction(code: int, operand: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """Pack one struct sock_filter; jumps count instructions to leave out."""
    return struct.pack("=HBBI", code, then, otherwise, operand)


def _if_equal(operand: int, *body: bytes) -> list[bytes]:
    """Run the body where the loaded word equals the operand."""
    return [_instruction(_JUMP_IF_EQUAL, operand, otherwise=len(body)), *body]


_allow, _refuse = (_instruction(_RETURN, what) for what in (_ALLOW, _REFUSE))


def _unless_any_bit(argument: int, bits: int) -> list[bytes]:
    """Allow the call unless the argument has one of these bits."""
    asked = [_instruction(_LOAD, argument), _instruction(_JUMP_IF_ANY_BIT, bits, then=1)]
    return [*asked, _allow, _refuse]


def _if_one_of(argument: int, values: tuple[int, ...]) -> list[bytes]:
    """Allow the call where the argument is one of these."""
    equal = [step for value in values for step in _if_equal(value, _allow)]
    return [_instruction(_LOAD, argument), *equal, _refuse]


def _all_but_write(machine: _Machine) -> bytes:
    """The filter up to the last question; what is not allowed by then is a write or refused."""
    kill = _instruction(_RETURN, _KILL)
    steps = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, machine.audit, then=1),
        kill,
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_IF_AT_LEAST, _X32_NUMBERS, otherwise=1),
        kill,
    ]
    for number in machine.maps:
        steps += _if_equal(number, *_unless_any_bit(_THIRD_ARGUMENT, _PROT_EXEC))
    steps += _if_equal(machine.madvise, *_if_one_of(_THIRD_ARGUMENT, (_MADV_DONTNEED,)))
    for number in machine.free:
        steps += _if_equal(number, _allow)
    return b"".join(steps)


def _write_only(machine: _Machine, reply_fd: int) -> bytes:
    """The end of the filter."""
    return b"".join([*_if_equal(machine.write, *_if_one_of(_FIRST_ARGUMENT, (reply_fd,))), _refuse])


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
        *_if_equal(machine.clone, *_unless_any_bit(_FIRST_ARGUMENT, _MORE_THAN_A_FORK)),
        *_if_equal(machine.prctl, *_if_one_of(_FIRST_ARGUMENT, protections)),
        *_if_equal(machine.prlimit, *_if_one_of(_FIRST_ARGUMENT, (0,))),
    ]
    for number in (machine.write, *machine.parents):
        steps += _if_equal(number, _allow)
    return b"".join([*steps, _refuse])


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


def install(reply_fd: int) -> str | None:
    """Leave the calling process, for good, the syscalls of a running interpreter alone.

    Call it last: modules not yet imported can't be any more. It binds the calling thread and
    what that starts; a fresh fork has no other.

    Args:
        reply_fd: the descriptor that can still be written to.

    Returns:
        None when the filter holds, else a sentence that says what is not enforced.
    """
    return _enforce(_write_only(_MACHINE, reply_fd) if _MACHINE else b"")


def install_for_parent() -> str | None:
    """Leave the calling process what `install` does, and forks of itself that it waits for.

    Its children can put the narrower filter on top.

    Returns:
        As `install`.
    """
    return _enforce(_FORKS_AND_WAITS)


def _enforce(end: bytes) -> str | None:
    if _MACHINE is None:
        return f"No syscall filter: there is none for {platform.system()} on {platform.machine()}."
    program = _BEGIN + end
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
