"""Named streams of problems, whose states are files: they outlive the service."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from ..gym.asynchronous import AsyncReasoningGym
from ..gym.stream import AsyncProblemStream, StreamOptions
from ..problems.levels import ComplexityMode
from ..problems.sampler import TaskSampling
from ..records import Problem, Recipe
from ..storage.rows import recipe_key
from ..tasks.recipes import read_recipe
from ..util.concurrency import DaemonWriter
from ..util.files import UnwritableError, write_whole
from .items import recipe_item
from .messages import Observation, StreamRequestOptions
from .refusals import Refusal, busy

logger = logging.getLogger(__name__)

MOST_STREAMS = 16
"""That are open; any number may be files."""

PATIENCE = 10.0
"""Seconds that the end waits for a disk."""

MOST_HANDED_OUT = 4096
"""Problems of a stream whose results it waits for; the oldest are forgotten."""


class KeptStream(BaseModel):
    """A stream as it stands in its file.

    Attributes:
        state: of its problems; those handed out and not observed lead its list `ahead`.
        handed_out: how many these are.
        service: which one wrote it. Where that one opens it again, its clients still work on
            them; where another does, as after a restart, they come again first.
    """

    options: StreamRequestOptions
    state: dict[str, Any]
    handed_out: int
    service: str


class _Stream:
    """A stream, its options, and the problems that it has handed out.

    Attributes:
        users: requests that use it now.
        changed: since it was last written.
    """

    def __init__(self, problems: AsyncProblemStream, options: StreamRequestOptions) -> None:
        self.problems = problems
        self.options = options
        self.handed_out: dict[str, Recipe] = {}
        self.users = 0
        self.changed = False

    def hand_out(self, recipe: Recipe) -> None:
        self.changed = True
        self.handed_out[recipe_key(recipe)] = recipe
        if len(self.handed_out) > MOST_HANDED_OUT:
            del self.handed_out[next(iter(self.handed_out))]

    def kept(self, service: str) -> KeptStream:
        """Write it down. Where nothing is learnt from them, problems handed out are forgotten."""
        waiting = [r.to_json() for r in self.handed_out.values()] if _learns(self.options) else []
        state = self.problems.state_dict()
        state["ahead"] = waiting + state["ahead"]
        return KeptStream(
            options=self.options, state=state, handed_out=len(waiting), service=service
        )

    def resume(self, kept: KeptStream, service: str) -> None:
        """Go on from a file; raises ValueError where it holds no sound state."""
        state = kept.state
        if kept.service == service:
            for recipe in state["ahead"][: kept.handed_out]:
                self.hand_out(read_recipe(recipe))
            state = {**state, "ahead": state["ahead"][kept.handed_out :]}
        self.problems.load_state_dict(state)


def _learns(options: StreamRequestOptions) -> bool:
    """Whether results change what comes next."""
    return (
        options.complexity_mode == ComplexityMode.CURRICULUM.value
        or options.sampling == TaskSampling.SIGNAL.value
    )


class NamedStreams:
    """Opens streams by name, and keeps their state in files.

    Args:
        folder: where `NAME.json` is kept for each stream; without one there are no streams.
        most: streams that may be open; beyond that the one that was used least recently is closed.
    """

    def __init__(
        self, gym: AsyncReasoningGym, folder: Path | None, *, most: int = MOST_STREAMS
    ) -> None:
        self._gym = gym
        self._folder = folder
        self._most = most
        self._service = uuid.uuid4().hex
        self._streams: dict[str, _Stream] = {}  # the last used is last
        self._opening = asyncio.Lock()
        self._disk = DaemonWriter("streams")

    async def next(
        self, name: str, count: int, options: StreamRequestOptions | None
    ) -> list[Problem]:
        """Hand out the next problems of a stream, which `options` begin.

        Raises:
            Refusal: there is no such stream, or it can't be begun; the message says why.
        """
        async with self._used(name, options) as stream:
            if options not in (None, stream.options):
                raise Refusal(
                    409, f"stream {name!r} has other options: leave them out, or take another name"
                )
            problems = []
            for _ in range(count):
                problem = await stream.problems.next()
                stream.hand_out(problem.recipe)
                problems.append(problem)
            return problems

    @asynccontextmanager
    async def _used(
        self, name: str, options: StreamRequestOptions | None
    ) -> AsyncIterator[_Stream]:
        """Open a stream, if it isn't open, and let nobody close it meanwhile."""
        if name not in self._streams:
            async with self._opening:
                if name not in self._streams:
                    self._streams[name] = await self._open(name, options)
        stream = self._streams[name] = self._streams.pop(name)
        stream.users += 1
        try:
            yield stream
        finally:
            stream.users -= 1

    async def _open(self, name: str, options: StreamRequestOptions | None) -> _Stream:
        try:
            kept = self._kept(name)
            options = kept.options if kept else options
            if options is None:
                raise Refusal(404, f"there is no stream {name!r}: send options, which may be {{}}")
            await self._make_place()
            given = options.model_dump(exclude={"tasks"}, exclude_none=True)
            problems = await self._gym.stream(options.tasks, **cast(StreamOptions, given))
            stream = _Stream(problems, options)
            if kept is not None:
                stream.resume(kept, self._service)
        except ValueError as error:  # a ConfigurationError, or a file that holds no stream
            raise Refusal(422, f"stream {name!r} can't be begun: {error}") from None
        return stream

    async def _make_place(self) -> None:
        """Close streams that no request uses until another may be open."""
        while len(self._streams) >= self._most:
            idle = next((name for name, each in self._streams.items() if not each.users), None)
            if idle is None:
                raise busy(
                    409, f"all {self._most} streams that may be open are in use: try again later"
                )
            stream = self._streams[idle]
            try:
                await self._write(idle, stream)
            except UnwritableError as error:
                raise busy(
                    503, f"stream {idle!r} can't be closed to open another: {error}"
                ) from None
            if not stream.users and not stream.changed:  # nobody came while it was written
                stream.problems.close()
                del self._streams[idle]

    def _kept(self, name: str) -> KeptStream | None:
        """Read a stream's file, if there is one; raises ValueError where it holds none."""
        path = self._path(name)
        return KeptStream.model_validate_json(path.read_bytes()) if path.exists() else None

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise Refusal(409, "this service keeps no streams: start it with --streams FOLDER")
        return self._folder / f"{name}.json"

    async def observe(self, name: str, results: Sequence[Observation]) -> None:
        """Let a stream learn from results: all of them, or none where one is refused.

        Raises:
            Refusal: a result is of no problem that the stream has handed out and waits for.
        """
        if name not in self._streams and not self._path(name).exists():
            raise Refusal(404, f"there is no stream {name!r}: ask for its problems first")
        async with self._used(name, None) as stream:
            _learn(name, stream, results)

    async def keep(self) -> None:
        """Write the state of streams that have changed; what can't be written is said."""
        for name, stream in list(self._streams.items()):
            if stream.changed:
                try:
                    await self._write(name, stream)
                except UnwritableError as error:
                    logger.error("The state of stream %s is not kept: %s", name, error)

    async def _write(self, name: str, stream: _Stream) -> None:
        """Write a stream's state; what changes meanwhile is written the next time."""
        text = stream.kept(self._service).model_dump_json()
        stream.changed = False
        try:
            await self._disk.submit(partial(write_whole, self._path(name), text))
        except (UnwritableError, asyncio.CancelledError):
            stream.changed = True
            raise

    async def close(self) -> None:
        """Write what has changed, and drop what was made ahead; a stalled disk ends the wait."""
        patience = PATIENCE  # else what is being written ends with the program
        try:
            await asyncio.wait_for(self.keep(), patience)
        except asyncio.TimeoutError:
            patience = 0
        for stream in self._streams.values():
            stream.problems.close()
        if not self._disk.close(patience=patience):
            logger.error("Streams are not kept: %s does not answer", self._folder)


def _learn(name: str, stream: _Stream, results: Sequence[Observation]) -> None:
    waiting = dict(stream.handed_out)
    learnt = []
    for index, result in enumerate(results):
        recipe = waiting.pop(recipe_key(recipe_item(result.recipe).recipe), None)
        if recipe is None:
            raise Refusal(
                404,
                f"results.{index}.recipe: stream {name!r} waits for no result of it: it was "
                "observed already, is of another stream, or was handed out long ago",
            )
        if result.solved > result.attempts:
            raise Refusal(
                422, f"results.{index}.solved is {result.solved} of {result.attempts} attempts"
            )
        learnt.append((recipe, result))
    for recipe, result in learnt:
        if result.attempts:
            stream.problems.observe(recipe, solved=result.solved, attempts=result.attempts)
    stream.handed_out = waiting
    stream.changed = True
