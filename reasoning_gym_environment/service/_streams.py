"""Named streams of problems, whose states outlive the service in files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel, ValidationError

from ..gym.asynchronous import AsyncReasoningGym
from ..gym.streams import AsyncProblemStream
from ..problems.gathering import GroupGathering
from ..problems.options import StreamOptions
from ..records import Problem, Recipe, Score, recipe_key
from ..util.command_line import describe_validation
from ..util.concurrency import DaemonWriter
from ..util.files import UnwritableError, write_whole
from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import Outage
from ._messages import ProblemResult, retry_later
from ._targets import recipe_target

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


class StoredStream(BaseModel):
    """The state of a stream in its file.

    Attributes:
        state: of its problems; its list `ahead` starts with those that await a result.
        handed_out: number of problems that await a result. After a restart they are handed out
            first.
    """

    options: StreamOptions
    state: dict[str, Any]
    handed_out: int

    @classmethod
    def read(cls, path: Path) -> StoredStream:
        """Read a file; raises ValueError if it is invalid, and OSError."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            message = describe_validation(error, cls.model_fields)
            raise ValueError(f"{path.name}: {message}") from None


class _Stream:
    """An open stream; it is opened where its name is used, and closed while it is idle.

    Attributes:
        changed: whether its file is out of date.
    """

    def __init__(self, problems: AsyncProblemStream, options: StreamOptions) -> None:
        self.options = options
        self.changed = False
        self._problems = problems
        self._requests = 0  # that use it now

    @property
    def is_idle(self) -> bool:
        """Whether no request uses it."""
        return not self._requests

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a request that uses it."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    async def next(self, count: int) -> list[Problem]:
        """Return the next problems."""
        problems = []
        for _ in range(count):
            problems.append(await self._problems.next())
            self.changed = True
        return problems

    def sampling(self) -> dict[str, float]:
        """Return its metrics."""
        return self._problems.sampling()

    @property
    def gathering(self) -> GroupGathering:
        """The groups that await scores."""
        return self._problems.gathering

    def report_scores(self, recipe: Recipe, scores: Sequence[Score]) -> None:
        """Take scores of one of its problems."""
        if self._problems.report_scores(recipe, scores):
            self.changed = True

    def observe(self, recipe: Recipe, result: ProblemResult) -> None:
        """Record a result of a problem that awaits it; one without attempts drops the problem."""
        if result.attempts:
            self._problems.observe(
                recipe, solved=result.solved, attempts=result.attempts
            )
        else:
            self.gathering.withdraw(recipe)
        self.changed = True

    async def save(self, write: Callable[[str], Awaitable[None]]) -> None:
        """Write its state; changes during the write come next time."""
        text = self._to_stored().model_dump_json()
        self.changed = False
        try:
            await write(text)
        except (UnwritableError, asyncio.CancelledError):
            self.changed = True
            raise

    def _to_stored(self) -> StoredStream:
        """Return its state, with pending problems only if their results are learned from."""
        awaited = self.gathering.awaited.values() if self.options.learns else ()
        waiting = [each.to_json() for each in awaited]
        state = self._problems.state_dict()
        state["ahead"] = waiting + state["ahead"]
        return StoredStream(options=self.options, state=state, handed_out=len(waiting))

    def restore(self, stored: StoredStream, gathering: GroupGathering | None) -> None:
        """Restore a stored state; ValueError if it is invalid.

        Args:
            gathering: of the stream when this service closed it: its clients still work on the
                problems that were handed out.
        """
        state = stored.state
        if gathering is not None:
            state = {**state, "ahead": state["ahead"][stored.handed_out :]}
        self._problems.load_state_dict(state)
        if gathering is not None:
            self._problems.take_over(gathering)

    def close(self) -> None:
        """Drop all pending problems."""
        self._problems.close()


class NamedStreams:
    """Streams by name, whose states are saved to files.

    Args:
        folder: of the files `NAME.json`; None disables streams.
        most: streams that may be open; beyond that the least recently used one is closed.
        most_files: streams that may exist.
    """

    def __init__(
        self,
        gym: AsyncReasoningGym,
        folder: Path | None,
        *,
        most: int = 16,
        most_files: int = 1024,
    ) -> None:
        self._gym = gym
        self._folder = folder
        self._most = most
        self._most_files = most_files
        self._unwritable = Outage()
        self._streams: dict[str, _Stream] = {}  # the last used is last
        # Groups of closed streams, by the stream's name; the last closed is last.
        self._closed_groups: dict[str, GroupGathering] = {}
        self.pending_scores: dict[str, list[tuple[Recipe, Sequence[Score]]]] = {}
        self._keys: dict[tuple[str, str, str], None] = {}  # the newest is last
        self._opening = asyncio.Lock()
        self._disk = DaemonWriter(folder or Path())

    async def next(
        self, name: str, count: int, options: StreamOptions | None
    ) -> tuple[list[Problem], dict[str, float], str]:
        """Return the next problems of a stream, which `options` start, its metrics and its note."""
        async with self._use(name, options) as stream:
            if options not in (None, stream.options):
                raise HTTPException(
                    409,
                    f"stream {name!r} has other options: omit them, or use another name",
                )
            problems = await stream.next(count)
            return problems, stream.sampling(), stream.options.note

    @asynccontextmanager
    async def _use(
        self, name: str, options: StreamOptions | None
    ) -> AsyncIterator[_Stream]:
        """Open a stream unless it is open, and keep it open inside the context."""
        if name not in self._streams:
            async with self._opening:
                if name not in self._streams:
                    self._streams[name] = await self._open(name, options)
        stream = self._streams[name] = self._streams.pop(name)
        for recipe, scores in self.pending_scores.pop(name, ()):
            stream.report_scores(recipe, scores)
        with stream.in_use():
            yield stream

    async def _open(self, name: str, options: StreamOptions | None) -> _Stream:
        try:
            path = self._path(name)
            stored = StoredStream.read(path) if path.exists() else None
            options = stored.options if stored else options
            if options is None:
                raise HTTPException(
                    404,
                    f"stream {name!r} does not exist: send options, which may be {{}}",
                )
            if stored is None:
                names = {
                    each.stem for each in path.parent.glob("*.json")
                } | self._streams.keys()
                if len(names) >= self._most_files:
                    raise HTTPException(
                        409,
                        f"there are {len(names)} streams, as many as there may be: delete the "
                        "files of finished ones in the folder of --streams",
                    )
            await self._make_room()
            problems = await self._gym.open_stream(options)
            stream = _Stream(problems, options)
            if stored is not None:
                stream.restore(stored, self._closed_groups.pop(name, None))
        except ValueError as error:  # a ConfigurationError, or an invalid file
            raise HTTPException(422, f"cannot start stream {name!r}: {error}") from None
        except OSError as error:
            raise retry_later(
                503, f"cannot read stream {name!r}: {error.strerror}"
            ) from None
        return stream

    async def _make_room(self) -> None:
        """Close idle streams until another one may be open."""
        while len(self._streams) >= self._most:
            idle = next(
                (name for name, each in self._streams.items() if each.is_idle), None
            )
            if idle is None:
                raise retry_later(
                    409, f"all {self._most} open streams are in use: try again later"
                )
            stream = self._streams[idle]
            try:
                await self._write(idle, stream)
            except UnwritableError as error:
                raise retry_later(
                    503, f"cannot close stream {idle!r} to open another: {error}"
                ) from None
            if stream.is_idle and not stream.changed:  # not used while it was written
                stream.close()
                del self._streams[idle]
                if stream.options.learns:
                    self._closed_groups[idle] = stream.gathering
                if len(self._closed_groups) > 256:
                    del self._closed_groups[next(iter(self._closed_groups))]

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise HTTPException(409, "streams are disabled: set --streams FOLDER")
        return self._folder / f"{name}.json"

    async def observe(self, name: str, results: Sequence[ProblemResult]) -> None:
        """Tell a stream results: all of them, or none if one is not of a problem that awaits it."""
        self.require(name)
        async with self._use(name, None) as stream:
            waiting = dict(stream.gathering.awaited)
            observed = []
            for index, result in enumerate(results):
                recipe = waiting.pop(
                    recipe_key(recipe_target(result.recipe).recipe), None
                )
                if recipe is None:
                    raise HTTPException(
                        404,
                        f"results.{index}.recipe: stream {name!r} does not await its result: it "
                        "was observed already, is of another stream, or was handed out long ago",
                    )
                if result.solved > result.attempts:
                    raise HTTPException(
                        422,
                        f"results.{index}.solved must be at most attempts ({result.attempts}), got "
                        f"{result.solved}",
                    )
                observed.append((recipe, result))
            for recipe, result in observed:
                stream.observe(recipe, result)

    def require(self, name: str) -> None:
        """Raise HTTPException 404 if a stream does not exist."""
        if name not in self._streams and not self._path(name).exists():
            raise HTTPException(
                404, f"stream {name!r} does not exist: ask for its problems first"
            )

    def report_scores(
        self,
        name: str,
        recipe: Recipe,
        scores: Sequence[Score],
        *,
        key: str | None = None,
    ) -> None:
        """Take scores of one of a stream's problems; those of others change nothing.

        The stream learns them before it is used or saved again: a client gets its scores even if
        the stream cannot be opened. Those of a problem whose idempotency key came before are
        ignored.
        """
        if key is not None:
            told = (name, recipe_key(recipe), key)
            if told in self._keys:
                return
            self._keys[told] = None
            if len(self._keys) > 8192:
                del self._keys[next(iter(self._keys))]
        self.pending_scores.setdefault(name, []).append((recipe, scores))

    async def save(self) -> None:
        """Write the states of streams that changed; log while they cannot be written."""
        for name in list(self.pending_scores):
            try:
                async with self._use(name, None):
                    pass
            except HTTPException as error:
                if (
                    "Retry-After" not in (error.headers or {})
                    and name in self.pending_scores
                ):
                    del self.pending_scores[name]
                    logger.error("Cannot tell a stream its scores: %s", error.detail)
        for name, stream in list(self._streams.items()):
            if stream.changed:
                try:
                    await self._write(name, stream)
                except UnwritableError as error:
                    self._unwritable.record_failure()
                    logger.error(
                        "Cannot save streams, will retry: %s",
                        error,
                        extra=throttled(self._unwritable.episode),
                    )
                    return  # the next save tries again; others would fail as well
                seconds = self._unwritable.end()
                if seconds is not None:
                    logger.warning("Streams are saved again after %.0f s", seconds)

    async def _write(self, name: str, stream: _Stream) -> None:
        """Write a stream's file off the event loop; raises UnwritableError."""
        path = self._path(name)
        await stream.save(
            lambda text: self._disk.submit(partial(write_whole, path, text))
        )

    async def close(self) -> None:
        """Save streams that changed and close all; give up on a disk that does not respond."""
        patience = 5.0
        try:
            await asyncio.wait_for(self.save(), patience)
        except asyncio.TimeoutError:
            patience = 0
        for stream in self._streams.values():
            stream.close()
        if self._disk.close(patience=patience):
            logger.error(
                "Cannot persist streams: disk not responding (%s)", self._folder
            )
