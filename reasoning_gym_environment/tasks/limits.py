"""What a verifier's child may not do; set after the fork, before model text is read."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1


def address_space() -> int:
    """Bytes of address space this process has; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[0]) * resource.getpagesize()


def _die_with_host() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep_only(reply: int) -> None:
    """Close every descriptor but the reply; the standard ones become the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, reply)
    os.closerange(reply + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _limit(kind: int, value: int) -> None:
    """Lower a limit for good; a limit that is already lower stays."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def enter_parent_of_children(reply: int) -> None:
    """Put a fresh fork that only starts further ones on its own: it never runs an answer."""
    gc.disable()
    os.setsid()
    _die_with_host()
    _keep_only(reply)


def enter_child(reply: int, *, seconds: float, memory: int) -> None:
    """Put the calling process, a fresh fork, under its limits.

    Args:
        reply: the only descriptor that stays open.
        seconds: processor time; the host's deadline is the sharper limit.
        memory: bytes beyond what the host has.
    """
    enter_parent_of_children(reply)
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    if held := address_space():
        _limit(resource.RLIMIT_AS, held + memory)


def exit_on_memory_error(code: int) -> None:
    """End the process where a MemoryError is raised: bare excepts in verifiers hide it."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        if event == "exception" and issubclass(argument[0], MemoryError):
            os._exit(code)
        return trace

    sys.settrace(trace)
