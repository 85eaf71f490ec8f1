"""The demo: real API server and environment, a stand-in trainer, a simulated policy over HTTP."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from transformers import AutoTokenizer

from ..atropos.config import ReasoningGymEnvConfig
from ..reasoning_gym_environment import ReasoningGymEnv
from ..records import FORMAT_FAILURES, Problem, Signal, Status
from ..rollouts.progress import signal_line
from ..rollouts.values import Mean, Means
from ..util.values import table
from .policy import Learner, SimulatedPolicy, spread_skills
from .server import PolicyServer, build_tokenizer
from .trainer import ENDLESS, ApiServer, StatusLine, Trainer


class DemoEnv(ReasoningGymEnv):
    """The environment, with a learner that decides how well the policy solves each problem.

    Each group with signal improves the learner in its task.
    """

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        server_configs: Sequence[APIServerConfig],
        policy: SimulatedPolicy,
    ) -> None:
        super().__init__(config, server_configs)
        self._policy = policy
        self._heights: dict[str, int] = {}
        self._learner = Learner({}, seed=config.seed)

    async def setup(self) -> None:
        await super().setup()
        ladders = await self.run.parts.pool.ladders()
        self._heights = {task: len(ladders[task].levels) for task in self.categories}
        skills = spread_skills(self._heights, self.config.seed)
        self._learner = Learner(skills, seed=self.config.seed, gain=0.01)

    async def get_next_item(self) -> Problem:
        problem = await super().get_next_item()
        recipe = problem.recipe
        height = self._heights[recipe.task]
        self._policy.learn(problem, self._learner.solve_probability(recipe, height))
        return problem

    async def collect_trajectories(
        self, item: Problem
    ) -> tuple[dict[str, Any], list[Any]]:
        group, backlog = await super().collect_trajectories(item)
        has_signal = len({*group["scores"]}) > 1
        self._learner.after_group(item.recipe.task, mixed=has_signal)
        return group, backlog


async def run_demo(
    *,
    seconds: float,
    server_type: str,
    group_size: int,
    data_dumps_dir: Path,
    seed: int,
) -> DemoReport:
    """Run everything for some seconds of serving, counted from the first group.

    Args:
        server_type: of Atropos's inference client.
        seed: of problems and policy.

    Raises:
        MalformedGroupError: the trainer received a group that it can't use.
        RuntimeError: a part did not start.
    """
    dumps = set(data_dumps_dir.glob("*.jsonl"))
    policy = SimulatedPolicy(seed)
    async with AsyncExitStack() as stack:
        folder = build_tokenizer(
            Path(stack.enter_context(tempfile.TemporaryDirectory()))
        )
        tokenizer = AutoTokenizer.from_pretrained(folder)
        api = await stack.enter_async_context(ApiServer())
        server = await stack.enter_async_context(PolicyServer(policy, tokenizer))
        trainer = Trainer.for_groups(
            api.url, group_size=group_size, checkpoint_dir=folder
        )
        config = ReasoningGymEnvConfig(
            tokenizer_name=str(folder),
            rollout_server_url=api.url,
            group_size=group_size,
            max_token_length=16384,
            total_steps=ENDLESS,
            steps_per_eval=0,
            complexity_mode="curriculum",
            sampling="signal",
            use_wandb=False,
            wandb_name="demo",
            seed=seed,
            dump_all_rollouts=True,
            data_dumps_dir=str(data_dumps_dir),
            suppress_base_env_logs=True,
        )
        of_server = APIServerConfig(
            server_type=server_type,
            base_url=server.url if server_type == "trl" else f"{server.url}/v1",
            model_name="simulated",
            api_key="x",
        )
        env = DemoEnv(config, [of_server], policy)
        served = await _serve(env, trainer, seconds)
    return DemoReport(
        seconds=served,
        means=env.statistics.total,
        counts=env.statistics.counts,
        curriculum=env.get_curriculum_stats(),
        batches=trainer.batches,
        pulled=trainer.groups,
        dumps=tuple(sorted(set(data_dumps_dir.glob("*.jsonl")) - dumps)),
    )


async def _serve(env: DemoEnv, trainer: Trainer, seconds: float) -> float:
    """Serve until the time is over or a job fails; return the seconds since the first group."""
    jobs = [asyncio.create_task(job) for job in (trainer.run(), env.env_manager())]
    progress = StatusLine()
    launched = time.monotonic()
    start = served = 0.0
    done: set[asyncio.Task[Any]] = set()
    try:
        while not done and served < seconds:
            done, _ = await asyncio.wait(
                jobs, timeout=1.0, return_when=asyncio.FIRST_COMPLETED
            )
            elapsed = time.monotonic() - launched
            if env.is_set_up and env.statistics.counts["groups/collected"]:
                served = elapsed - start
                progress.show(
                    progress_line(served, env.statistics.total, env.statistics.counts)
                )
            elif elapsed > 120.0:
                raise RuntimeError("no group within 120 seconds; see the log")
            else:
                start = elapsed
                progress.show(f"{elapsed:4.0f} s  starting")
        for job in done:
            job.result()
        return served
    finally:
        progress.close()
        for job in jobs:
            job.cancel()
        await asyncio.wait(jobs)
        await env.close()


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The results of one demo.

    Attributes:
        seconds: of serving, without the start.
        means: over the whole run, named as in `rollouts.values`.
        counts: of the environment's events.
        curriculum: the statistics of the curriculum at the end.
        batches, pulled: batches and groups that the trainer received.
        dumps: the files that were written.
    """

    seconds: float
    means: Means
    counts: Mapping[str, int]
    curriculum: Mapping[str, Any]
    batches: int
    pulled: int
    dumps: tuple[Path, ...]

    @property
    def succeeded(self) -> bool:
        """Whether groups were collected, sent and received by the trainer."""
        return all(
            (self.counts["groups/collected"], self.counts["groups/sent"], self.pulled)
        )


def progress_line(seconds: float, means: Means, counts: Mapping[str, int]) -> str:
    collected = counts["groups/collected"]
    return (
        f"{seconds:4.0f} s  {collected:5d} groups, {collected / max(seconds, 1.0):.1f}/s  "
        f"{_percent(means['solved'])} solved  {counts['groups/accepted']:5d} with signal  "
        f"{counts['groups/sent']:5d} sent"
    )


def render(report: DemoReport, log: Path) -> str:
    """Return the summary as text."""
    return table(list(_lines(report, log)))


def _lines(report: DemoReport, log: Path) -> Iterator[Sequence[str]]:
    counts = report.counts
    means = report.means
    yield ""
    yield f"{report.seconds:.0f} seconds of serving"
    yield f"  groups collected  {counts['groups/collected']:6d}"
    yield f"  with signal       {counts['groups/accepted']:6d}  their scores differ"
    yield f"  groups sent       {counts['groups/sent']:6d}  to the API server"
    yield f"  groups pulled     {report.pulled:6d}  by the trainer, in {report.batches} batches"
    folders = sorted({str(path.parent.resolve()) for path in report.dumps})
    yield f"  dump files        {len(report.dumps):6d}  in {', '.join(folders) or 'no folder'}"
    yield f"  log                       {log.resolve()}"
    yield ""
    yield f"Of {means['truncated'].count} rollouts"
    for status in Status:
        share = _share(means, status)
        if share:
            yield f"  {status.value.replace('_', ' '):17} {share:6.1%}"
    failures = sum(_share(means, status) for status in FORMAT_FAILURES)
    yield f"  format failures   {failures:6.1%}  no answer, or several"
    yield f"  truncated         {_percent(means['truncated'])}"
    stats = report.curriculum
    yield ""
    yield f"Of {signal_line(means)}"
    yield (
        f"Curriculum: {stats['tasks_with_adjustments']} of {stats['total_tasks_tracked']} tasks "
        f"moved, {counts['curriculum/moves']} times; mean difficulty "
        f"{stats['average_complexity']:.2f} (from 0, easiest, to 1)"
    )

    def distance(at: Mapping[str, float]) -> float:
        """Return how far a task is from the middle of its ladder, where it began."""
        return abs(at["difficulty"] - 0.5) if at["height"] > 1 else 0.0

    details = stats["task_details"].items()
    for task, at in sorted(details, key=lambda detail: -distance(detail[1]))[:6]:
        yield (
            f"  {task:26} from level {(at['height'] - 1) / 2:4.1f} to {at['level']:4.1f} "
            f"of {at['height'] - 1}, in {at['groups']} groups"
        )
    yield ""
    yield ["", "solved", "", "rollouts", "groups with signal"]
    for name, count in means.counts().items():
        kind, _, scope_name = name.partition("/")
        category, _, measure = scope_name.partition("/")
        if (kind, measure) in (("category", "solved"), ("solved", "")):
            title, scope = (
                (f"  {category}", f"category/{category}/")
                if scope_name
                else ("all", "")
            )
            bar = "#" * round(means[name].value * 20)
            signal = means[f"{scope}groups/{Signal.MIXED.value}"]
            yield [title, _percent(means[name]), bar, str(count), _percent(signal)]


def _share(means: Means, status: Status) -> float:
    mean = means[f"status/{status.value}"]
    return mean.value if mean.count else 0.0


def _percent(mean: Mean) -> str:
    return f"{mean.value:6.1%}" if mean.count else "     -"
