"""One group of rollouts: requested, scored and saved; and pauses while groups are lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..inference.client import InferenceClient
from ..inference.dialects import SamplingParams
from ..inference.errors import InferenceError
from ..records import Completion, GroupResult, Problem
from ..scoring.grading import ScoringSettings, Verifier, grade
from ..storage.dumps import DumpKind, DumpWriter, dump_kind, utc_now
from ..storage.rows import StoredGroup
from ..util.outages import Outage

logger = logging.getLogger(__name__)


class Rollouts:
    """Turns problems into scored groups.

    Args:
        dumps: the writer of training groups.
        dumped_kinds: the kinds of groups to save.
        save_threshold: a group with a reward above it is successful.
    """

    def __init__(
        self,
        client: InferenceClient,
        verifier: Verifier,
        dumps: DumpWriter,
        *,
        scoring: ScoringSettings,
        dumped_kinds: Collection[DumpKind],
        save_threshold: float,
    ) -> None:
        self._client = client
        self._verifier = verifier
        self._dumps = dumps
        self._scoring = scoring
        self._dumped_kinds = dumped_kinds
        self._save_threshold = save_threshold
        self._saved = 0

    async def sample(
        self,
        problem: Problem,
        *,
        n: int,
        length_limit: int,
        sampling: SamplingParams,
    ) -> GroupResult:
        """Return a scored group of `n` completions of limited length; raises InferenceError."""
        completions = await self._client.sample(
            problem.question,
            n=n,
            length_limit=length_limit,
            sampling=sampling,
        )
        return await self.score(problem, completions)

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score completions of one problem, in their order."""
        return await grade(problem, completions, self._verifier, self._scoring)

    def waiting(self) -> str:
        """Return what the requests wait for; empty if nothing holds them back."""
        return self._client.failover.waiting

    async def save(self, group: GroupResult, identity: Mapping[str, Any]) -> None:
        """Dump a training group if its kind is dumped; on disk when this returns."""
        self._saved += 1
        kind = dump_kind(group.rewards, threshold=self._save_threshold)
        if kind in self._dumped_kinds:
            row = self.row(group, {**identity, "number": self._saved})
            await self._dumps.write(kind, row.to_json())

    def row(self, group: GroupResult, identity: Mapping[str, Any]) -> StoredGroup:
        """Return the group as a row of dumps and evaluation samples, with the time in UTC."""
        prompt = self._client.prompt(group.problem.question)
        run = {**identity, "scoring": self._scoring.to_json(), "time": utc_now()}
        return StoredGroup.from_result(group, prompt.messages, run)


class FailureBackoff:
    """Pauses between requests while inference fails, with rate-limited logging."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = self.permanent = 0  # groups lost since the last success; for good
        self.pause = 0.0  # seconds between two requests while inference fails, else 0
        self._clock = clock
        self._since = self._increased = self._next = 0.0
        self._log = Outage(clock)  # never ends: one line a minute, however often inference is back
        self._logged = False

    async def wait(self) -> None:
        """Wait until a group may be requested: while inference fails, one at a time."""
        while self.pause and self._clock() < self._next:
            await asyncio.sleep(0.5)
        self._next = self._clock() + self.pause  # the others wait for the result of this one

    def record_failure(self, task: str, error: InferenceError) -> None:
        """Count a lost group; the pause doubles once for all groups that were in flight."""
        now = self._clock()
        if not self.failures:
            self._since = now
        self.failures += 1
        self.permanent += not error.is_transient
        if not self.pause or now - self._increased >= self.pause:
            self._increased = now
            self.pause = min(60.0, max(1.0, 2 * self.pause))
        self._next = now + self.pause
        self._log.record_failure()
        if self._log.should_log:
            self._logged = True
            logger.warning("Lost a group of %s, %d in a row: %s", task, self.failures, error)

    def group_finished(self, group: GroupResult | None = None) -> None:
        """Reset after a success, which is logged if a failure was."""
        if self._logged:
            seconds = self._clock() - self._since
            groups = "1 group" if self.failures == 1 else f"{self.failures} groups"
            logger.warning("Inference is back after %.0f s, %s lost", seconds, groups)
        self.failures = self.permanent = 0
        self.pause = 0.0
        self._logged = False
