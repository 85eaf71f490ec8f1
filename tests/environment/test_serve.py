"""`serve` as a command between a real API server, a real trainer and a policy over HTTP."""

import asyncio
import json
import re
import signal
from itertools import pairwise
from typing import Any

import pytest
from process_tree import descendants, in_linux, is_alive, survivors
from serve_loop import HONEST, serving, until_pulled
from trainer_api import weight_of_a_newcomer

from reasoning_gym_environment.commands.init import main as init
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer, Trainer
from reasoning_gym_environment.storage.dumps import read_dump
from reasoning_gym_environment.tasks.facts import EXECUTES_ANSWERS

HALF = ScriptedPolicy(["<answer>1</answer>", "no idea"])
HOSTILE_ENDS = {
    "9**9**9**9": "timeout",
    "__import__('os')._exit(3)": "crashed",
    "[0] * 10**12": "out_of_memory",
}
"""What becomes of answers that get as far as `eval`."""
HARMLESS = ("wrong", "verifier_error")
"""What becomes of them in verifiers that look at the text first."""
HOSTILE = ScriptedPolicy(
    [
        *(f"<answer>{a}</answer>" for a in HOSTILE_ENDS),
        "<answer>1</answer>",
        "I can't say.",
    ]
)


@in_linux
@pytest.mark.nightly
async def test_batches_arrive_until_a_signal_ends_it_all(
    bench: Any, tokenizer: Any
) -> None:
    async with serving(bench, tokenizer, HONEST) as (command, trainer, api_url):
        await until_pulled(trainer, command, batches=3)
        assert await weight_of_a_newcomer(api_url) == 0.5
        await command.end(signal.SIGTERM, api_url)
    assert trainer.rows == trainer.groups * 4 >= 24


@in_linux
async def test_a_signal_during_the_start_leaves_no_process_behind(
    bench: Any, tokenizer: Any
) -> None:
    async with serving(bench, tokenizer, HONEST) as (command, _, _):
        await command.until_logged("Starting the task processes")
        while not (children := {*filter(is_alive, descendants(command.process.pid))}):
            await asyncio.sleep(0.01)
        command.process.send_signal(signal.SIGTERM)
        assert await command.exit_code() == 143, command.said()
    assert await survivors(children) == set()


@pytest.mark.nightly
@pytest.mark.usefixtures("wandb_of_a_launcher")
async def test_the_end_of_training_ends_it_all_after_the_last_evaluation(
    bench: Any, tokenizer: Any
) -> None:
    settings = {
        "total_steps": 5,  # more than the queue holds: a step is seen before the end
        "steps_per_eval": 1,
        "num_eval_samples_per_task": 40,
        "data_dir_to_save_evals": "evals",
        "use_wandb": True,
        "debug_logging": True,
    }
    async with serving(bench, tokenizer, HONEST, **settings) as (command, _, api_url):
        await command.until_logged("gcd:")  # a scored group
        processes = command.processes()
        assert await command.exit_code() == 0, command.said()
        assert await weight_of_a_newcomer(api_url) == 1.0
    assert await survivors(processes) == set()
    assert (
        "after an interruption, serving again starts the evaluation anew"
        in command.said()
    )
    folders = sorted((bench.folder / "evals").glob("step-*"))
    assert folders, command.said()
    assert all((folder / "metrics.json").exists() for folder in folders), command.said()
    [stored] = bench.folder.glob("wandb/offline-run-*/*.wandb")
    assert b"eval/percent_correct" in stored.read_bytes()


@pytest.mark.nightly
async def test_serve_with_the_file_of_init_ends_once_the_trainer_has_had_its_steps(
    bench: Any, tokenizer: Any
) -> None:
    """A second trainer at the same API is in the first one's run, which is over."""
    async with PolicyServer(HONEST, tokenizer) as server, ApiServer() as api:
        file = bench.folder / "mine.yaml"
        assert init(["vllm", "-o", str(file)]) == 0
        changes = {
            "http://localhost:8000": api.url,
            "http://localhost:9004": server.url,
            "NousResearch/DeepHermes-3-Llama-3-8B-Preview": tokenizer.name_or_path,
            "# use_wandb: false": "use_wandb: false",
            "# include_tasks: [arithmetic, algebra, gcd]": "include_tasks: [gcd]",
        }
        text = file.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)

        async def train(folder: str) -> None:
            trainer = Trainer(
                api.url,
                batch_size=32,
                max_token_len=2**14,
                num_steps=6,
                checkpoint_dir=bench.folder / folder,
            )
            await trainer.run()

        first = asyncio.create_task(train("first"))
        async with bench.command("serve", "--config", str(file)) as command:
            assert await command.exit_code() == 0, command.said()
        await first
        # The API counts a batch when it is complete, which may be one more than the trainer takes.
        assert re.search("Training ends at step [67] of 6", command.said())
        assert "WARNING" not in command.said().partition("Registered as")[2]
        second = asyncio.create_task(train("second"))
        try:
            async with bench.command("serve", "--config", str(file)) as command:
                assert await command.exit_code() == 0, command.said()
        finally:
            second.cancel()
        [inherited] = [s for s in command.said().splitlines() if "`run-api`" in s]
        assert "WARNING" in inherited
        folder = re.escape(str(bench.folder / "first"))
        assert re.search(
            f"step [67] of 6, with batches of 32 and the folder '{folder}'", inherited
        )


@pytest.mark.nightly
async def test_hostile_answers_cost_their_own_rollout_and_nothing_else(
    bench: Any, tokenizer: Any
) -> None:
    settings = {
        "include_tasks": ",".join(sorted(EXECUTES_ANSWERS)),
        "verify_timeout": 1,
        "dump_failed_rollouts": True,
        "dump_rollouts": True,
        "group_size": 5,
        "batch_size": 10,
        "max_num_workers": 8,
        "task_processes": 2,
    }
    async with serving(bench, tokenizer, HOSTILE, **settings) as (command, trainer, _):
        await until_pulled(trainer, command, batches=10)
    rows = [
        row
        for file in bench.folder.glob("dumps/*.jsonl")
        for row in read_dump(file).rows
    ]
    rollouts = [rollout for row in rows for rollout in row["rollouts"]]
    assert len({row["item_id"] for row in rows}) > 4
    for answer, end in HOSTILE_ENDS.items():
        hostile = [rollout for rollout in rollouts if rollout["answer"] == answer]
        assert {rollout["score"] for rollout in hostile} == {0.0}
        # a busy machine may need the whole second before an answer crashes its process
        expected = {end, "rejected", "timeout", *HARMLESS}
        assert {rollout["status"] for rollout in hostile} <= expected
        assert {rollout["status"] for rollout in hostile} & {end, "rejected"}
    honest = {rollout["status"] for rollout in rollouts if rollout["answer"] == "1"}
    assert honest <= {"solved", *HARMLESS}
    assert {r["status"] for r in rollouts if r["answer"] is None} == {"no_answer"}


async def test_the_example_trainer_can_pad_a_batch(bench: Any, tokenizer: Any) -> None:
    pytest.importorskip("torch", reason="Atropos's example trainer needs PyTorch")
    from example_trainer.data import pad_data_to_good_offset

    async with serving(bench, tokenizer, HONEST) as (command, trainer, _):
        await until_pulled(trainer, command, batches=1)
    tokens, labels, advantages, temperatures, _ = pad_data_to_good_offset(
        {"batch": trainer.batch}, batch_size=4
    )
    assert [batch.shape for batch in tokens] == [batch.shape for batch in labels]
    assert (
        sum(len(batch) for batch in tokens)
        == sum(len(batch) for batch in advantages)
        == 8
    )
    assert {float(t) for batch in temperatures for t in batch.flatten()} == {1.0}


@pytest.mark.nightly
async def test_serve_waits_for_a_trainer_which_the_demos_can_be(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        PolicyServer(HONEST, tokenizer) as server,
        ApiServer() as api,
        bench.command(
            "serve", *bench.options(server.url, rollout_server_url=api.url)
        ) as command,
    ):
        waiting = (
            f"Waiting for a trainer, 0 s: start it with the Atropos API at {api.url}"
        )
        await command.until_logged(waiting)
        assert (
            f"run `reasoning-gym-environment demo --trainer-only {api.url}`"
            in command.said()
        )
        await asyncio.sleep(2.5)
        logged = [
            int(seconds)
            for seconds in re.findall(r"Waiting .*, (\d+) s", command.said())
        ]
        assert all(later >= 9 + former for former, later in pairwise(logged))
        assert not re.search("WARNING.*Waiting for a trainer", command.said())
        demo = ("demo", "--trainer-only", api.url, "--seconds", "600")
        async with bench.command(*demo, within="trainer") as trainer:
            await trainer.until(lambda: re.search("fetched [1-9]", trainer.printed()))
            await command.end(signal.SIGHUP, api.url)


@pytest.mark.nightly
async def test_a_start_is_short_and_a_summary_follows(
    bench: Any, tokenizer: Any
) -> None:
    changes = {"include_tasks": "arithmetic", "complexity_mode": "random"}
    async with serving(
        bench, tokenizer, HALF, flags=["--json-logs"], **changes
    ) as served:
        command, _, api_url = served
        await command.until_logged(" with signal, ")
        said = [json.loads(line)["message"] for line in command.said().splitlines()]
        await command.end(signal.SIGINT, api_url)
    first = next(number for number, line in enumerate(said) if " with signal, " in line)
    assert first <= 15, said
    assert said[0].startswith("serve: ")
    assert any(
        line.startswith("18 of 105 tasks are used; left out: 87 tasks, not among")
        for line in said
    )
    summary = r"\d+ groups, [\d.]+/s, \d+% solved, .*% truncated, \d+% no answer, mean level [\d.]+"
    assert re.search(summary, said[first])


async def test_wandb_without_a_login_is_refused_before_anything_starts(
    bench: Any,
) -> None:
    options = bench.options(
        "http://127.0.0.1:1", use_wandb=True, tokenizer_name="nowhere"
    )
    running = bench.command("process", *options)
    del running.environment["WANDB_MODE"]
    running.environment |= {"HOME": str(bench.folder)}
    async with running:
        assert await running.exit_code() == 2, running.said()
    [said] = running.said().splitlines()
    assert said.startswith("error: use_wandb is true and wandb is not logged in: ")
