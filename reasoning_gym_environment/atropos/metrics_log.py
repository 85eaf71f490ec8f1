"""What a run logs to wandb: metrics since the last report, and a table of rollouts."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import wandb

from ..problems.levels import curriculum_metrics
from ..problems.sampler import sampling_metrics
from ..problems.training import TrainingProblems
from ..rollouts.accounting import Statistics
from ..rollouts.progress import signal_lines
from ..util.concurrency import run_in_thread_if_large
from ..util.outages import LogThrottle
from . import output
from .config import ReasoningGymEnvConfig

logger = logging.getLogger(__name__)


class MetricsLog:
    """Gathers the metrics of a run and logs them; failures of wandb are logged, not raised."""

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        statistics: Statistics,
        problems: TrainingProblems,
    ) -> None:
        self._config = config
        self._statistics = statistics
        self._problems = problems
        self._throttle = LogThrottle()
        self._reported_sampling: Counter[str] = Counter()
        self._logged_step = -1

    async def rollout_rows(
        self, tokenizer: Any, scored_data: Mapping[str, Any], item: Any, step: int
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a delivered group in the rollout table."""
        keep = self._config.num_rollouts_per_group_for_logging
        make = functools.partial(
            output.rollout_rows, tokenizer, scored_data, item, keep=keep, step=step
        )
        kept = scored_data["tokens"][: None if keep == -1 else keep]
        return await run_in_thread_if_large(make, tokens=sum(map(len, kept)))

    def take_report(
        self, stats: Mapping[str, Any], categories: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the metrics since the last call, and start counting anew.

        Args:
            stats: the curriculum's state.
            categories: category by task.
        """
        for line in signal_lines(self._statistics.interval, categories.values()):
            logger.debug("Since the last report: %s", line)
        counted = self._statistics.take_report()
        levels = {}
        if stats["curriculum_mode"]:
            levels = curriculum_metrics(stats, categories)
        sampled = self._problems.sampling - self._reported_sampling
        self._reported_sampling = self._problems.sampling.copy()
        return {**counted, **levels, **sampling_metrics(sampled)}

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log metrics at a step, unless wandb is off.

        A second report of one step, as at the end of a run, goes to the next: wandb would overwrite
        the first.
        """
        # Atropos's own would log other keys, with the replica's name.
        if self._config.use_wandb:
            self._logged_step = max(step, self._logged_step + 1)
            with output.surviving_wandb(self._throttle):
                wandb.log(output.grouped(metrics), step=self._logged_step)

    def summarize(self) -> None:
        """Write the outcome of all groups into the summary of the wandb run, if there is one."""
        if wandb.run is None:
            return
        counts = self._statistics.counts
        with output.surviving_wandb(self._throttle):
            wandb.run.summary.update(
                {f"perf/{name}": counts[name] for name in output.CURVES}
            )
