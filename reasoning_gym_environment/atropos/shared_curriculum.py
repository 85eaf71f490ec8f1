"""One curriculum for all replicas of a run: a stream of the reward service.

`ProblemSource` holds all that such a curriculum changes in the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import ConfigurationError
from ..problems.levels import curriculum_metrics
from ..problems.training import TrainingProblems
from ..records import GroupResult, Problem, Recipe, recipe_key
from ..service.client import RewardClient, ServiceUnavailableError, split_stream_url
from ..settings import EnvironmentSettings
from ..tasks.recipes import read_recipe
from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import Outage, UnreachableError

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

BATCH = 8
"""Problems of one request."""

_MAX_PENDING = 4096
"""Results that may wait for the service, and problems for a result; the oldest are dropped."""


class SharedCurriculum:
    """Asks a stream for problems and tells it their results.

    Problems are fetched in the background. While the service does not reply, there are none, and
    results wait. The options of the stream are the same for all replicas.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any],
        counts: Counter[str],
        *,
        pause: float = 10.0,
    ) -> None:
        address, self._stream = split_stream_url(url)
        self._client = RewardClient(address, patience=0.0, timeout=10.0)
        self._url = f"{self._client.url}/{self._stream}"
        self._options = dict(options)
        self._counts = counts
        self._ahead: deque[tuple[Recipe, bool]] = deque()
        # Keys in the order in which they were asked.
        self._awaited: dict[str, None] = {}
        self._results: deque[tuple[Recipe, int, int]] = deque(maxlen=_MAX_PENDING)
        self._outage = Outage()
        # Seconds before the next request to a service that did not reply.
        self._pause = pause
        self._retry_at = 0.0
        self._fetching: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask for the first problems.

        Raises:
            ConfigurationError: the service refuses.
            UnreachableError: it is silent.
        """
        try:
            await self._fetch()
        except ConfigurationError as error:
            raise ConfigurationError(f"curriculum_url {self._url}: {error}") from error
        except ServiceUnavailableError as error:
            raise UnreachableError(f"curriculum_url {self._url}: {error}") from error

    async def next(self) -> tuple[Recipe, bool] | None:
        """Return the next problem, and whether it is asked again; None if there is none.

        Waits a second for a reply, once, and only if the service has replied so far.
        """
        if not self._ahead:
            idle = self._fetching is None or self._fetching.done()
            if idle and time.monotonic() >= self._retry_at:
                self._fetching = asyncio.create_task(self._fetch_again())
                if not self._outage:
                    await asyncio.wait({self._fetching}, timeout=1.0)
        if not self._ahead:
            return None
        recipe, replayed = self._ahead.popleft()
        self._awaited[recipe_key(recipe)] = None
        if len(self._awaited) > _MAX_PENDING:
            del self._awaited[next(iter(self._awaited))]
        self._counts["curriculum/shared_problems"] += 1
        return recipe, replayed

    async def _fetch_again(self) -> None:
        try:
            await self._fetch()
        except (ConfigurationError, ServiceUnavailableError) as error:
            self._record_failure(error)

    async def _fetch(self) -> None:
        reply = await asyncio.to_thread(
            self._client.problems, self._stream, BATCH, self._options
        )
        try:
            for problem in reply:
                self._ahead.append(
                    (read_recipe(problem["recipe"]), problem["asked_again"])
                )
        except ValueError as error:
            raise ConfigurationError(
                f"invalid problem in the reply: {error}"
            ) from error
        seconds = self._outage.end()
        if seconds is not None:
            logger.warning("The shared curriculum is back after %.0f s", seconds)

    def _record_failure(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + self._pause
        self._outage.record_failure()
        logger.warning(
            "The shared curriculum at %s fails, using this replica's own: %s",
            self._url,
            error,
            extra=throttled(self._outage.episode),
        )

    def withdraw(self, recipe: Recipe) -> None:
        """Tell the stream that a problem can't be asked here."""
        self._report_result(recipe, solved=0, attempts=0)

    def group_finished(self, group: GroupResult) -> None:
        """Tell the stream the result of its problem, now or when it replies again."""
        self._report_result(
            group.problem.recipe, solved=group.solved, attempts=len(group.scored)
        )

    def _report_result(self, recipe: Recipe, *, solved: int, attempts: int) -> None:
        key = recipe_key(recipe)
        if key not in self._awaited:
            return
        del self._awaited[key]
        self._results.append((recipe, solved, attempts))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        """Send results until none is left."""
        while self._results:
            result = recipe, solved, attempts = self._results[0]
            try:
                await asyncio.to_thread(
                    self._client.observe,
                    self._stream,
                    recipe.to_json(),
                    solved=solved,
                    attempts=attempts,
                )
            except ServiceUnavailableError as error:
                self._record_failure(error)
                await asyncio.sleep(self._pause)
                continue
            except ConfigurationError as error:  # the service has forgotten the problem
                self._counts["curriculum/shared_results_refused"] += 1
                logger.debug("A result was refused: %s", error)
            if self._results and self._results[0] is result:
                self._results.popleft()

    async def close(self) -> None:
        """Give the last results a few seconds to reach the service."""
        if self._fetching is not None:
            self._fetching.cancel()
        if self._sending is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._sending, 5.0)
        if self._results:
            logger.warning("%d results did not reach %s", len(self._results), self._url)


class ProblemSource:
    """A replica's training problems: those of the shared curriculum, if any, or its own.

    Args:
        problems: the replica's own stream.
        shared: the curriculum of all replicas; None if each has its own.
    """

    def __init__(
        self, problems: TrainingProblems, shared: SharedCurriculum | None
    ) -> None:
        self._problems = problems
        self._shared = shared

    async def start(self) -> None:
        """Reach the shared curriculum; raises as `SharedCurriculum.start`."""
        if self._shared is not None:
            await self._shared.start()

    async def next(self, has_room: Callable[[Problem], Awaitable[bool]]) -> Problem:
        """Return the next problem; see `TrainingProblems.next`."""
        shared = await self._shared.next() if self._shared is not None else None
        if self._shared is not None and shared is not None:
            recipe, replayed = shared
            problem = await self._problems.make(recipe, has_room)
            if problem is not None:
                return replace(problem, replayed=replayed)
            self._shared.withdraw(recipe)
        return await self._problems.next(has_room)

    def group_finished(self, group: GroupResult) -> None:
        """Teach the replica's own curriculum, and the shared one."""
        self._problems.group_finished(group)
        if self._shared is not None:
            self._shared.group_finished(group)

    def level_metrics(
        self, stats: Mapping[str, Any], categories: Mapping[str, str]
    ) -> dict[str, float]:
        """Return wandb's metrics of the levels; the service has those of a shared curriculum."""
        if not stats["curriculum_mode"] or self._shared is not None:
            return {}
        return curriculum_metrics(stats, categories)

    async def close(self) -> None:
        """Drop pending problems, and let the last results reach the shared curriculum."""
        if self._shared is not None:
            await self._shared.close()
        self._problems.close()


def shared_curriculum(
    config: EnvironmentSettings, counts: Counter[str]
) -> SharedCurriculum | None:
    """Return the configured curriculum of all replicas, None if there is none."""
    if config.curriculum_url is None:
        return None
    options = {
        **config.task_options(),
        "tasks": config.include_tasks,
        "seed": config.seed,
        "group_size": config.group_size,
        "replica": "shared",
    }
    return SharedCurriculum(config.curriculum_url, options, counts)
