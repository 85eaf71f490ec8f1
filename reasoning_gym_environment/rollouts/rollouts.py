"""One group of rollouts: request completions, score them, save the group to disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

from ..inference.client import InferenceClient
from ..inference.dialects import SamplingParams
from ..records import Completion, GroupResult, Problem
from ..scoring.grading import ScoringSettings, Verifier, grade
from ..storage.dumps import DumpWriter, dump_kind
from ..storage.rows import StoredGroup


class GroupObserver(Protocol):
    """A part of a run that learns from finished training groups."""

    def group_finished(self, group: GroupResult) -> None:
        """Take note of a scored group."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSettings:
    """Which training groups are saved to disk.

    Attributes:
        dump_rollouts, dump_failed_rollouts: save successful groups; save all-zero groups.
        dump_all_rollouts: save all groups.
        rollout_save_score_threshold: a group with a reward above it is successful.
    """

    dump_rollouts: bool
    dump_failed_rollouts: bool
    rollout_save_score_threshold: float
    dump_all_rollouts: bool = False


class Rollouts:
    """Turns problems into scored groups.

    Args:
        dumps: the writer of training groups.
    """

    def __init__(
        self,
        client: InferenceClient,
        verifier: Verifier,
        dumps: DumpWriter,
        *,
        settings: RolloutSettings,
        scoring: ScoringSettings,
    ) -> None:
        self._client = client
        self._verifier = verifier
        self._dumps = dumps
        self._settings = settings
        self._scoring = scoring

    async def sample(
        self, problem: Problem, *, n: int, length_limit: int, sampling: SamplingParams
    ) -> GroupResult:
        """Return a scored group of `n` completions.

        Args:
            max_length: tokens of prompt and completion.

        Raises:
            InferenceError: the servers returned no completions.
        """
        completions = await self._client.sample(
            problem.question, n=n, length_limit=length_limit, sampling=sampling
        )
        return await self.score(problem, completions)

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score completions of one problem, in their order."""
        return await grade(problem, completions, self._verifier, self._scoring)

    async def save(self, group: GroupResult, identity: Mapping[str, Any]) -> None:
        """Dump a training group if the settings ask for it; on disk when this returns.

        Args:
            identity: the run's part of the row.
        """
        kind = dump_kind(
            group.rewards,
            threshold=self._settings.rollout_save_score_threshold,
            successful=self._settings.dump_rollouts,
            failed=self._settings.dump_failed_rollouts,
            everything=self._settings.dump_all_rollouts,
        )
        if kind is not None:
            await self._dumps.write(kind, self.row(group, identity).to_json())

    def row(self, group: GroupResult, identity: Mapping[str, Any]) -> StoredGroup:
        """Return the group as a row of dumps and evaluation samples, with the time in UTC."""
        prompt = self._client.prompt(group.problem.question)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        run = {**identity, "scoring": self._scoring.to_json(), "time": now}
        return StoredGroup.from_result(group, prompt.messages, run)
