"""Several environments serve one run: one evaluates, and one of the same name continues another."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from process_tree import survivors
from scripted_server import ScriptedServer
from serve_loop import HONEST, registration, status, training_from, until_pulled
from trainer_api import Api, begin_training, let_in, weight_of_a_newcomer

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.atropos.trainer_api import LostStateError
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.storage.checkpoints import Checkpoints

SAVED_EVERY = 3


def training(folder: Path, *, step: int = 0) -> Any:
    """A real API and a real trainer."""
    return training_from(step, folder, num_steps=100_000, save_every=SAVED_EVERY)


async def come_to(env: ReasoningGymEnv, step: int) -> None:
    """The run sees that the trainer has come to a step; what that begins is finished."""
    await env.run.take_status(status(step))
    if env.eval_runner is not None:
        await env.eval_runner


async def test_an_environment_that_ignores_weights_takes_all_requests_and_no_others_share(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        ApiServer() as api,
        bench.environment(
            server.url, rollout_server_url=api.url, inference_weight=-1
        ) as env,
    ):
        await begin_training(api.url, tmp_path)
        await env.run.register()
        await env.run.follow_trainer()  # of an API that knows no other weight
        other = await let_in(api.url, "other")
        await env.run.follow_trainer()
        status_of_other = await env.run.parts.trainer.client.request(
            "GET", "/status-env", {"env_id": other["env_id"]}
        )
    assert env.server.servers[0].sem.weight == 1
    assert status_of_other["env_weight"] == 1


async def test_one_of_two_replicas_evaluates_and_the_other_takes_over(
    bench: Any, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = {"steps_per_eval": 10, "max_num_workers": 1}
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        training(tmp_path) as (api, _),
        bench.environment(server.url, rollout_server_url=api, **settings) as second,
    ):
        async with bench.environment(
            server.url, rollout_server_url=api, **settings
        ) as first:
            for env in (first, second):
                await env.run.register()
            for step in (0, 4, 10, 11, 23):
                for env in (first, second):
                    await come_to(env, step)
            folders = sorted(
                path.name for path in first.evaluation.folder.parent.glob("step-*")
            )
            assert folders == ["step-10", "step-23"]
            assert second.eval_runner is None
        caplog.clear()
        while "This replica evaluates" not in caplog.text:  # it tries every 5 s
            await come_to(second, 29)
            await asyncio.sleep(0.1)
        assert second.eval_runner is None
        await come_to(second, 31)
        assert second.evaluation.folder.name == "step-31"


async def test_a_replica_of_the_same_name_continues_where_the_other_ended(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    settings = {
        "replica": "east",
        "complexity_mode": "curriculum",
        "sampling": "signal",
    }
    async with PolicyServer(HONEST, tokenizer) as server:
        async with (
            training(tmp_path, step=SAVED_EVERY - 1) as (api, _),
            bench.environment(server.url, rollout_server_url=api, **settings) as env,
        ):
            await env.run.register()
            for _ in range(6):
                await env.collect_trajectories(await env.get_next_item())
            await come_to(env, SAVED_EVERY)
            stats = env.get_curriculum_stats()
            expected = [(await env.get_next_item()).recipe for _ in range(20)]
        async with (
            training(tmp_path, step=SAVED_EVERY + 1) as (api, _),
            bench.environment(server.url, rollout_server_url=api) as numbered,
            bench.environment(server.url, rollout_server_url=api, **settings) as env,
        ):
            await numbered.run.register()  # as other replicas that are there already
            await env.run.register()
            assert env.get_curriculum_stats() == stats
            assert [(await env.get_next_item()).recipe for _ in range(20)] == expected
            replicas = [each.run.state.replica for each in (numbered, env)]
            assert replicas == ["env_0", "env_east"]


async def test_a_checkpoint_that_cannot_be_continued_ends_the_start_in_one_sentence(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    path = tmp_path / "env_checkpoints" / "env_x" / f"step-{SAVED_EVERY}.json"
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        training(tmp_path, step=SAVED_EVERY) as (api, _),
    ):
        settings = {"rollout_server_url": api, "replica": "x"}
        async with bench.environment(server.url) as env:
            await env.run.begin(registration(tmp_path, name="env_x"))
            await env.get_next_item()
            env.save_checkpoint(SAVED_EVERY)
        whole, lcm = path.read_text(), {"include_tasks": "lcm"}
        for changes, text, said in (
            ({}, '{"stream_state": {"sam', "it is not valid JSON: "),
            ({}, '{"schema_version": 2}', "schema_version is 2, this program reads 1"),
            (
                {},
                '{"schema_version": 1, "stream_state": []}',
                "the value must be object, got []",
            ),
            ({"seed": 7}, whole, "the state's seed is 42, but this run's is 7"),
            (lcm, whole, "this run uses none of the state's tasks, such as gcd"),
        ):
            path.write_text(text)
            async with bench.unprepared(server.url, **{**settings, **changes}) as env:
                with pytest.raises(FixableError) as raised:
                    await env.env_manager()
            assert raised.value.exit_status == 2
            assert str(raised.value).startswith(
                f"the checkpoint {path} can't be continued: {said}"
            )
            assert str(raised.value).endswith(
                "; delete it to continue the one before it or, without one, to restart the "
                "training stream"
            )


async def test_a_checkpoint_folder_that_cannot_be_written_to_ends_the_start(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    (tmp_path / "env_checkpoints").write_text("in the way")
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        training(tmp_path) as (api, _),
        bench.environment(server.url, rollout_server_url=api) as env,
    ):
        with pytest.raises(
            FixableError, match=r"checkpoints can't be written to .*: make it"
        ):
            await env.run.register()


@pytest.mark.nightly
async def test_a_killed_replica_loses_no_evaluation_and_its_place_is_taken(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    settings = {
        "complexity_mode": "curriculum",
        "debug_logging": True,
        "ensure_scores_are_not_same": False,
        "eval_handling": "NONE",
        "max_eval_workers": 1,
        "max_token_length": 2048,
        "num_eval_samples_per_task": 20,
        "steps_per_eval": 20,
        "total_steps": 100_000,
    }

    def replica(name: str, log: str) -> Any:
        options = bench.options(
            server.url, rollout_server_url=api, replica=name, **settings
        )
        command = bench.command("serve", *options)
        command.log = tmp_path / log
        return command

    async with (
        ScriptedServer(HONEST, tokenizer, latency=0.2) as server,
        training(tmp_path) as (api, trainer),
        replica("a", "a.txt") as one,
        replica("b", "b.txt") as other,
    ):
        for command in (one, other):
            await command.until_logged("gcd:")
        evaluator = await first_to_say("Evaluating ", one, other)
        evaluator.process.kill()
        await evaluator.process.wait()
        name, survivor = ("a", other) if evaluator is one else ("b", one)
        await survivor.until_logged("This replica evaluates")
        await survivor.until_logged("Evaluation: ")
        async with replica(name, "again.txt") as again:
            await again.until_logged("gcd:")
            await until_pulled(trainer, again, batches=60)
    assert re.search(
        rf"Continued \S+/env_{name}/step-\d+\.json at the trainer's", again.said()
    )
    assert "This replica evaluates" not in again.said()
    assert "Traceback" not in again.said() + survivor.said()


@pytest.mark.nightly
async def test_killed_replicas_leave_no_process_and_no_ghost_behind(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """A stale would keep the batches from the trainer until the API is restarted."""
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        training(tmp_path) as (api, trainer),
    ):
        settings = {
            "rollout_server_url": api,
            "max_token_length": 2048,
            "total_steps": 100_000,
        }
        settings |= {"ensure_scores_are_not_same": False, "min_batch_allocation": 0.5}
        options = bench.options(server.url, replica="a", **settings)
        for life in range(2):
            command, before = bench.command("serve", *options), trainer.batches
            command.log = tmp_path / f"{life}.txt"
            async with command:
                await until_pulled(trainer, command, batches=before + 4)
                processes = command.processes()
            assert await survivors(processes) == set()
            assert "env_weight fell" not in command.said()
            assert ("Disconnecting environment" in command.said()) == (life > 0)
            assert "If this process is killed" not in command.said()


async def test_where_no_note_is_kept_the_start_says_what_a_killed_process_leaves(
    bench: Any, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "unlockable" / "env_checkpoints").mkdir(parents=True)
    (tmp_path / "unlockable" / "env_checkpoints" / "env_a.lock").mkdir()
    async with PolicyServer(HONEST, tokenizer) as server:
        for folder, replica in ((tmp_path, ""), (tmp_path / "unlockable", "a")):
            settings = {"replica": replica, "min_batch_allocation": 0.5}
            async with (
                ApiServer() as api,
                bench.environment(
                    server.url, rollout_server_url=api.url, **settings
                ) as env,
            ):
                await begin_training(api.url, folder)
                caplog.clear()
                await env.run.register()
                [said] = [
                    m
                    for m in caplog.messages
                    if m.startswith("If this process is killed")
                ]
                assert said.endswith(
                    f'else POST {{"env_id": {env.env_id}}} to {api.url}/disconnect-env'
                )


async def test_a_name_is_claimed_at_the_api_that_the_environment_registers_at(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """The API is restarted for another run while the name is still taken."""
    folder = tmp_path / "env_checkpoints" / "env_a"
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        Api(tmp_path) as api,
        bench.environment(server.url, rollout_server_url=api.url, replica="a") as env,
    ):
        taken = Checkpoints(folder, Counter())
        await taken.claim()
        registering = asyncio.create_task(env.run.register())
        await until_probed(api.url, env.run.parts.trainer.client.probe_name)
        await api.stop()
        api._folder = tmp_path / "another"
        await api.start(step=0)
        taken.close()
        with pytest.raises(
            LostStateError, match="another trainer has begun: start this environ"
        ):
            await registering
        await env.close()
        assert await weight_of_a_newcomer(api.url) == 1.0


async def until_probed(url: str, name: str) -> None:
    """Wait until an environment has registered its restart probe, before all else."""
    polls = 0
    while (await let_in(url, name))["wandb_name"] == f"{name}_{polls}":
        polls += 1
        await asyncio.sleep(0.1)


async def first_to_say(text: str, *commands: Any) -> Any:
    while True:
        for command in commands:
            if text in command.said():
                return command
            assert command.process.returncode is None, command.said()
        await asyncio.sleep(0.1)
