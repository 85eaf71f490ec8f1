"""What a verifier's child may still ask of the Linux kernel: to write its reply, and to end.

A classic BPF program of about 50 instructions, installed by two unprivileged `prctl` calls.
Everything that is not listed is refused with EPERM: files, sockets, processes, signals. A
syscall of a foreign architecture kills the process, as do those of the x32 numbering.

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
        free: allowed whatever the arguments.
    """

    audit: int
    write: int
    maps: tuple[int, ...]
    free: tuple[int, ...]


# Allowed freely, in this order: brk, munmap, mremap, madvise, futex, getrandom, clock_gettime,
# gettimeofday, getpid, gettid, sched_yield, rt_sigreturn, restart_syscall, exit, exit_group.
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        write=1,
        maps=(9, 10),
        free=(12, 11, 25, 28, 202, 318, 228, 96, 39, 186, 24, 15, 219, 60, 231),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        write=64,
        maps=(222, 226),
        free=(214, 215, 216, 233, 98, 278, 113, 169, 172, 178, 124, 139, 128, 93, 94),
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


def _all_but_write(machine: _Machine) -> bytes:
    """The filter up to the last question; what is not allowed by then is a write or refused."""
    allow, refuse, kill = (_instruction(_RETURN, what) for what in (_ALLOW, _REFUSE, _KILL))
    not_executable = [
        _instruction(_LOAD, _THIRD_ARGUMENT),
        _instruction(_JUMP_IF_ANY_BIT, _PROT_EXEC, then=1),
        allow,
        refuse,
    ]
    steps = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, machine.audit, then=1),
        kill,
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_IF_AT_LEAST, _X32_NUMBERS, otherwise=1),
        kill,
    ]
    for number in machine.maps:
        steps += _if_equal(number, *not_executable)
    for number in machine.free:
        steps += _if_equal(number, allow)
    return b"".join(steps)


def _write_only(machine: _Machine, reply_fd: int) -> bytes:
    """The end of the filter."""
    allow, refuse = (_instruction(_RETURN, what) for what in (_ALLOW, _REFUSE))
    on_reply = [_instruction(_LOAD, _FIRST_ARGUMENT), *_if_equal(reply_fd, allow)]
    return b"".join([*_if_equal(machine.write, *on_reply), refuse])


def _own_machine() -> _Machine | None:
    """None where there is no filter; a 32-bit interpreter has other numbers than its kernel."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    return _MACHINES.get(os.uname().machine)


# Made before any fork: the first use of anything costs a child more than the filter itself.
_MACHINE = _own_machine()
_BEGIN = _all_but_write(_MACHINE) if _MACHINE else b""
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
    if _MACHINE is None:
        return f"No syscall filter: there is none for {platform.system()} on {platform.machine()}."
    program = _BEGIN + _write_only(_MACHINE, reply_fd)
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
