"""The C library's calls that Python has no name for."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from types import MappingProxyType

PR_SET = MappingProxyType(
    {
        "PDEATHSIG": 1,
        "DUMPABLE": 4,
        "SECCOMP": 22,
        "NO_NEW_PRIVS": 38,
    }
)

LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


if LIBC:
    LIBC.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    LIBC.capset.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    LIBC.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        *[ctypes.c_int] * 3,
        ctypes.c_long,
    )
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mremap.argtypes = (
        ctypes.c_void_p,
        *[ctypes.c_size_t] * 2,
        ctypes.c_int,
        ctypes.c_void_p,
    )
    LIBC.mremap.restype = ctypes.c_void_p


def call_libc(
    function: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None
) -> int:
    """Call a function of the C library; raises OSError if it fails."""
    result: int = -1 if LIBC is None else getattr(LIBC, function)(*arguments)
    if result < 0:
        number = ctypes.get_errno() or errno.ENOSYS
        raise OSError(number, os.strerror(number))
    return result


def prctl(option: str, value: int, pointer: int = 0) -> None:
    """Set a property of this process; raises OSError if the kernel refuses."""
    call_libc("prctl", PR_SET[option], value, pointer, 0, 0)
