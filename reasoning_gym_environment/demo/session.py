"""The demo: real API server and environment, a stand-in trainer, a simulated policy over HTTP."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from transformers import AutoTokenizer

from ..atropos.config import ReasoningGymEnvConfig
from ..problems.levels import ComplexityMode
from ..problems.sampler import TaskSampling
from ..reasoning_gym_environment import ReasoningGymEnv
from ..records import Problem
from .policy import Learner, SimulatedPolicy, spread_skills
from .report import DemoReport, Progress, progress_line
from .server import PolicyServer
from .tokenizer import build_tokenizer
from .trainer import ENDLESS, ApiServer, Trainer

_GAIN = 0.01
"""Ability that one group with signal adds, as a share of the ladder."""

_MAX_TOKEN_LENGTH = 16384
_START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """The settings of one demo.

    Attributes:
        seconds: of serving, counted from the first group.
        server_type: of Atropos's inference client.
        seed: of problems and policy.
    """

    seconds: float
    server_type: Literal["openai", "vllm", "sglang", "trl"]
    group_size: int
    data_dumps_dir: Path
    seed: int


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
        ladders = await self._pool.ladders()
        self._heights = {task: len(ladders[task].levels) for task in self.categories}
        skills = spread_skills(self._heights, self.config.seed)
        self._learner = Learner(skills, seed=self.config.seed, gain=_GAIN)

    async def get_next_item(self) -> Problem:
        problem = await super().get_next_item()
        recipe = problem.recipe
        height = self._heights[recipe.task]
        self._policy.learn(problem, self._learner.solve_probability(recipe, height))
        return problem

    async def collect_trajectories(self, item: Problem) -> tuple[dict[str, Any] | None, list[Any]]:
        group, backlog = await super().collect_trajectories(item)
        if group is not None:
            self._learner.after_group(item.recipe.task, mixed=len({*group["scores"]}) > 1)
        return group, backlog


async def run_demo(settings: DemoSettings) -> DemoReport:
    """Run everything for `settings.seconds` of serving.

    Raises:
        MalformedGroupError: the trainer received a group that it can't use.
        RuntimeError: a part did not start.
    """
    dumps = set(settings.data_dumps_dir.glob("*.jsonl"))
    policy = SimulatedPolicy(settings.seed)
    async with AsyncExitStack() as stack:
        folder = build_tokenizer(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        api = await stack.enter_async_context(ApiServer())
        server = await stack.enter_async_context(PolicyServer(policy, tokenizer))
        trainer = Trainer.for_groups(api.url, group_size=settings.group_size, checkpoint_dir=folder)
        env = DemoEnv(*configure(settings, folder, api.url, server.url), policy)
        seconds = await _serve(env, trainer, settings.seconds)
    return DemoReport(
        seconds=seconds,
        means=env.statistics.total,
        counts=env.statistics.counts,
        curriculum=env.get_curriculum_stats(),
        batches=trainer.batches,
        pulled=trainer.groups,
        dumps=tuple(sorted(set(settings.data_dumps_dir.glob("*.jsonl")) - dumps)),
    )


def configure(
    settings: DemoSettings, folder: Path, api_url: str, policy_url: str
) -> tuple[ReasoningGymEnvConfig, list[APIServerConfig]]:
    """Return the configuration that a user would write for these servers."""
    config = ReasoningGymEnvConfig(
        tokenizer_name=str(folder),
        rollout_server_url=api_url,
        group_size=settings.group_size,
        max_token_length=_MAX_TOKEN_LENGTH,
        total_steps=ENDLESS,
        steps_per_eval=0,
        complexity_mode=ComplexityMode.CURRICULUM,
        sampling=TaskSampling.SIGNAL,
        use_wandb=False,
        wandb_name="demo",
        seed=settings.seed,
        dump_all_rollouts=True,
        data_dumps_dir=str(settings.data_dumps_dir),
        suppress_base_env_logs=True,
    )
    server = APIServerConfig(
        server_type=settings.server_type,
        base_url=policy_url if settings.server_type == "trl" else f"{policy_url}/v1",
        model_name=str(folder),
        api_key="x",
    )
    return config, [server]


async def _serve(env: DemoEnv, trainer: Trainer, seconds: float) -> float:
    """Serve until the time is over; return the seconds since the first group."""
    jobs = [asyncio.create_task(job) for job in (trainer.run(), env.env_manager())]
    progress = Progress(sys.stdout)
    try:
        return await _watch(env, jobs, progress, seconds)
    finally:
        progress.close()
        for job in jobs:
            job.cancel()
        await asyncio.wait(jobs)
        await env.close()


async def _watch(
    env: DemoEnv, jobs: Sequence[asyncio.Task[Any]], progress: Progress, seconds: float
) -> float:
    """Show progress until the time is over or a job ends; raises the job's error."""
    launched = time.monotonic()
    start = served = 0.0
    done: set[asyncio.Task[Any]] = set()
    while not done and served < seconds:
        done, _ = await asyncio.wait(jobs, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        elapsed = time.monotonic() - launched
        if env.statistics.counts["groups/collected"]:
            served = elapsed - start
            progress.show(progress_line(served, env.statistics.total, env.statistics.counts))
        elif elapsed > _START_SECONDS:
            raise RuntimeError(f"no group within {_START_SECONDS:.0f} seconds; see the log")
        else:
            start = elapsed
            progress.show(f"{elapsed:4.0f} s  starting")
    for job in done:
        job.result()
    return served
