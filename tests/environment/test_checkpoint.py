"""Checkpoints of a run: a resumed run is the uninterrupted one."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from serve_loop import HONEST, registration, status, training_from
from trainer_api import begin_training, until

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import (
    Generation,
    PolicyRequest,
    PolicyServer,
    is_probe,
)
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.records import Problem

# coin_flip repeats evaluation questions: some are redrawn.
TASKS = "gcd,coin_flip,number_sorting"
STEP = 3
MANY = 150


@pytest_asyncio.fixture
async def policy_url(tokenizer: Any) -> AsyncIterator[str]:
    async with PolicyServer(
        ScriptedPolicy(["<answer>1</answer>"]), tokenizer
    ) as server:
        yield server.url


@asynccontextmanager
async def environment(
    bench: Any, url: str, *, replica: str = "a_0", step: int = 0, **changes: Any
) -> AsyncIterator[ReasoningGymEnv]:
    """An environment that has begun at a step, and has no API."""
    async with unregistered(bench, url, **changes) as env:
        await begin(bench, env, step=step, name=replica)
        yield env


def unregistered(bench: Any, url: str, **changes: Any) -> Any:
    settings = {"include_tasks": TASKS, "num_eval_samples_per_task": 5, **changes}
    return bench.environment(url, **settings)


async def begin(bench: Any, env: ReasoningGymEnv, *, step: int, **changes: Any) -> None:
    """Begin at a step, of which a checkpoint is loaded, with a trainer without a limit."""
    answer = {"name": "a_0", "checkpoint_interval": STEP, **changes}
    await env.run.begin(
        registration(bench.folder, step=step, max_token_len=-1, **answer)
    )


def key(problem: Problem) -> str:
    return json.dumps(problem.recipe.to_json(), sort_keys=True)


async def recipes(env: ReasoningGymEnv, count: int) -> list[str]:
    return [key(await env.get_next_item()) for _ in range(count)]


async def reach_step(env: ReasoningGymEnv, step: int) -> None:
    """The run sees that the trainer has come to a step."""
    await env.run.take_status(status(step))


async def test_a_resumed_run_draws_what_the_uninterrupted_one_would_have(
    bench: Any, policy_url: str
) -> None:
    async with environment(bench, policy_url, step=STEP - 1) as env:
        await recipes(env, 40)
        await reach_step(env, STEP)
        uninterrupted = await recipes(env, MANY)
    assert env.statistics.counts["sampling/other_split"] > 0
    async with environment(bench, policy_url, step=STEP) as env:
        assert await recipes(env, MANY) == uninterrupted


class Turnstile(PolicyServer):
    """Answers as many requests as a test lets in; the others wait."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(HONEST, tokenizer)
        self.places = asyncio.Semaphore(0)

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        if not is_probe(request):
            await self.places.acquire()
        return await super()._complete(request)


class NotingEnv(ReasoningGymEnv):
    """Notes what is at work and what waits when it saves a checkpoint."""

    at_work: Sequence[Problem] = ()
    waiting: Sequence[Problem] = ()

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        super().save_checkpoint(step, data)
        self.at_work = self.run.items_at_work
        self.waiting = [*self.backlog]


async def test_unfinished_problems_come_first_after_a_resume(
    bench: Any, tokenizer: Any, policy_url: str
) -> None:
    settings = {"max_num_workers": 4, "ensure_scores_are_not_same": False}
    async with (
        Turnstile(tokenizer) as server,
        training(bench, step=STEP - 1) as (api_url, _),
        bench.environment(
            server.url, of=NotingEnv, rollout_server_url=api_url, **settings
        ) as env,
    ):
        serving = asyncio.create_task(env.env_manager())
        await until(lambda: len(env.run.items_at_work) == 4 or serving.done())
        # Two groups fill the trainer's batch, so that two more of these begin.
        env.backlog.extend([await env.get_next_item() for _ in range(3)])
        for _ in range(2):
            server.places.release()
        await until(lambda: (len(env.backlog) == 1 and env.at_work) or serving.done())
        later = await recipes(env, 20)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
    unfinished = [key(problem) for problem in (*env.at_work, *env.waiting)]
    assert len(env.at_work) >= 2
    assert env.waiting
    async with (
        training(bench, step=STEP) as (api_url, _),
        bench.environment(policy_url, rollout_server_url=api_url, **settings) as env,
    ):
        await env.run.register()
        assert await recipes(env, len(unfinished) + 20) == unfinished + later


async def test_a_resumed_run_goes_on_with_its_curriculum_and_its_estimates(
    bench: Any, policy_url: str
) -> None:
    settings = {"complexity_mode": "curriculum", "sampling": "signal"}
    async with environment(bench, policy_url, step=STEP - 1, **settings) as env:
        for _ in range(12):
            await env.collect_trajectories(await env.get_next_item())
        stats = env.get_curriculum_stats()
        await reach_step(env, STEP)
        uninterrupted = await recipes(env, MANY)
    assert stats["tasks_with_adjustments"] > 0
    async with unregistered(bench, policy_url, **settings) as env:
        assert env.get_curriculum_stats() != stats
        await begin(bench, env, step=STEP)
        assert env.get_curriculum_stats() == stats
        assert await recipes(env, MANY) == uninterrupted


async def test_a_run_resumed_with_other_settings_drops_what_no_longer_applies(
    bench: Any, policy_url: str
) -> None:
    settings = {"complexity_mode": "random", "max_token_length": 600}
    async with environment(bench, policy_url, step=STEP - 1, **settings) as env:
        for _ in range(60):
            await env.collect_trajectories(await env.get_next_item())
        await reach_step(env, STEP)
    others = {"include_tasks": "gcd,coin_flip", "max_token_length": 500}
    async with environment(bench, policy_url, step=STEP, **others) as env:
        for _ in range(80):
            problem = await env.get_next_item()
            assert problem.recipe.task in ("gcd", "coin_flip")
            await env.collect_trajectories(problem)


async def test_a_level_that_did_not_fit_comes_back_with_a_larger_budget(
    bench: Any, policy_url: str
) -> None:
    settings = {"include_tasks": "number_sorting", "complexity_mode": "random"}
    async with environment(
        bench, policy_url, step=STEP - 1, max_token_length=1500, **settings
    ) as env:
        await recipes(env, 100)
        assert env.statistics.counts["sampling/prompts_too_long"] > 0
        await reach_step(env, STEP)
    async with environment(
        bench, policy_url, step=STEP, max_token_length=16000, **settings
    ) as env:
        levels = {(await env.get_next_item()).recipe.level for _ in range(MANY)}
    assert levels == set(range(8))


async def test_a_level_comes_back_with_a_trainer_that_allows_more(
    bench: Any, policy_url: str
) -> None:
    settings = {"include_tasks": "number_sorting", "complexity_mode": "random"}
    levels: dict[int, set[int | None]] = {}
    for step, limit in ((STEP - 1, 1500), (STEP, 16000)):
        async with (
            ApiServer() as api,
            bench.environment(
                policy_url,
                rollout_server_url=api.url,
                max_token_length=16000,
                **settings,
            ) as env,
        ):
            trainer = {"max_token_len": limit, "save_checkpoint_interval": STEP}
            await begin_training(
                api.url, bench.folder / "trainer", step=step, **trainer
            )
            await env.run.register()
            levels[limit] = {
                (await env.get_next_item()).recipe.level for _ in range(MANY)
            }
            await reach_step(env, STEP)
    assert levels[1500] < levels[16000] == set(range(8))


async def test_a_checkpoint_of_a_resumed_run_is_as_good(
    bench: Any, policy_url: str
) -> None:
    async with environment(bench, policy_url, step=STEP - 1) as env:
        await recipes(env, 10)
        env.backlog.append(await env.get_next_item())
        await reach_step(env, STEP)
        # Training goes on while a disk hangs.
        await until(lambda: env.statistics.counts["checkpoints/saved"])
        env.load_checkpoint()
        env.backlog.clear()
        env.save_checkpoint(2 * STEP)
    folder = bench.folder / "env_checkpoints" / "a_0"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert files == [folder / f"step-{n * STEP}.json" for n in (1, 2)]
    first, second = [json.loads(file.read_bytes()) for file in files]
    assert first == second
    assert "stream_state" in first


async def test_a_missing_checkpoint_is_said_and_the_stream_starts_anew(
    bench: Any, policy_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with unregistered(bench, policy_url) as env:
        await begin(bench, env, step=0, checkpoint_interval=0)
        first = await recipes(env, 5)
    async with environment(bench, policy_url, step=7) as env:
        assert await recipes(env, 5) == first
    [warning] = [
        r.getMessage() for r in caplog.records if "No checkpoint" in r.getMessage()
    ]
    assert "step 7" in warning
    assert str(bench.folder) in warning


async def test_replicas_and_the_evaluation_set_share_no_recipe(
    bench: Any, policy_url: str, tmp_path: Path
) -> None:
    drawn, evaluation = [], []
    for replica in ("a_0", "a_1"):
        async with environment(bench, policy_url, replica=replica) as env:
            drawn += await recipes(env, MANY)
            await env.evaluate()
            samples = (env.evaluation.folder / "samples.jsonl").read_text()
        evaluation.append(
            [json.loads(s)["recipe"]["seed"] for s in samples.splitlines()]
        )
    assert len(set(drawn)) == 2 * MANY
    assert evaluation[0] == evaluation[1]
    assert len(evaluation[0]) == 15
    assert not {json.loads(recipe)["seed"] for recipe in drawn} & set(evaluation[0])


def training(bench: Any, *, step: int) -> Any:
    """A real API and a real trainer that has come to a step."""
    return training_from(step, bench.folder / "trainer", num_steps=10, save_every=STEP)


async def test_registering_with_a_trainer_that_resumes_loads_its_checkpoint(
    bench: Any, policy_url: str
) -> None:
    async with (
        training(bench, step=STEP - 1) as (api_url, _),
        bench.environment(policy_url, rollout_server_url=api_url) as env,
    ):
        await env.run.register()
        before = await recipes(env, 10)
        await reach_step(env, STEP)
        uninterrupted = await recipes(env, 20)
    async with (
        training(bench, step=STEP) as (api_url, _),
        bench.environment(policy_url, rollout_server_url=api_url) as env,
    ):
        await env.run.register()
        resumed = await recipes(env, 20)
    assert resumed == uninterrupted
    assert not set(resumed) & set(before)
    assert env.wandb_prepend == "env_0"
