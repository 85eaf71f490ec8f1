"""`contain`: any verifier of one's own, in worker processes with a deadline and limits."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError, PoolClosedError
from ..records import Verdict
from ..sandbox.functions import MAX_TEXT, FunctionPool, FunctionSettings, FunctionSource
from ..sandbox.pool import default_processes
from ..util.command_line import build
from ..util.concurrency import gather_or_cancel
from ..util.text import shorten
from ._background import Background
from .arguments import ContainSettings, require_list, require_pair, require_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .arguments import ContainOptions

Function = Callable[[str, Any], float]
"""What scores a text, given plain JSON data such as the right answer."""

_PATH = re.compile(r"[\w.]+:[\w.]+")

_MAX_SOURCE = 100_000
"""Characters of a function's source with its warm-up, which is one argument of a program."""


def contain(function: str | Function, **options: Unpack[ContainOptions]) -> ContainedFunction:
    """Return a function whose calls run in contained worker processes, one child for each call.

    It may read files. It may not write them, use the network, or start or signal processes.

    Args:
        function: "package.module:function", or a function that can be imported so. It takes a text
            and plain JSON data, and returns a number.

    Raises:
        ConfigurationError: an option is invalid, or the function cannot be imported by its path.

    Example:
        reward = contain("my_rewards:verify", timeout=5, memory="512MB")
        score = reward("The answer is 4.", {"answer": "4"})
    """
    given = build(ContainSettings, options)
    path = _valid_path(function) if isinstance(function, str) else _import_path(function)
    lowest, highest = given.bounds
    solved = highest if given.solved_threshold is None else given.solved_threshold
    if not lowest <= solved <= highest:
        raise ConfigurationError(
            f"solved_threshold must be within bounds, {given.bounds}, got {solved:g}"
        )
    return ContainedFunction(
        FunctionSettings(
            source=_source(path, given),
            processes=given.processes or default_processes(),
            lowest=lowest,
            highest=highest,
            solved_threshold=solved,
            environment=given.environment,
            require_containment=given.require_containment,
        )
    )


def _source(path: str, given: ContainSettings) -> FunctionSource:
    source = FunctionSource(
        path=path,
        search_path=[entry or str(Path.cwd()) for entry in sys.path],
        folder=str(Path.cwd()),
        memory=given.memory,
        timeout=given.timeout,
        allow=given.allow,
        warm_up=_calls(given.warm_up, "warm_up"),
    )
    if (size := len(source.to_json())) > _MAX_SOURCE:
        raise ConfigurationError(
            f"warm_up must have at most {_MAX_SOURCE} characters of JSON with the function's path "
            f"and sys.path, got {size}: use fewer or shorter calls"
        )
    return source


def _valid_path(path: str) -> str:
    """Return the path of a function; raise ConfigurationError if no worker can import it."""
    if not _PATH.fullmatch(path):
        raise ConfigurationError(
            f"function must be a path such as 'package.module:function', got {shorten(path)}"
        )
    if path.startswith("__main__:"):
        raise ConfigurationError(_MAIN.format(name=path.removeprefix("__main__:")))
    return path


_MAIN = (
    "{name} is of __main__, which worker processes cannot import: put it into a module of its own "
    "and pass its path, such as 'my_rewards:{name}'"
)


def _import_path(function: Any) -> str:
    """Return the path of a function that another process can import.

    Raises:
        ConfigurationError: there is none; the message names the way out.
    """
    name = getattr(function, "__qualname__", "")
    if not inspect.isroutine(function) or not name:
        raise ConfigurationError(
            f"function must be a function or its path, such as 'package.module:function', got "
            f"{shorten(function)}"
        )
    if "<" in name:  # <lambda>, <locals>
        raise ConfigurationError(
            f"{name} cannot be imported by its name: define it with def at the top of a module"
        )
    module = function.__module__
    if module in ("__main__", "__mp_main__"):
        raise ConfigurationError(_MAIN.format(name=name))
    found: Any = sys.modules.get(module)
    for attribute in name.split("."):
        found = getattr(found, attribute, None)
    if found is not function:
        raise ConfigurationError(
            f"{module}:{name} is not the function that was passed: pass the path of the one to "
            "call, such as 'package.module:function'"
        )
    return f"{module}:{name}"


def _calls(pairs: Any, name: str) -> list[tuple[str, str]]:
    """Return texts and JSON of an iterable of pairs; raise ConfigurationError if one is invalid."""
    calls = []
    for index, pair in enumerate(require_list(pairs, name)):
        text, data = require_pair(pair, f"{name}[{index}]", "a text and its data")
        calls.append((require_text(text), _to_json(data)))
    return calls


def _to_json(data: Any) -> str:
    """Write plain JSON data; raise ConfigurationError for anything else, or too much of it."""
    try:
        _require_text_keys(data)
        text = json.dumps(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"data must be plain JSON data (None, numbers, texts, lists, and dictionaries whose "
            f"keys are texts), got {shorten(data)}: {error}"
        ) from None
    if len(text) > MAX_TEXT:
        raise ConfigurationError(f"data must have at most {MAX_TEXT} characters as JSON")
    return text


def _require_text_keys(data: Any) -> None:
    """Raise TypeError for another key, which JSON would turn into a text."""
    if isinstance(data, dict):
        for key in data:
            if not isinstance(key, str):
                raise TypeError(f"{shorten(key)} is a key")
    values = data.values() if isinstance(data, dict) else data
    if isinstance(data, dict | list | tuple):
        for value in values:
            _require_text_keys(value)


class _Calls:
    """The calls of a function, in one event loop; the pool starts with the first."""

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self.pool: FunctionPool | None = None
        self._closed = False
        self.counts: Counter[str] = Counter()

    async def start(self) -> FunctionPool:
        async with self._starting:
            if self._closed:
                raise PoolClosedError("this contained function is closed; create a new one")
            if self.pool is None:
                pool = FunctionPool(self._settings, self.counts)
                await pool.start()
                self.pool = pool
            return self.pool

    async def close(self) -> None:
        self._closed = True
        async with self._starting:
            if self.pool is not None:
                await self.pool.close()

    async def score(self, calls: Sequence[tuple[str, str]]) -> list[Verdict]:
        pool = await self.start()
        return await gather_or_cancel(pool.call(text, data) for text, data in calls)


class ContainedFunction:
    """A function whose calls run in contained worker processes. Created by `contain`.

    Worker processes start with the first call. They end with `close`, at the end of `with`, when
    nothing refers to this object, and with this process, however it ends. All threads and event
    loops may use it. A fork of this process starts new workers, and so does a pickled copy.

    Attributes:
        contained_path: the path of the function.

    Example:
        with contain("my_rewards:verify") as reward:
            for verdict in reward.score_many((text, {"answer": "4"}) for text in texts):
                print(verdict.score, verdict.status.value, verdict.detail)
    """

    def __init__(self, settings: FunctionSettings) -> None:
        self.contained_path = settings.source.path
        self._settings = settings
        self._background = Background(
            partial(_Calls, settings), _Calls.close, name="contained function"
        )

    def __repr__(self) -> str:
        return f"contain({self.contained_path!r})"

    def __reduce__(self) -> tuple[type[ContainedFunction], tuple[FunctionSettings]]:
        return ContainedFunction, (self._settings,)

    def __enter__(self) -> ContainedFunction:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, text: str, data: Any = None) -> float | None:
        """Return the score of a text: see `score`. None means that it could not be scored."""
        return self.score(text, data).score

    def score(self, text: str, data: Any = None) -> Verdict:
        """Return the verdict on a text: see `score_many`."""
        [verdict] = self.score_many([(text, data)])
        return verdict

    def score_many(self, pairs: Iterable[tuple[str, Any]]) -> list[Verdict]:
        """Call the function with each text and its data, side by side.

        Returns:
            The verdicts, in the same order. A call that hangs, dies, raises or returns no number
            within the bounds is a verdict with a status of its own and the lowest score. The score
            is None if the worker processes were lost twice.

        Raises:
            ConfigurationError: a text is no text, or data is not plain JSON data.
            WorkerStartError: the function cannot be imported.
            PoolClosedError: this object is closed.
        """
        return self._background.run(self._background.client.score(_calls(pairs, "pairs")))

    async def score_async(self, text: str, data: Any = None) -> Verdict:
        """Return the verdict on a text, from any event loop: see `score_many`."""
        [verdict] = await self.score_many_async([(text, data)])
        return verdict

    async def score_many_async(self, pairs: Iterable[tuple[str, Any]]) -> list[Verdict]:
        """Return verdicts, from any event loop: see `score_many`. Cancelling drops the rest."""
        calls = _calls(pairs, "pairs")
        return await self._background.run_async(self._background.client.score(calls))

    def start(self) -> None:
        """Start the worker processes now; raise WorkerStartError if one fails to start."""
        self._background.run(self._start())

    async def start_async(self) -> None:
        """Start the worker processes now, from any event loop: see `start`."""
        await self._background.run_async(self._start())

    async def _start(self) -> None:
        await self._background.client.start()

    def close(self) -> None:
        """Stop all worker processes. Safe to call again; other calls then fail."""
        self._background.close()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of calls by status, and of restarted workers."""
        return dict(self._background.client.counts)

    @property
    def ready(self) -> bool:
        """Whether worker processes are running."""
        pool = self._background.client.pool
        return pool is not None and bool(pool.pids)

    @property
    def gaps(self) -> list[str]:
        """What the sandbox does not enforce on this system; empty before the start as well."""
        pool = self._background.client.pool
        return [] if pool is None else pool.gaps
