"""What workers may not do: a verifier's child, set before it reads model text, and a generator."""

from __future__ import annotations

import gc
import math
import os
import resource
import sys
from collections.abc import Sequence

from . import generator_filter, seccomp

GENERATOR_MEMORY = 4 * 2**30
"""Bytes beyond what a generator has once the library is loaded: many times the hungriest level."""


def address_space(pid: int | str = "self") -> int:
    """Measure a process's address space, in bytes; 0 where the system does not say.

    By the plainest calls: a fresh fork pays for every page that it touches.
    """
    try:
        statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except OSError:  # there is no /proc, or it hides other processes
        return 0
    said = os.read(statm, 64)
    os.close(statm)
    return int(said.split()[0]) * resource.getpagesize()


def _silence() -> None:
    """Make the standard descriptors the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def _keep_only(*kept: int) -> None:
    """Close every descriptor but the standard ones and these."""
    begin = 3
    for descriptor in sorted(kept):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _limit(kind: int, value: int) -> None:
    """Lower a limit for good; a limit that is already lower stays."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _cut_off(kept: Sequence[int], memory: int | None) -> list[str]:
    """Part a fresh fork from its host: a session and descriptors of its own, less memory.

    Returns:
        Sentences that say what this system does not enforce.
    """
    gc.disable()
    os.setsid()
    gaps = [gap for gap in [seccomp.undumpable()] if gap]
    if memory is not None:
        _silence()
        if held := address_space():
            _limit(resource.RLIMIT_AS, held + memory)
        else:
            gaps.append(f"No limit on memory: {sys.platform} does not say how much a process has.")
        _limit(resource.RLIMIT_CORE, 0)
    _keep_only(*kept)
    return gaps


def enter_parent_of_children(reply: int, *, memory: int, sandboxed: bool) -> bool:
    """Put a fresh fork that only starts further ones under its limits, which those inherit.

    It runs known answers and none of a model's, but what it knows came from outside as well.

    Args:
        memory: bytes beyond what the host has.
        sandboxed: also keep it from files, sockets, programs and signals.

    Returns:
        Whether it can kill its children. Where it can't, they die with it.
    """
    _cut_off([reply], memory)
    return not sandboxed or seccomp.install_for_parent() is not None


def enter_child(
    reply: int,
    *,
    seconds: float,
    memory: int | None,
    sandboxed: bool = True,
    requests: int | None = None,
) -> list[str]:
    """Put the calling process, a fresh fork, under its limits.

    Args:
        reply: the descriptor that it writes to.
        seconds: processor time; the host's deadline is the sharper limit.
        memory: bytes beyond what the host has; None where `enter_parent_of_children` set it.
        sandboxed: also keep it from files, sockets, processes and signals.
        requests: the descriptor that it reads from, if any; no other stays open.

    Returns:
        Sentences that say what this system does not enforce.
    """
    gaps = _cut_off([reply] if requests is None else [reply, requests], memory)
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    if sandboxed:
        for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
            _limit(kind, 0)
        gaps += filter(None, [seccomp.install(reply, requests_fd=requests)])
    return gaps


def enter_generator() -> list[str]:
    """Put the calling process under the limits of a generator, before it starts a thread.

    Returns:
        Sentences that say what this system does not enforce.
    """
    gaps = []
    if held := address_space():
        _limit(resource.RLIMIT_AS, held + GENERATOR_MEMORY)
    else:
        gaps.append(f"No limit on memory: {sys.platform} does not say how much a process has.")
    _limit(resource.RLIMIT_CORE, 0)
    gaps += filter(None, [generator_filter.install()])
    return gaps


def enforcement_gaps() -> str:
    """Find out in a child what children are not kept from on this system; empty when all holds."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        gaps = enter_child(write_end, seconds=1, memory=2**29)
        os.write(write_end, " ".join(gaps).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reply:
        gaps_text = reply.read().decode()
    os.waitpid(pid, 0)
    return gaps_text
