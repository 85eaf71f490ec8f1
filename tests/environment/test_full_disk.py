"""A disk that gets full: training continues, losses are said, an evaluation goes on later."""

import os
import re
import signal
from typing import Any

import pytest
from serve_loop import HONEST, registration, serving, status, until_pulled
from small_disks import enlarge, memory_disk

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.storage.dumps import read_dump


@pytest.mark.nightly
async def test_a_full_disk_costs_rows_and_checkpoints_but_no_training(
    bench: Any, tokenizer: Any
) -> None:
    with memory_disk(bench.folder / "env_checkpoints", "96k") as disk:
        # Groups are dumped by default.
        settings = {"data_dumps_dir": str(disk / "dumps")}
        async with serving(bench, tokenizer, HONEST, save_every=2, **settings) as (
            command,
            trainer,
            _,
        ):
            await command.until_logged("lost to disk so far")
            await command.until_logged(" was not saved: ")
            await until_pulled(trainer, command, batches=trainer.batches + 5)
            enlarge(disk, "16m")
            await command.until_logged("lost to disk\n")
            command.process.send_signal(signal.SIGHUP)
            assert await command.exit_code() == 129, command.said()
        assert all(read_dump(file).torn == 0 for file in (disk / "dumps").iterdir())
    said = command.said()
    assert re.search(
        r"ERROR .*Dumps can't be written to .*No space left on device", said
    )
    assert re.search(
        r"ERROR .*The checkpoint of step \d+ was not saved: .*No space left", said
    )
    assert re.search(
        r"WARNING .*Dumps are written to .* again after \d+ s, with \d+ groups?.* lost",
        said,
    )
    assert re.search(r"Lost in this run: \d+ checkpoints/failed, \d+ dumps/lost", said)
    assert (
        f"To see the rollouts: reasoning-gym-environment report {disk / 'dumps'}\n"
        in said
    )
    assert "Traceback" not in said


async def test_a_full_disk_ends_an_evaluation_that_goes_on_where_it_was(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    long = ScriptedPolicy(["x" * 4000 + "<answer>1</answer>"])
    settings = {
        "num_eval_samples_per_task": 30,
        "max_eval_workers": 1,
        "steps_per_eval": 1,
        "max_token_length": 8192,
    }
    async with PolicyServer(long, tokenizer) as server:
        with memory_disk(bench.folder / "small", "64k") as disk:
            folder = disk / "results"
            settings["data_dir_to_save_evals"] = str(folder)
            # The second finds what the first has written, and no room.
            for _ in range(2):
                async with bench.environment(server.url, **settings) as env:
                    with pytest.raises(
                        FixableError, match=r"No space left on device.*free space"
                    ):
                        await env.evaluate()
            rows, torn = read_dump(folder / "samples.partial.jsonl")
            assert 0 < len(rows) < 30
            assert torn == 0
            enlarge(disk, "16m")
            asked = server.requests
            async with bench.environment(server.url, **settings) as env:
                await env.evaluate()
                assert server.requests - asked == 30 - len(rows)
                assert len(read_dump(folder / "samples.jsonl").rows) == 30
                enlarge(disk, "300k")
                await env.run.begin(registration(bench.folder))
                for step in (0, 1):  # it is elected at the first, and due at the second
                    await env.run.take_status(status(step))
                with pytest.raises(FixableError):
                    await env.run.evaluation_task
    [said] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert said.getMessage().startswith(
        "The evaluation failed: evaluation results can't be written"
    )
    assert not said.exc_info


class KeepingEnv(ReasoningGymEnv):
    """Keeps the last group."""

    last: dict[str, Any]

    async def postprocess_histories(self, trajectories: Any) -> Any:
        self.last = trajectories
        return trajectories


async def test_a_groups_file_has_all_that_count_as_written_after_a_full_disk(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with memory_disk(bench.folder / "small", "64k") as disk:
        file = disk / "groups.jsonl"
        settings = {
            "data_path_to_save_groups": str(file),
            "ensure_scores_are_not_same": False,
        }
        async with bench.playing(HONEST, of=KeepingEnv, **settings) as env:
            problem, counts = await env.get_next_item(), env.statistics.counts
            while counts["groups/not_written"] < 3:
                await env.run.groups.work_on(problem)
            enlarge(disk, "16m")
            await env.run.groups.work_on(problem)
            rows, torn = read_dump(file)  # as after `kill -9`: nothing is closed
            assert (len(rows), torn) == (counts["groups/written"], 0)
            assert file.read_bytes().count(b"\n") == len(rows)
    assert counts["groups/not_written"] == 3
    assert caplog.text.count("Groups missing in data_path_to_save_groups: ") == 1
    assert rows[-1]["tokens"] == [list(row) for row in env.last["tokens"]]


@pytest.mark.nightly
async def test_a_groups_file_on_a_disk_that_hangs_blocks_neither_training_nor_the_end(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = bench.folder / "groups.jsonl"
    settings = {
        "data_path_to_save_groups": str(file),
        "ensure_scores_are_not_same": False,
    }
    async with bench.playing(HONEST, **settings) as env:
        problem = await env.get_next_item()
        file.unlink()
        os.mkfifo(file)  # opening it blocks, since nobody reads it
        assert await env.run.groups.work_on(problem)
    assert env.statistics.counts["groups/written"] == 1
    assert env.statistics.counts["groups/not_written"] == 1
    assert (
        "Groups missing in data_path_to_save_groups: 1 (its disk does not respond)"
        in caplog.text
    )
