"""`contain`: any verifier of one's own, in worker processes with a deadline and limits."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    SkipValidation,
    TypeAdapter,
    ValidationError,
)

from ..errors import ConfigurationError
from ..records import Verdict
from ..sandbox.functions import MAX_TEXT, FunctionPool, FunctionSource
from ..sandbox.pool import default_processes
from ..util.concurrency import gather_or_cancel
from ..util.modules import ModuleSource, find_module
from ..util.values import shorten
from .arguments import (
    AS_LIST,
    Number,
    Processes,
    Text,
    TextWithData,
    checked,
)
from .background import Background, LazyPool


def _bytes(value: Any) -> int:
    try:
        size = int(TypeAdapter(ByteSize).validate_python(value))
    except ValidationError:
        size = 0
    if not 16 * 2**20 <= size <= 2**50:
        raise ValueError(
            f"must be a size from 16 MiB to 1 PiB, such as '512MB', got {shorten(value)}"
        )
    return size


def _range(value: tuple[float, float]) -> tuple[float, float]:
    if not -math.inf < value[0] < value[1] < math.inf:
        raise ValueError(
            f"must be two finite numbers, the lower one first, got {shorten(value)}"
        )
    return value


_MAX_SOURCE = 100_000
"""Bytes of a function's source with its warm-up, which is one argument of a program."""


@checked
def contain(
    function: Annotated[str | Callable[[str, Any], float], SkipValidation],
    *,
    timeout: Annotated[Number, Field(gt=0, le=86400)] = 5.0,
    memory: Annotated[int | str, BeforeValidator(_bytes)] = 512_000_000,
    processes: Processes = None,
    bounds: Annotated[
        tuple[float, float], Field(strict=False), AfterValidator(_range)
    ] = (
        0.0,
        1.0,
    ),
    solved_threshold: Annotated[Number | None, Field(allow_inf_nan=False)] = None,
    warm_up: Annotated[Iterable[TextWithData], AS_LIST] = (),
    allow: Annotated[Iterable[Literal["network", "processes", "write"]], AS_LIST] = (),
    environment: Annotated[Iterable[str], AS_LIST] = (),
    require_containment: bool = False,
) -> ContainedFunction:
    """Return a function whose calls run in contained worker processes, one child for each call.

    It may read files. It may not write them, use the network, or start or signal processes.

    Args:
        function: "package.module:function", or a function that can be imported so. It takes a text
            and plain JSON data, and returns a number.
        timeout: seconds that a call may work, with all its threads and processes, or wait; then
            it is killed. A busy machine makes it no shorter.
        memory: what a call may use beyond what the loaded function has; "512MB".
        processes: calls at once; half the cores.
        bounds: the lowest and the highest score. A call that fails earns the lowest.
        solved_threshold: score from which the status is solved; the highest.
        warm_up: texts and data of calls that run once, uncontained, before all others: what they
            import and cache is ready for the others.
        allow: "network", "processes" and "write", each of which loosens the containment.
        environment: names of environment variables that the function sees.
        require_containment: whether to refuse to start where the sandbox is incomplete.

    Raises:
        ConfigurationError: an option is invalid, or the function cannot be imported by its path.

    Example:
        reward = contain("my_rewards:verify", timeout=5, memory="512MB")
        score = reward("The answer is 4.", {"answer": "4"})
    """
    solved = bounds[1] if solved_threshold is None else solved_threshold
    if not bounds[0] <= solved <= bounds[1]:
        raise ConfigurationError(
            f"solved_threshold must be within bounds, {bounds}, got {solved:g}"
        )
    module, name = _place_of(function)
    source = FunctionSource(
        module=module,
        name=name,
        memory=int(memory),
        timeout=timeout,
        allow=list(allow),
        warm_up=_encode_calls(warm_up),
    )
    _require_small(source)
    return ContainedFunction(
        source,
        processes=processes or default_processes(),
        bounds=bounds,
        solved_threshold=solved,
        environment=list(environment),
        require_containment=require_containment,
    )


def _require_small(source: FunctionSource) -> None:
    """Raise ConfigurationError for a source that is too large for a worker's first message."""
    size = len(msgspec.json.encode(source))
    if size > _MAX_SOURCE:
        raise ConfigurationError(
            f"warm_up must have at most {_MAX_SOURCE} bytes of JSON with the function's path "
            f"and sys.path, got {size}: use fewer or shorter calls"
        )


def _place_of(function: Any) -> tuple[ModuleSource, str]:
    """Return the module that a function is in and its name; ConfigurationError if none is found."""
    if isinstance(function, str):
        module, _, name = function.rpartition(":")
        if not re.fullmatch(r"[\w.]+", name) or not module:
            raise ConfigurationError(
                "function must be a path such as 'package.module:function' or "
                f"'./module.py:function', got {shorten(function)}"
            )
        return find_module(module, "function"), name
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", "")
    if not inspect.isroutine(function) or not name:
        raise ConfigurationError(
            "function must be a function or its path, such as 'package.module:function', got "
            f"{shorten(function)}"
        )
    if "<" in name:  # <lambda>, <locals>
        raise ConfigurationError(
            f"{name} cannot be imported by its name: define it with def at the top of a module"
        )
    source = find_module(module, "function")
    target: Any = sys.modules.get(module)
    for attribute in name.split("."):
        target = getattr(target, attribute, None)
    if target is not function:
        raise ConfigurationError(
            f"{module}:{name} is not the function that was passed: pass the path of the one to "
            "call, such as 'package.module:function'"
        )
    return source, name


def _encode_calls(pairs: Iterable[TextWithData]) -> list[tuple[str, str]]:
    """Return each text and the JSON of its data; raise ConfigurationError if that is not plain."""
    pair_list = list(pairs)
    # A batch often has the same data for all texts.
    data_by_id = {id(data): data for _, data in pair_list}
    json_by_id = {key: encode_data(data) for key, data in data_by_id.items()}
    return [(text, json_by_id[id(data)]) for text, data in pair_list]


def encode_data(data: Any) -> str:
    """Write plain JSON data; raise ConfigurationError for anything else, or too much of it."""
    try:
        _require_text_keys([data])
        text = json.dumps(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"data must be plain JSON data (None, numbers, texts, lists, and dictionaries whose "
            f"keys are texts), got {shorten(data)}: {error}"
        ) from None
    if len(text) > MAX_TEXT:
        raise ConfigurationError(
            f"data must have at most {MAX_TEXT} characters as JSON"
        )
    return text


def _require_text_keys(data: Any) -> None:
    """Raise TypeError for another key, which JSON would turn into a text."""
    values = data
    if isinstance(data, dict):
        values = data.values()
        for key in data:
            if not isinstance(key, str):
                raise TypeError(f"dictionary keys must be text, got {shorten(key)}")
    for value in values:
        if isinstance(value, dict | list | tuple):
            _require_text_keys(value)


class ContainedFunction:
    """A function whose calls run in contained worker processes. Created by `contain`.

    Worker processes start and end as those of `ReasoningGym`. All threads and event loops may use
    it. A fork of this process starts new workers, and so does a pickled copy.

    Attributes:
        contained_path: the path of the function.

    Example:
        with contain("my_rewards:verify") as reward:
            for verdict in reward.score_many((text, {"answer": "4"}) for text in texts):
                print(verdict.score, verdict.status.value, verdict.detail)
    """

    def __init__(self, source: FunctionSource, **options: Any) -> None:
        self.contained_path = source.shown
        self._source = source
        self._options = options
        create = partial(FunctionPool, source, **options)
        self._background: Background[LazyPool[FunctionPool]] = Background(
            partial(LazyPool, create, name="contained function"),
            LazyPool.close,
            name="contained function",
        )

    def __repr__(self) -> str:
        return f"contain({self.contained_path!r})"

    def __reduce__(
        self,
    ) -> tuple[Callable[..., ContainedFunction], tuple[FunctionSource]]:
        return partial(ContainedFunction, **self._options), (self._source,)

    def __enter__(self) -> ContainedFunction:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, text: str, data: Any = None) -> float | None:
        """Return the score of a text: see `score`. None means that it could not be scored."""
        return self.score(text, data).score

    @checked
    def score(self, text: Text, data: Any = None) -> Verdict:
        """Return the verdict on a text: see `score_many`."""
        [verdict] = self.score_many([(text, data)])
        return verdict

    @checked
    def score_many(
        self, pairs: Annotated[Iterable[TextWithData], AS_LIST]
    ) -> list[Verdict]:
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
        return self._background.run(self._score(_encode_calls(pairs)))

    async def _score(self, calls: Sequence[tuple[str, str]]) -> list[Verdict]:
        pool = await self._background.client.start()
        return await gather_or_cancel(pool.call(text, data) for text, data in calls)

    @checked
    async def score_async(self, text: Text, data: Any = None) -> Verdict:
        """Return the verdict on a text, from any event loop: see `score_many`."""
        [verdict] = await self.score_many_async([(text, data)])
        return verdict

    @checked
    async def score_many_async(
        self, pairs: Annotated[Iterable[TextWithData], AS_LIST]
    ) -> list[Verdict]:
        """Return verdicts, from any event loop: see `score_many`. Cancelling drops the rest."""
        return await self._background.run_async(self._score(_encode_calls(pairs)))

    async def score_encoded(self, texts: Sequence[str], data: str) -> list[Verdict]:
        """Return the verdicts on texts with the same data, which `encode_data` wrote."""
        return await self._background.run_async(
            self._score([(text, data) for text in texts])
        )

    def start(self) -> None:
        """Start the worker processes now; raise WorkerStartError if one fails to start."""
        self._background.run(self._score([]))

    async def start_async(self) -> None:
        """Start the worker processes now, from any event loop: see `start`."""
        await self._background.run_async(self._score([]))

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
    def missing_protections(self) -> list[str]:
        """What the sandbox does not enforce on this system; empty before the start as well."""
        return self._background.client.missing_protections
