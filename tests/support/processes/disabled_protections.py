"""Task pools that leave out layers of containment, to test the others and to measure each.

The package has no such switch: a fork server of these classes replaces functions in its process.
"""

import errno
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reasoning_gym_environment.sandbox import (
    _children,
    _landlock,
    _limits,
    _verifier_child,
)
from reasoning_gym_environment.sandbox._fork_server import ForkServer
from reasoning_gym_environment.sandbox._function_host import PROGRAM
from reasoning_gym_environment.sandbox._protocol import FormScores, Outcome
from reasoning_gym_environment.sandbox._verifier_host import Group, VerifierHost
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import EXECUTES_ANSWERS


def score_unscreened(
    verify: _verifier_child.Verify, task: str, answer: str, entry: Any
) -> FormScores:
    """Stand in for `screen_and_score`: neither screen nor guard."""
    return _verifier_child.score_forms(verify, answer, entry)


def leave_out_screen() -> None:
    """Let every answer reach its verifier, in single-use children if the task executes answers."""
    _verifier_child.screen_and_score = score_unscreened
    score = VerifierHost._score_in_persistent_worker

    def defer(
        host: VerifierHost, group: Group, answers: Sequence[str]
    ) -> list[FormScores]:
        if group.request.task in EXECUTES_ANSWERS:
            return [FormScores.defer()] * len(answers)
        return score(host, group, answers)

    VerifierHost._score_in_persistent_worker = defer


def leave_out_sandbox() -> None:
    """Leave limits on time and memory, and children. An answer may then kill other processes."""
    leave_out_screen()
    failure = _children._failure

    def failure_without_filter(wait_status: int) -> Outcome:
        outcome = failure(wait_status)
        return Outcome.CRASHED if outcome is Outcome.KILLED else outcome

    _children._failure = failure_without_filter
    _limits._deny_access = lambda reply, requests: []
    _limits.filter_zygote = lambda: "left out"


def leave_little_memory() -> None:
    """Let a worker grow by 40 MiB."""
    _limits.WORKER_MEMORY = 40 * 2**20


def leave_out_filter() -> None:
    """Let verifiers' children make any system call, and say so, as on a system without seccomp."""
    _limits.filter_verifier_child = lambda reply, requests_fd=None: (
        "No system call filter: left out."
    )
    _limits.filter_function = lambda allow: "No system call filter: left out."


def leave_out_landlock() -> None:
    """Stand in for a kernel without Landlock."""

    def refuse(*, write: bool) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    _landlock.landlock_rules = refuse
    _limits.landlock_rules = refuse


def _program(leave_out: str, program: str = ForkServer._program) -> str:
    tests = str(Path(__file__).parent)
    path = f"import sys; sys.path.append({tests!r})"
    return f"{path}; from disabled_protections import {leave_out}; {leave_out}(); {program}"


UNFILTERED = _program("leave_out_filter", PROGRAM)
WITHOUT_LANDLOCK = _program("leave_out_landlock", PROGRAM)
"""Programs of a function's fork server, without its system call filter or Landlock."""


class Unscreened(ForkServer):
    """Sandbox, limits, children."""

    _program = _program("leave_out_screen")


class Unfiltered(ForkServer):
    """All but the system call filter."""

    _program = _program("leave_out_filter")


class Unsandboxed(ForkServer):
    """Limits on time and memory, children."""

    _program = _program("leave_out_sandbox")


class LittleMemory(ForkServer):
    """All layers, with less memory than a few large datasets need."""

    _program = _program("leave_little_memory")


@asynccontextmanager
async def pool_of(
    layers: type[ForkServer], settings: PoolSettings, counts: Counter[str] | None = None
) -> AsyncIterator[TaskPool]:
    """Start a task pool with the layers of a fork server."""
    server = layers()
    try:
        own_counts = Counter[str]() if counts is None else counts
        async with TaskPool(settings, own_counts, start_worker=server.start) as pool:
            yield pool
    finally:
        await server.close()
