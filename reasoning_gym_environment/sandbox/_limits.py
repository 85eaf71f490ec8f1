"""Limits of worker processes, set before they start to work: memory, time, descriptors, calls.

Each role has one function. All return sentences that say what this system does not enforce.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import sys
from collections.abc import Callable, Sequence

from . import _system_calls as system_calls

VERIFIER_MEMORY = 512 * 2**20
"""Address space in bytes that a verifier's child may have beyond what its host has."""

WORKER_MEMORY = 4 * 2**30
"""Address space in bytes that a generator or verifier host may have beyond the loaded library: many
times what the hungriest level needs."""

DATASET_MEMORY = 512 * 2**20
"""Bytes by which a worker may grow before it evicts datasets."""


def address_space(pid: int | str = "self") -> int:
    """Measure a process's address space in bytes; return 0 if the system does not report it.

    Uses the plainest calls: a fresh fork pays for every page that it touches.
    """
    try:
        statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except OSError:  # there is no /proc, or it hides other processes
        return 0
    try:
        content = os.read(statm, 64)
    except ProcessLookupError:  # it has just ended
        return 0
    finally:
        os.close(statm)
    return int(content.split()[0]) * resource.getpagesize()


def _limit(kind: int, value: int) -> None:
    """Lower a limit for good; a limit that is already lower stays."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _limit_memory(more: int) -> list[str]:
    """Limit the address space to its current size plus `more` bytes, and disable core files."""
    _limit(resource.RLIMIT_CORE, 0)
    if size := address_space():
        _limit(resource.RLIMIT_AS, size + more)
        return []
    return [f"No memory limit: it needs /proc, which this system ({sys.platform}) lacks."]


def _redirect_standard_streams() -> None:
    """Connect standard input, output and error to the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def _detach(kept: Sequence[int]) -> list[str]:
    """Separate a fresh fork from its parent: own session, no tracing, only these descriptors."""
    gc.disable()
    os.setsid()
    gap = system_calls.protect_process()
    begin = 3
    for descriptor in sorted(kept):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return [gap] if gap else []


def enter_single_use_child(reply: int, *, requests: int | None = None, seconds: float) -> list[str]:
    """Put a fresh fork of a zygote, which has the memory limit, under its other limits.

    Args:
        reply: the only descriptor that it can write to.
        requests: the only descriptor that it can read from, if any.
        seconds: processor time; the host's deadline is the sharper limit.
    """
    gaps = _detach([reply] if requests is None else [reply, requests])
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    return gaps + _deny_access(reply, requests)


def _deny_access(reply: int, requests: int | None) -> list[str]:
    """Put files, sockets, processes and signals out of reach, all but the two descriptors."""
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        _limit(kind, 0)
    gap = system_calls.filter_verifier_child(reply, requests_fd=requests)
    return [gap] if gap else []


def enter_persistent_worker(reply: int, requests: int, *, seconds: float) -> list[str]:
    """Put a fresh fork of a verifier host under its limits; see `enter_single_use_child`."""
    _redirect_standard_streams()
    gaps = _limit_memory(VERIFIER_MEMORY)
    return gaps + enter_single_use_child(reply, requests=requests, seconds=seconds)


def enter_zygote(reply: int) -> bool:
    """Put a fresh fork of a verifier host under limits that the children it forks inherit.

    It runs the oracle and no answer of a model, but the oracle came from outside as well.

    Returns:
        Whether it can kill its children. Where it can't, they die with it.
    """
    _redirect_standard_streams()
    _limit_memory(VERIFIER_MEMORY)
    _detach([reply])
    return system_calls.filter_zygote() is not None


def enter_function_child(
    reply: int, *, memory: int, seconds: float, allow: frozenset[str]
) -> list[str]:
    """Put a fresh fork of a function host under its limits. It can read files and import modules.

    Args:
        reply: the only open descriptor, beside standard streams that lead nowhere.
        memory: bytes of address space beyond what its host has.
        seconds: wall time; its threads may use as much on each core.
        allow: what else it may do: see `_system_calls.function_filter`.
    """
    _redirect_standard_streams()
    gaps = _limit_memory(memory) + _detach([reply])
    gc.enable()
    _limit(resource.RLIMIT_CPU, (math.ceil(seconds) + 1) * (os.cpu_count() or 1))
    if "write" not in allow:
        _limit(resource.RLIMIT_FSIZE, 0)
    gap = system_calls.filter_function(allow)
    if gap and "processes" not in allow:  # on Linux, it would refuse threads as well
        _limit(resource.RLIMIT_NPROC, 0)
    return [*gaps, gap] if gap else gaps


def enter_host() -> list[str]:
    """Put the calling process under the limit of a verifier host."""
    return _limit_memory(WORKER_MEMORY)


def enter_generator() -> list[str]:
    """Put the calling process under the limits of a generator, before it starts a thread."""
    gaps = _limit_memory(WORKER_MEMORY)
    gap = system_calls.filter_generator()
    return [*gaps, gap] if gap else gaps


def verifier_gaps() -> str:
    """Return what this system does not enforce for verifiers; empty when everything holds."""
    return _gaps_in_child(lambda reply, other: enter_persistent_worker(reply, other, seconds=1))


def function_gaps(*, memory: int, seconds: float, allow: frozenset[str]) -> str:
    """Return what this system does not enforce for a contained function: see `verifier_gaps`."""
    system_calls.assemble_function_filter(allow)
    return _gaps_in_child(
        lambda reply, _: enter_function_child(reply, memory=memory, seconds=seconds, allow=allow)
    )


def _gaps_in_child(enter: Callable[[int, int], list[str]]) -> str:
    """Find out in a child, which enters limits with two descriptors."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        gaps = enter(write_end, read_end)
        os.write(write_end, " ".join(gaps).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reply:
        gaps_text = reply.read().decode()
    os.waitpid(pid, 0)
    return gaps_text
