"""Checkpoints through Atropos's own calls: a resumed run is the uninterrupted one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from serve_loop import training_from
from trainer_api import begin_training, until

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
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
    """An environment as `register_env` leaves it."""
    settings = {"include_tasks": TASKS, "num_eval_samples_per_task": 5, **changes}
    async with bench.environment(url, **settings) as env:
        env.wandb_prepend = replica
        env.checkpoint_dir = str(bench.folder)
        env.checkpoint_interval = STEP
        env.curr_step = step
        yield env


def key(problem: Problem) -> str:
    return json.dumps(problem.recipe.to_json(), sort_keys=True)


async def recipes(env: ReasoningGymEnv, count: int) -> list[str]:
    return [key(await env.get_next_item()) for _ in range(count)]


async def reach_step(env: ReasoningGymEnv, step: int) -> None:
    """Atropos's loop sees that the trainer has come to a step."""
    env.status_dict = {"current_step": step}
    await env.env_step_checks()


async def test_a_resumed_run_draws_what_the_uninterrupted_one_would_have(
    bench: Any, policy_url: str
) -> None:
    async with environment(bench, policy_url, step=STEP - 1) as env:
        await recipes(env, 40)
        await reach_step(env, STEP)
        uninterrupted = await recipes(env, MANY)
    assert env.statistics.counts["sampling/evaluation_questions_redrawn"] > 0
    async with environment(bench, policy_url, step=STEP) as env:
        env.load_checkpoint()
        assert await recipes(env, MANY) == uninterrupted


async def test_unfinished_problems_come_first_after_a_resume(
    bench: Any, policy_url: str
) -> None:
    async with environment(bench, policy_url, step=STEP - 1) as env:
        handed_out = [await env.get_next_item() for _ in range(6)]
        entry = {"worker": None, "start_time": 0.0}
        env.running_items = {str(n): {**entry, "item": handed_out[n]} for n in (1, 2)}
        env.backlog = [handed_out[4]]
        await reach_step(env, STEP)
        later = await recipes(env, 20)
    unfinished = [key(handed_out[n]) for n in (1, 2, 4)]
    async with environment(bench, policy_url, step=STEP) as env:
        env.load_checkpoint()
        assert await recipes(env, 23) == unfinished + later


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
    async with environment(bench, policy_url, step=STEP, **settings) as env:
        assert env.get_curriculum_stats() != stats
        env.load_checkpoint()
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
        env.load_checkpoint()
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
        env.load_checkpoint()
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
            await env.register_env()
            await env.get_server_info()
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
        env.backlog = [await env.get_next_item()]
        await reach_step(env, STEP)
        # Training goes on while a disk hangs.
        await until(lambda: env.statistics.counts["checkpoints/saved"])
        env.load_checkpoint()
        env.backlog = []
        env.save_checkpoint(2 * STEP)
    files = sorted(
        path for path in bench.folder.rglob("env_checkpoints/**/*") if path.is_file()
    )
    assert files == [
        bench.folder / f"env_checkpoints/a_0/step-{n * STEP}.json" for n in (1, 2)
    ]
    first, second = [json.loads(file.read_bytes()) for file in files]
    assert first == second
    assert "stream_state" in first


async def test_a_missing_checkpoint_is_said_and_the_stream_starts_anew(
    bench: Any, policy_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with environment(bench, policy_url) as env:
        first = await recipes(env, 5)
    async with environment(bench, policy_url, step=7) as env:
        env.load_checkpoint()
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
        await env.register_env()
        before = await recipes(env, 10)
        await reach_step(env, STEP)
        uninterrupted = await recipes(env, 20)
    async with (
        training(bench, step=STEP) as (api_url, _),
        bench.environment(policy_url, rollout_server_url=api_url) as env,
    ):
        await env.register_env()
        resumed = await recipes(env, 20)
    assert resumed == uninterrupted
    assert not set(resumed) & set(before)
    assert env.wandb_prepend == "env_0"
