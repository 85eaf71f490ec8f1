"""Pieces of the programs that filter system calls: classic BPF, as seccomp(2) reads it."""

from __future__ import annotations

import errno
import struct

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

# Offsets into struct seccomp_data; both machines are little-endian: the low word comes first.
_NUMBER = 0
_ARCHITECTURE = 4
FIRST_ARGUMENT = 16
SECOND_ARGUMENT = 24
THIRD_ARGUMENT = 32
FIFTH_ARGUMENT = 48

_X32_NUMBERS = 0x40000000


def _instruction(code: int, operand: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """Pack one struct sock_filter; jumps count instructions to leave out."""
    return struct.pack("=HBBI", code, then, otherwise, operand)


ALLOW = _instruction(_RETURN, 0x7FFF0000)
REFUSE = _instruction(_RETURN, 0x00050000 | errno.EPERM)
UNKNOWN = _instruction(_RETURN, 0x00050000 | errno.ENOSYS)
"""As a kernel answers that lacks the call: libraries then take an older one."""

_KILL = _instruction(_RETURN, 0x80000000)


def if_equal(operand: int, *body: bytes) -> list[bytes]:
    """Run the body where the loaded word equals the operand."""
    return [_instruction(_JUMP_IF_EQUAL, operand, otherwise=len(body)), *body]


def unless_any_bit(argument: int, bits: int) -> list[bytes]:
    """Allow the call unless the argument has one of these bits."""
    asked = [_instruction(_LOAD, argument), _instruction(_JUMP_IF_ANY_BIT, bits, then=1)]
    return [*asked, ALLOW, REFUSE]


def if_one_of(argument: int, values: tuple[int, ...]) -> list[bytes]:
    """Allow the call where the argument is one of these."""
    equal = [step for value in values for step in if_equal(value, ALLOW)]
    return [_instruction(_LOAD, argument), *equal, REFUSE]


def begin(audit: int) -> list[bytes]:
    """End the process of a foreign architecture or numbering; then the call's number is loaded.

    Args:
        audit: the kernel's name for the architecture, AUDIT_ARCH_*.
    """
    return [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, audit, then=1),
        _KILL,
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_IF_AT_LEAST, _X32_NUMBERS, otherwise=1),
        _KILL,
    ]
