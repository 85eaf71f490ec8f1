"""Named streams of problems, whose state outlives the service where it is given a folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from ..gym.asynchronous import AsyncReasoningGym
from ..gym.checks import key_of
from ..gym.stream import AsyncProblemStream, StreamOptions
from ..records import Problem
from ..util.files import UnwritableError, write_whole
from ..util.side_thread import SideThread
from .items import recipe_item
from .messages import Observation, StreamRequestOptions
from .refusals import Refusal

logger = logging.getLogger(__name__)

MOST_STREAMS = 16
PATIENCE = 10.0
"""Seconds that the end waits for a disk."""

MOST_HANDED_OUT = 4096
"""Problems of a stream whose results it waits for; the oldest are forgotten."""


class KeptStream(BaseModel):
    """A stream as it stands in its file; problems handed out and not observed come again first."""

    options: StreamRequestOptions
    state: dict[str, Any]


class _Stream:
    """A stream, its options, and the problems that it has handed out."""

    def __init__(self, stream: AsyncProblemStream, options: StreamRequestOptions) -> None:
        self.problems = stream
        self.options = options
        self.handed_out: dict[str, Problem] = {}
        self.changed = False

    def hand_out(self, problem: Problem) -> None:
        self.changed = True
        self.handed_out[key_of(problem.recipe)] = problem
        if len(self.handed_out) > MOST_HANDED_OUT:
            del self.handed_out[next(iter(self.handed_out))]

    def kept(self) -> KeptStream:
        state = self.problems.state_dict(list(self.handed_out.values()))
        return KeptStream(options=self.options, state=state)


class NamedStreams:
    """Opens streams by name, and keeps their state in files.

    Args:
        folder: where `NAME.json` is kept for each stream; None keeps nothing.
        most: streams that may be open.
    """

    def __init__(
        self, gym: AsyncReasoningGym, folder: Path | None, *, most: int = MOST_STREAMS
    ) -> None:
        self._gym = gym
        self._folder = folder
        self._most = most
        self._streams: dict[str, _Stream] = {}
        self._opening = asyncio.Lock()
        self._disk = SideThread("streams")

    async def next(
        self, name: str, count: int, options: StreamRequestOptions | None
    ) -> list[Problem]:
        """Hand out the next problems of a stream, which `options` begin.

        Raises:
            Refusal: there is no such stream, or it can't be begun; the message says why.
        """
        stream = self._streams.get(name)
        if stream is None:
            async with self._opening:
                stream = self._streams.get(name) or await self._open(name, options)
        if options not in (None, stream.options):
            raise Refusal(
                409, f"stream {name!r} has other options: leave them out, or take another name"
            )
        problems = []
        for _ in range(count):
            problem = await stream.problems.next()
            stream.hand_out(problem)
            problems.append(problem)
        return problems

    async def _open(self, name: str, options: StreamRequestOptions | None) -> _Stream:
        if len(self._streams) == self._most:
            raise Refusal(
                409,
                f"there are {self._most} streams, and no more may be: use one of "
                f"{', '.join(sorted(self._streams))}, or another service",
            )
        try:
            kept = self._kept(name)
            options = options or (kept.options if kept else None)
            if options is None:
                raise Refusal(404, f"there is no stream {name!r}: send options, which may be {{}}")
            given = options.model_dump(exclude={"tasks"}, exclude_none=True)
            problems = await self._gym.stream(options.tasks, **cast(StreamOptions, given))
            if kept is not None:
                problems.load_state_dict(kept.state)
        except ValueError as error:  # a ConfigurationError, or a file that holds no stream
            raise Refusal(422, f"stream {name!r} can't be begun: {error}") from None
        stream = self._streams[name] = _Stream(problems, options)
        return stream

    def _kept(self, name: str) -> KeptStream | None:
        """Read a stream's file, if there is one; raises ValueError where it holds none."""
        path = self._path(name)
        if path is None or not path.exists():
            return None
        return KeptStream.model_validate_json(path.read_bytes())

    def _path(self, name: str) -> Path | None:
        return self._folder / f"{name}.json" if self._folder else None

    def observe(self, name: str, results: Sequence[Observation]) -> None:
        """Let a stream learn from results: all of them, or none where one is refused.

        Raises:
            Refusal: a result is of no problem that the stream has handed out and waits for.
        """
        if name not in self._streams:
            raise Refusal(404, f"there is no stream {name!r}: ask for its problems first")
        stream = self._streams[name]
        waiting = dict(stream.handed_out)
        learnt = []
        for index, result in enumerate(results):
            problem = waiting.pop(key_of(recipe_item(result.recipe).recipe), None)
            if problem is None:
                raise Refusal(
                    404,
                    f"results.{index}.recipe: stream {name!r} waits for no result of it: it was "
                    "observed already, is of another stream, or was handed out long ago",
                )
            if result.solved > result.attempts:
                raise Refusal(
                    422, f"results.{index}.solved is {result.solved} of {result.attempts} attempts"
                )
            learnt.append((problem, result))
        for problem, result in learnt:
            if result.attempts:
                stream.problems.observe(problem, solved=result.solved, attempts=result.attempts)
        stream.handed_out = waiting
        stream.changed = True

    async def keep(self) -> None:
        """Write the state of streams that have changed; what can't be written is said."""
        for name, stream in list(self._streams.items()):
            path = self._path(name)
            if path is None or not stream.changed:
                continue
            stream.changed = False
            try:
                await self._disk.submit(partial(write_whole, path, stream.kept().model_dump_json()))
            except UnwritableError as error:
                stream.changed = True
                logger.error("The state of stream %s is not kept: %s", name, error)

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
