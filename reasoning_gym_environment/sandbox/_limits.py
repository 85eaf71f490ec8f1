"""Limits of worker processes: memory, time, descriptors, and what each role enters with them.

Each role has one function, called before the process starts to work, that returns sentences about
what this system does not enforce. A single limit returns such a sentence, or None when it holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import WorkerStartError
from ._landlock import capabilities_over_files, isolate, landlock_rules
from ._seccomp import (
    AUDIT,
    OWN_ARCHITECTURE,
    filter_function,
    filter_generator,
    filter_verifier_child,
    filter_zygote,
    function_filter,
)
from ._system import LIBC, prctl


def protect_process() -> str | None:
    """Keep processes of the same user from tracing this one, and end it with its parent.

    A fork inherits the first and must ask for the second itself.
    """
    if sys.platform != "linux":
        return f"No protection from tracing, no end with the parent: {sys.platform} has neither."
    try:
        prctl("DUMPABLE", 0)
        prctl("PDEATHSIG", signal.SIGKILL)
    except OSError as error:
        return (
            f"No protection from tracing or no end with the parent: {error.strerror}."
        )
    return None


def keep_shared_memory_private() -> None:
    """Put copies in place of the memory that this process shares, which forks then do not share."""
    maps = Path("/proc/self/maps")
    if LIBC is None or not maps.exists():
        return
    # addresses, rights, offset, device, inode, name; a device's memory can't be copied
    shared = r"^(\w+)-(\w+) rw.s \S+ \S+ \S+ +/(?!dev/(?!shm/|zero))"
    for addresses in re.findall(shared, maps.read_text(), re.MULTILINE):
        begin, end = (int(address, 16) for address in addresses)
        size = end - begin
        # PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS
        copy = LIBC.mmap(None, size, 0x3, 0x22, -1, 0)
        if copy == ctypes.c_void_p(-1).value:
            raise WorkerStartError(
                f"no copy of {size} bytes of memory that the import shares"
            )
        ctypes.memmove(copy, begin, size)
        # MREMAP_MAYMOVE | MREMAP_FIXED
        if LIBC.mremap(copy, size, size, 0x3, begin) != begin:
            raise WorkerStartError(
                f"{size} bytes of memory that the import shares stay shared"
            )


VERIFIER_MEMORY = 512 * 2**20
"""Address space in bytes that a verifier's child may have beyond what its host has."""

WORKER_MEMORY = 4 * 2**30
"""Address space in bytes that a generator or verifier host may have beyond the loaded library: many
times what the hungriest level needs."""

MAX_TASKS = 256
"""Threads and processes of a child that scores; one with more is killed."""

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


_SIZE_AT_START = address_space()
_DESCRIPTORS_AT_START = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""Before a module of the user's can have changed anything."""


def _limit(kind: int, value: int) -> None:
    """Lower a limit for good; a limit that is already lower stays."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _limit_memory(additional: int) -> list[str]:
    """Limit the address space to its size plus `additional` bytes, and disable core files."""
    _limit(resource.RLIMIT_CORE, 0)
    # A module may have used up the descriptors that reading it needs.
    size = address_space() or (_SIZE_AT_START and _SIZE_AT_START + WORKER_MEMORY)
    if size:
        _limit(resource.RLIMIT_AS, size + additional)
        return []
    return [
        f"No memory limit: it needs /proc, which this system ({sys.platform}) lacks."
    ]


M_ARENA_MAX = -8
"""The option of glibc's `mallopt` for the number of heaps."""


def _share_heap_between_threads() -> None:
    """Let all threads allocate from one heap.

    By default glibc reserves 64 MB of address space for the heap of each thread, beside its stack
    of 8 MB, so that the default limit of memory would leave a dozen.
    """
    set_option = getattr(LIBC, "mallopt", None)  # musl has none, and no such heaps
    if set_option is not None:
        set_option(M_ARENA_MAX, 1)


def _redirect_standard_streams() -> None:
    """Connect standard input, output and error to the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def tasks_of(leader: int, *, alone: bool) -> int:
    """Count the threads of a process group, or of its leader alone; 0 where there is no /proc."""
    count = 0
    for status in Path("/proc").glob(f"{leader if alone else '[0-9]*'}/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = status.read_bytes().rpartition(b")")[2].split()
            count += int(fields[17]) if int(fields[2]) == leader else 0
    return count


def processes_of(leader: int) -> list[int]:
    """Return the processes of a group by their ids; none where there is no /proc."""
    members = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = status.read_bytes().rpartition(b")")[2].split()
            if int(fields[2]) == leader:
                members.append(int(status.parent.name))
    return members


def _detach(kept: Sequence[int]) -> list[str]:
    """Separate a fresh fork from its parent: own session, no tracing, only these descriptors."""
    gc.disable()
    os.setsid()
    missing_protection = protect_process()
    begin = 3
    for descriptor in sorted(kept):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, _DESCRIPTORS_AT_START)
    return [missing_protection] if missing_protection else []


def enter_single_use_child(
    reply: int, *, requests: int | None = None, seconds: float
) -> list[str]:
    """Put a fresh fork of a zygote, which has the memory limit, under its other limits.

    Args:
        reply: the only descriptor that it can write to.
        requests: the only descriptor that it can read from, if any.
        seconds: processor time; the host's limit is the sharper one.
    """
    missing_protections = _detach([reply] if requests is None else [reply, requests])
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    return missing_protections + _deny_access(reply, requests)


def _deny_access(reply: int, requests: int | None) -> list[str]:
    """Put files, sockets, processes and signals out of reach, all but the two descriptors."""
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        _limit(kind, 0)
    missing_protection = filter_verifier_child(reply, requests_fd=requests)
    return [missing_protection] if missing_protection else []


def enter_persistent_worker(reply: int, requests: int, *, seconds: float) -> list[str]:
    """Put a fresh fork of a verifier host under its limits; see `enter_single_use_child`."""
    _redirect_standard_streams()
    missing_protections = _limit_memory(VERIFIER_MEMORY)
    return missing_protections + enter_single_use_child(
        reply, requests=requests, seconds=seconds
    )


def enter_zygote(reply: int) -> bool:
    """Put a fresh fork of a verifier host under limits that the children it forks inherit.

    It runs the oracle and no answer of a model, but the oracle came from outside as well.

    Returns:
        Whether it can kill its children. Where it can't, they die with it.
    """
    _redirect_standard_streams()
    _limit_memory(VERIFIER_MEMORY)
    _detach([reply])
    return filter_zygote() is not None


def enter_function_child(
    reply: int,
    *,
    memory: int,
    seconds: float,
    allow: frozenset[str],
) -> list[str]:
    """Put a fresh fork of a function host under its limits. It can read files and import modules.

    Args:
        reply: the only open descriptor, beside standard streams that lead nowhere.
        memory: bytes of address space beyond what its host has.
        seconds: processor time; the host's limit is the sharper one.
        allow: what else it may do: see `function_filter`.
    """
    _redirect_standard_streams()
    missing_protections = _limit_memory(memory)
    _share_heap_between_threads()
    missing_isolation = isolate(write="write" in allow)
    missing_protections += _detach([reply])
    gc.enable()
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    if "write" not in allow:
        _limit(resource.RLIMIT_FSIZE, 0)
    missing_filter = filter_function(allow)
    # On Linux, it would refuse threads as well.
    if missing_filter and "processes" not in allow:
        _limit(resource.RLIMIT_NPROC, 0)
    return [*missing_protections, *filter(None, (missing_isolation, missing_filter))]


def enter_host() -> list[str]:
    """Put the calling process under the limit of a verifier host."""
    return _limit_memory(WORKER_MEMORY)


def enter_generator() -> list[str]:
    """Put the calling process under the limits of a generator, before it starts a thread."""
    missing_protections = _limit_memory(WORKER_MEMORY)
    isolate()  # nothing is missing where it fails: no text of a model gets here
    missing_protection = filter_generator()
    return (
        [*missing_protections, missing_protection]
        if missing_protection
        else missing_protections
    )


def missing_in_verifier() -> str:
    """Return what this system does not enforce for verifiers; empty when everything holds."""
    return _missing_in_child(
        lambda reply, requests: enter_persistent_worker(reply, requests, seconds=1)
    )


def missing_in_function(*, memory: int, seconds: float, allow: frozenset[str]) -> str:
    """Return what this system does not enforce for a function, as `missing_in_verifier` does."""
    # cached before the forks that need them: they take those longer than all else
    with contextlib.suppress(OSError):  # its child meets it as well
        capabilities_over_files()
        landlock_rules(write="write" in allow)
    if OWN_ARCHITECTURE in AUDIT:
        function_filter(OWN_ARCHITECTURE, allow)
    return _missing_in_child(
        lambda reply, _: enter_function_child(
            reply,
            memory=memory,
            seconds=seconds,
            allow=allow,
        )
    )


def _missing_in_child(enter: Callable[[int, int], list[str]]) -> str:
    """Find out in a child, which enters limits with two descriptors."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        missing_protections = enter(write_end, read_end)
        os.write(write_end, " ".join(missing_protections).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reply:
        missing_protections_text = reply.read().decode()
    _, status = os.waitpid(pid, 0)
    return (
        f"a child that enters the limits ends with status {status}"
        if status
        else missing_protections_text
    )
