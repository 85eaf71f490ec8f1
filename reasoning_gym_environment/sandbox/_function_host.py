"""The function host: imports a user's function and forks a single-use child for each call of it.

The import runs uncontained, like any other import of the user's program. Calls see model text.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import msgspec

from ..errors import WorkerStartError
from ..util.modules import ModuleSource, import_module
from ..util.values import describe_error, shorten
from . import _limits as limits
from . import _protocol as protocol
from ._children import AnswerLimit, ParentGoneError, run_child, score_all
from ._fork_program import Serve, run_server
from ._protocol import FormScores, FunctionCall, Outcome
from ._work_clock import WorkClock

ROLE = "function"

PROGRAM = (
    "import sys; sys.path.remove(''); "  # import nothing from the working directory
    "from reasoning_gym_environment.sandbox._function_host import main; main()"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionSource:
    """What a fork server needs to load a function and to limit its calls.

    Attributes:
        module: where it stands.
        name: its name there.
        memory: bytes that a call may have beyond what its host has.
        others: as of `contain`, with the data as JSON.
    """

    module: ModuleSource
    name: str
    memory: int
    timeout: float
    allow: Sequence[str] = ()
    warm_up: Sequence[tuple[str, str]] = ()

    @property
    def shown(self) -> str:
        """What `contain` takes: `package.module:function`."""
        return f"{self.module.shown}:{self.name}"


def main() -> None:
    """Run the fork server of one function, whose source is the program's argument."""
    source = msgspec.json.decode(sys.argv[1], type=FunctionSource)

    def prepare() -> Serve:
        function = load_function(source)
        limits.keep_shared_memory_private()
        return partial(run, function=function, source=source)

    run_server(lambda: {ROLE: prepare})


def load_function(source: FunctionSource) -> Callable[..., Any]:
    """Import a function and warm it up; raise WorkerStartError with the reason if that fails."""
    function: Any = import_module(source.module)
    try:
        for attribute in source.name.split("."):
            function = getattr(function, attribute)
    except AttributeError as error:
        raise WorkerStartError(
            f"cannot import {source.shown}: {describe_error(error)}"
        ) from error
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise WorkerStartError(
            f"{source.shown} must be a plain function of a text and data, got {shorten(function)}"
        )
    if hasattr(function, "contained_path"):
        raise WorkerStartError(
            f"{source.shown} is what contain() returned: name the function that it contains, "
            f"{function.contained_path}"
        )
    loaded: Callable[..., Any] = function
    for text, data in source.warm_up:
        scores = _call(loaded, text, data)
        if scores.errors:
            raise WorkerStartError(f"warm_up: {source.shown} {scores.detail}")
    return loaded


def _call(function: Callable[..., Any], text: str, data: str) -> FormScores:
    """Call a function; NaN, an error and its text if it raises or returns no number."""
    begin = time.perf_counter()
    detail = ""
    score = math.nan
    try:
        value = function(text, json.loads(data))
        detail = f"returned {shorten(value)}, which is not a number"
        if not isinstance(value, str | bytes | bytearray):  # float() would parse them
            score = float(value)
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - a function may raise anything: it is a verdict
        detail = detail or f"raised {describe_error(error)}"
    failed = math.isnan(score)
    return FormScores(
        outcome=Outcome.SCORED,
        raw=score,
        seconds=time.perf_counter() - begin,
        errors=int(failed),
        detail=detail if failed else "",
    )


def run(
    requests: BinaryIO,
    replies: BinaryIO,
    *,
    function: Callable[..., Any],
    source: FunctionSource,
) -> None:
    """Serve until the parent goes away; first report what is not enforced."""
    limits_of_calls: Mapping[str, Any] = {
        "memory": source.memory,
        "seconds": source.timeout,
        "allow": frozenset(source.allow),
    }
    enter: Callable[..., Any] = partial(limits.enter_function_child, **limits_of_calls)
    protocol.write_frame(
        replies, limits.missing_in_function(**limits_of_calls).encode()
    )

    def call_in_child(
        deadline: float, calls: Sequence[FunctionCall]
    ) -> list[FormScores]:
        [call] = calls

        def work(reply: int) -> None:
            enter(reply)
            os.write(reply, _call(function, call.text, call.data).pack())

        def limit(pid: int) -> AnswerLimit:
            may_fork = "processes" in source.allow
            members = partial(limits.processes_of, pid) if may_fork else lambda: (pid,)
            return AnswerLimit(
                WorkClock(members, is_new=True),
                source.timeout,
                patience=deadline - time.monotonic(),
            )

        return run_child(
            work,
            1,
            limit=limit,
            parent=requests.fileno(),
            crowded=lambda pid: (
                limits.tasks_of(pid, alone="processes" not in source.allow)
                > limits.MAX_TASKS
            ),
        )

    while (frame := protocol.read_frame(requests)) is not None:
        call: FunctionCall = pickle.loads(frame)
        # The deadline holds for all attempts together, where one is killed.
        deadline = time.monotonic() + call.patience
        try:
            [scores] = score_all(partial(call_in_child, deadline), [call], deadline)
        except ParentGoneError:
            return
        protocol.write_frame(replies, scores.pack())
