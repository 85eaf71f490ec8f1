"""What a run does with a group that is interrupted, and with an environment that fails."""

import asyncio
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer
from serve_loop import HONEST, registration, training
from trainer_api import until

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.atropos.groups import Work
from reasoning_gym_environment.demo.policy import Sample
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.records import Reward, Status, Verdict
from reasoning_gym_environment.util.files import UnwritableError
from reasoning_gym_environment.util.outages import UnreachableError

RIGHT = "<answer>1</answer>"


def fifo_for_dumps(env: ReasoningGymEnv, folder: Path) -> Path:
    """Let the first dump block until somebody reads it."""
    (folder / "dumps").mkdir(exist_ok=True)
    name = f"reasoning_gym_environment_FAILED_rollouts_{env.run_id}_0000.jsonl"
    file = folder / "dumps" / name
    os.mkfifo(file)
    return file


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
async def test_a_scored_group_is_delivered_though_its_worker_is_out_of_time(
    bench: Any, script: Any
) -> None:
    script.play("<answer>no</answer>")
    changes = {"worker_timeout": 1, "ensure_scores_are_not_same": False}
    async with bench.playing(script, dump_failed_rollouts=True, **changes) as env:
        file = fifo_for_dumps(env, bench.folder)
        working = asyncio.create_task(env.run.groups.work_on(await env.get_next_item()))
        await asyncio.sleep(2)  # longer than the worker's time
        assert not working.done()
        with os.fdopen(os.open(file, os.O_RDWR | os.O_NONBLOCK), "rb") as read:
            assert await working
            assert len(read.read().splitlines()) == 1
    counts = env.statistics.counts
    assert (counts["groups/interrupted"], counts["groups/written"]) == (0, 1)
    assert env.backlog == []


@pytest.mark.nightly
async def test_evaluations_that_stop_training_have_no_problem_asked_twice(
    bench: Any, tokenizer: Any
) -> None:
    """Each interrupted problem comes once more, though requests fail at the same time."""
    settings = {
        "eval_handling": "STOP_TRAIN",
        "steps_per_eval": 2,
        "ensure_scores_are_not_same": False,
        "max_token_length": 2048,
        "max_num_workers": 6,
        "dump_all_rollouts": True,
    }
    async with (
        ScriptedServer(HONEST, tokenizer, failure_rate=0.1, latency=0.05) as server,
        ApiServer() as api,
        training(api, bench.folder, batch_size=8) as trainer,
        bench.unprepared(
            server.url, "vllm", rollout_server_url=api.url, **settings
        ) as env,
    ):
        serving = asyncio.create_task(env.env_manager())
        await until(lambda: trainer.batches >= 12 or serving.done())
        assert not serving.done(), serving.exception()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert not any(env.statistics.unaccounted().values()), env.statistics.accounting()
    recipes = [
        json.dumps(json.loads(line)["recipe"], sort_keys=True)
        for file in (bench.folder / "dumps").glob("*rollouts_*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert len(recipes) >= 24
    assert len(set(recipes)) == len(recipes)


async def test_a_collected_item_is_done_before_its_worker_goes_on(
    bench: Any, script: Any
) -> None:
    """An evaluation that begins in between must not have it asked again."""
    script.play(RIGHT)
    held = []

    class Looks(ReasoningGymEnv):
        async def postprocess_histories(self, trajectories: Any) -> Any:
            asyncio.get_running_loop().call_soon(lambda: held.append(work.holds_item))
            return trajectories

    async with bench.playing(script, of=Looks, ensure_scores_are_not_same=False) as env:
        work = Work(await env.get_next_item())
        assert await env.run.groups.work_on(work.item, work)
    assert held == [False]


async def test_an_interrupted_item_is_not_stored_though_it_has_just_been_scored(
    bench: Any, script: Any
) -> None:
    script.play(RIGHT)
    may_go_on = asyncio.Event()

    class Waits(ReasoningGymEnv):
        has_scored = False

        async def score(self, *args: Any) -> Any:
            scored = await super().score(*args)
            self.has_scored = True
            await may_go_on.wait()
            return scored

    async with bench.playing(script, of=Waits, dump_all_rollouts=True) as env:
        work = Work(await env.get_next_item())
        worker = asyncio.create_task(env.run.groups.work_on(work.item, work))
        await until(lambda: env.has_scored)
        may_go_on.set()
        work.interrupt(worker)
        await asyncio.gather(worker, return_exceptions=True)
        assert worker.cancelled()
    assert env.statistics.counts["groups/interrupted"] == 1
    assert not list((bench.folder / "dumps").glob("*rollouts_*.jsonl"))


class Splits(ReasoningGymEnv):
    """Makes three groups of one."""

    async def postprocess_histories(self, trajectories: Any) -> Any:
        return [dict(trajectories) for _ in range(3)]

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Any = None) -> None:
        await asyncio.sleep(0.2)  # while the worker is cancelled


async def test_all_groups_of_an_item_are_delivered_though_its_worker_is_cancelled(
    bench: Any, script: Any
) -> None:
    script.play(RIGHT)
    async with bench.playing(
        script, of=Splits, ensure_scores_are_not_same=False
    ) as env:
        counts = env.statistics.counts
        problem = await env.get_next_item()
        worker = asyncio.create_task(env.run.groups.work_on(problem))
        await until(lambda: counts["groups/collected"] == 3)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await until(lambda: counts["groups/written"] == 3)
    assert (counts["groups/started"], counts["groups/cancelled"]) == (3, 0)


class KeepsHistories(ReasoningGymEnv):
    """Keeps what it is given to postprocess; its verifier is broken."""

    histories: list[Any]

    async def postprocess_histories(self, trajectories: Any) -> Any:
        self.histories.append(trajectories)
        return trajectories

    async def score(self, problem: Any, completions: Any) -> Any:
        group = await super().score(problem, completions)
        broken = Verdict(score=None, status=Status.UNSCORED, detail="verifier broken")
        attempts = [
            replace(attempt, verdict=broken, reward=Reward(value=0.0))
            for attempt in group.attempts
        ]
        return replace(group, attempts=tuple(attempts))


class CleansUpBadly(ReasoningGymEnv):
    max_consecutive_losses = 2

    async def cleanup(self) -> None:
        raise ValueError("mine")


async def test_a_cleanup_that_raises_counts_as_a_failure_of_its_class(
    bench: Any, script: Any
) -> None:
    script.play(RIGHT)
    async with bench.playing(
        script, of=CleansUpBadly, ensure_scores_are_not_same=False
    ) as env:
        assert not await env.run.groups.work_on(await env.get_next_item())
        with pytest.raises(ConfigurationError, match=r"CleansUpBadly.* 2 .*mine"):
            await env.run.groups.work_on(await env.get_next_item())


class RefusedTwice(ReasoningGymEnv):
    max_consecutive_losses = 2

    async def postprocess_histories(self, trajectories: Any) -> Any:
        return {**trajectories, "scores": [float("nan")] * 4}


async def test_a_class_says_how_many_refused_groups_end_its_run(
    bench: Any, script: Any
) -> None:
    script.play(RIGHT)
    async with bench.playing(script, of=RefusedTwice) as env:
        await env.run.groups.work_on(await env.get_next_item())
        with pytest.raises(ConfigurationError, match="2 groups were refused"):
            await env.run.groups.work_on(await env.get_next_item())


class FailsNowAndThen(ReasoningGymEnv):
    """Gives nothing for some items, and raises for one."""

    asked = 0

    async def collect_trajectories(self, item: Any) -> Any:
        self.asked += 1
        if self.asked == 5:
            raise ValueError("once")
        if self.asked < 10:
            return None, []
        return await super().collect_trajectories(item)


async def test_items_without_a_group_and_one_that_raises_are_counted_apart(
    bench: Any, script: Any
) -> None:
    script.play(RIGHT)
    async with bench.playing(
        script,
        of=FailsNowAndThen,
        dump_all_rollouts=True,
        ensure_scores_are_not_same=False,
    ) as env:
        env.n_groups_to_process = 1
        await env.process_manager()
    counts = env.statistics.counts
    assert (counts["groups/dropped"], counts["groups/interrupted"]) == (8, 1)


async def test_a_setup_that_failed_can_be_repeated(bench: Any, tokenizer: Any) -> None:
    class Impatient(ReasoningGymEnv):
        reach_seconds = 0.0

    async with PolicyServer(HONEST, tokenizer) as server:
        url = server.url
    async with bench.unprepared(url, of=Impatient) as env:
        for _ in range(2):
            with pytest.raises(UnreachableError):
                await env.setup()
        processes = set(env.run.parts.pool.pids)
        with pytest.raises(UnreachableError):
            await env.setup()
        assert set(env.run.parts.pool.pids) == processes


async def test_a_file_of_groups_that_can_not_be_made_can_be_changed_and_setup_repeated(
    bench: Any, script: Any, tokenizer: Any
) -> None:
    script.play(RIGHT)
    in_the_way = bench.folder / "file"
    async with PolicyServer(script, tokenizer) as server:
        path = bench.folder / "groups.jsonl"
        async with bench.unprepared(
            server.url, data_path_to_save_groups=str(path)
        ) as env:
            in_the_way.write_text("")
            env.config.data_path_to_save_groups = str(in_the_way / "groups.jsonl")
            with pytest.raises(UnwritableError, match="data_path_to_save_groups"):
                await env.setup()
            env.config.data_path_to_save_groups = str(path)
            await env.setup()
            assert path.exists()


async def test_an_option_is_refused_after_setup_and_two_of_logging_take_effect(
    bench: Any, script: Any
) -> None:
    package = logging.getLogger("reasoning_gym_environment")
    level = package.level
    package.setLevel(logging.ERROR)
    try:
        async with bench.playing(script) as env:
            assert package.level == logging.ERROR  # the host's own
            with pytest.raises(
                ConfigurationError, match=r"group_size .* 7.*group_size=…"
            ):
                env.config.group_size = 7
            env.config.debug_logging = True
            assert package.level == logging.DEBUG
            env.config.debug_logging = False
            assert package.level == logging.NOTSET
    finally:
        package.setLevel(level)


async def test_a_run_that_begins_draws_under_the_name_that_the_api_gave(
    bench: Any, script: Any, tmp_path: Path
) -> None:
    drawn = []
    for name in ("env_0", "env_1"):
        async with bench.playing(script) as env:
            await env.run.begin(registration(tmp_path, name=name))
            drawn.append((await env.get_next_item()).recipe)
            assert env.wandb_prepend == env.run.state.replica == name
    assert drawn[0] != drawn[1]


async def test_a_group_without_any_score_never_reaches_a_subclass(
    bench: Any, script: Any
) -> None:
    script.play(Sample(text=RIGHT))
    async with bench.playing(script, of=KeepsHistories) as env:
        env.histories = []
        await env.run.groups.work_on(await env.get_next_item())
    counts = env.statistics.counts
    assert (counts["groups/unscored"], env.histories) == (1, [])
