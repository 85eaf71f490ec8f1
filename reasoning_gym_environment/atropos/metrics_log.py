"""What a run logs to wandb: metrics since the last report, timings, and a table of rollouts."""

from __future__ import annotations

import functools
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

import wandb
from atroposlib.utils.metrics import get_std_min_max_avg

from ..problems.levels import curriculum_metrics
from ..problems.sampler import sampling_metrics
from ..problems.training import TrainingProblems
from ..rollouts.accounting import Statistics
from ..rollouts.progress import signal_lines
from ..util.concurrency import run_in_thread_if_large
from . import output
from .config import ReasoningGymEnvConfig

logger = logging.getLogger(__name__)


MOST_TIMINGS = 10_000
"""Of each kind that are kept, since a report may be far away while the trainer takes nothing."""


class Timings:
    """Timings of the loop and of its workers since the last report, named as Atropos's.

    Example:
        >>> timings = Timings()
        >>> timings.add("task_duration", 1.0); timings.add("task_duration", 3.0)
        >>> float(timings.take()["train_perf/task_duration_mean"])
        2.0
    """

    def __init__(self) -> None:
        self._values: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=MOST_TIMINGS)
        )

    def add(self, name: str, value: float) -> None:
        self._values[name].append(value)

    def take(self) -> dict[str, Any]:
        """Return mean, spread and bounds of each kind with two values, and start anew."""
        metrics: dict[str, Any] = {}
        for name, values in self._values.items():
            if len(values) < 2:  # one has no spread: it waits for the next report
                continue
            get_std_min_max_avg(f"train_perf/{name}", list(values), metrics)
            if name in _COUNTED:
                metrics[_COUNTED[name]] = len(values)
            values.clear()
        return metrics


_COUNTED = {
    "succeeded_task_duration": "train/items_sent_to_api",
    "failed_task_duration": "train/items_rejected",
}
"""The kinds whose number Atropos reports as well, and under which name."""


class MetricsLog:
    """Gathers the metrics of a run and logs them; failures of wandb are logged, not raised.

    Attributes:
        timings: of the loop and of its workers.
        rollouts: rows of the rollout table by group, since the last report.
        completion_lengths: trained tokens of each row, since the last report.
    """

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        statistics: Statistics,
        problems: TrainingProblems,
    ) -> None:
        self.timings = Timings()
        self.rollouts: list[Any] = []
        self.completion_lengths: list[int] = []
        self._config = config
        self._statistics = statistics
        self._problems = problems
        self._wandb_failures = output.WandbFailures()
        self._reported_sampling: Counter[str] = Counter()
        self._logged_step = -1

    async def keep_rollouts(
        self, tokenizer: Any, scored_data: Mapping[str, Any], item: Any, step: int
    ) -> None:
        """Keep some rows of a delivered group for the rollout table."""
        if not self._config.use_wandb or tokenizer is None:
            return
        keep = self._config.num_rollouts_per_group_for_logging
        make = functools.partial(
            output.rollout_rows, tokenizer, scored_data, item, keep=keep, step=step
        )
        kept = scored_data["tokens"][: None if keep == -1 else keep]
        self.rollouts.append(
            await run_in_thread_if_large(make, tokens=sum(map(len, kept)))
        )
        del self.rollouts[: -self._config.num_rollouts_to_keep]

    def add_completion_lengths(self, lengths: Iterable[int]) -> None:
        """Keep the numbers of trained tokens of a group's rows."""
        self.completion_lengths.extend(lengths)
        del self.completion_lengths[:-MOST_TIMINGS]

    def rollout_table(self) -> wandb.Table | None:
        """Return the table of the kept rollouts; None without any, or without wandb."""
        if not self._config.use_wandb or not self.rollouts:
            return None
        return output.rollout_table(self.rollouts)

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
        levels = (
            curriculum_metrics(stats, categories) if stats["curriculum_mode"] else {}
        )
        sampled = self._problems.sampling - self._reported_sampling
        self._reported_sampling = self._problems.sampling.copy()
        return {
            **self.timings.take(),
            **self._statistics.take_report(),
            **levels,
            **sampling_metrics(sampled),
        }

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log metrics at a step, unless wandb is off, and start the rollout table anew.

        A second report of one step, as at the end of a run, goes to the next: wandb would overwrite
        the first.
        """
        self.rollouts.clear()
        self.completion_lengths.clear()
        # Atropos's own would log other keys, with the replica's name.
        if self._config.use_wandb:
            self._logged_step = max(step, self._logged_step + 1)
            with self._wandb_failures.logged():
                wandb.log(output.grouped(metrics), step=self._logged_step)

    def summarize(self) -> None:
        """Write the outcome of all groups into the summary of the wandb run, if there is one."""
        if wandb.run is None:
            return
        counts = self._statistics.counts
        with self._wandb_failures.logged():
            wandb.run.summary.update(
                {f"perf/{name}": counts[name] for name in output.CURVES}
            )
