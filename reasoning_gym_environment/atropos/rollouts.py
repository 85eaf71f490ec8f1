"""One group: asked for, scored, counted, dumped, and handed on in Atropos's form."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ..config import ReasoningGymEnvConfig, scoring_settings
from ..evaluation.run import SampleError
from ..records import Completion, GroupResult, Problem
from ..rollouts.statistics import Statistics
from ..scoring.grading import grade
from ..storage.dumps import DumpWriter, dump_kind
from ..storage.rows import StoredGroup
from ..workers.pool import TaskPool
from .inference import Inference, InferenceError, Sampling
from .scored_data import to_scored_data_group

logger = logging.getLogger(__name__)


class Rollouts:
    """Turns problems into scored groups."""

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        inference: Inference,
        pool: TaskPool,
        dumps: DumpWriter,
        statistics: Statistics,
    ) -> None:
        self._config = config
        self._inference = inference
        self._pool = pool
        self._dumps = dumps
        self._statistics = statistics

    async def train(self, problem: Problem, *, max_length: int) -> GroupResult:
        """A group of completions in training, scored.

        Args:
            max_length: tokens of a row.

        Raises:
            InferenceError: the servers gave no completions.
        """
        completions = await self._sample(
            problem, self._config.group_size, self._training_sampling(), max_length
        )
        return await self.score(problem, completions)

    def _training_sampling(self) -> Sampling:
        config = self._config
        return Sampling(temperature=config.temperature, top_p=config.top_p, split="train")

    async def hand_over(
        self, group: GroupResult, *, categories: Mapping[str, str], identity: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """A group for the trainer, on disk before it is returned; None when all is unscored.

        Args:
            categories: category by task, for the statistics.
            identity: what every dumped row says of its run.
        """
        config = self._config
        self._statistics.add_group(group, categories)
        kind = dump_kind(
            group.rewards,
            threshold=config.rollout_save_score_threshold,
            successful=config.dump_rollouts,
            failed=config.dump_failed_rollouts,
        )
        if kind is not None:
            await self._dumps.write(kind, self.row(group, identity).to_json())
        if not group.scored:
            self._statistics.counts["groups/unscored"] += 1
            return None
        sampling = self._training_sampling()
        return to_scored_data_group(
            group,
            self._inference.prompt(group.problem.question).messages,
            generation_params={"temperature": sampling.temperature, "top_p": sampling.top_p},
            mask_truncated=config.mask_too_long_completions,
            include_messages=config.include_messages,
        )

    async def evaluate(self, problem: Problem, *, max_length: int) -> GroupResult:
        """`eval_attempts` completions at the evaluation temperature, scored.

        Raises:
            SampleError: the servers gave none, after Atropos's own retries.
        """
        sampling = Sampling(temperature=self._config.eval_temperature, top_p=1.0, split="eval")
        try:
            completions = await self._sample(
                problem, self._config.eval_attempts, sampling, max_length
            )
        except InferenceError as error:
            self._statistics.counts["evaluation/failed_requests"] += 1
            raise SampleError(str(error)) from error
        return await self.score(problem, completions)

    async def _sample(
        self, problem: Problem, n: int, sampling: Sampling, max_length: int
    ) -> list[Completion]:
        return await self._inference.sample(
            problem.question, n=n, max_length=max_length, sampling=sampling
        )

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score completions of one problem; every completion keeps its place."""
        return await grade(problem, completions, self._pool, scoring_settings(self._config))

    def row(self, group: GroupResult, identity: Mapping[str, Any]) -> StoredGroup:
        """The group's row in dumps and evaluation samples, with the time in UTC."""
        prompt = self._inference.prompt(group.problem.question)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        run = {**identity, "scoring": scoring_settings(self._config).to_json(), "time": now}
        return StoredGroup.from_result(group, prompt.messages, run)
