"""A run on a user's own tasks: its rows name their module, and its checkpoint holds it to that."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from serve_loop import registration

from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.storage.dumps import read_groups, stored_files

MODULE = Path(__file__).parents[1] / "support" / "programs" / "own_tasks.py"


@pytest.mark.processes
async def test_a_run_stores_the_digest_of_its_module_and_continues_with_no_other(
    bench: Any, tokenizer: Any, tmp_path: Path
) -> None:
    module = Path(shutil.copy(MODULE, tmp_path))
    settings: dict[str, Any] = {
        "task_modules": [str(module)],
        "include_tasks": "own_tasks,gcd",
        "complexity_mode": "curriculum",
        "dump_all_rollouts": True,
    }
    async with PolicyServer(
        ScriptedPolicy(["<answer>1</answer>"]), tokenizer
    ) as server:
        async with bench.environment(server.url, **settings) as env:
            await env.run.begin(registration(tmp_path, name="env_x"))
            tasks = set()
            while len(tasks) < 2:
                problem = await env.get_next_item()
                await env.collect_trajectories(problem)
                tasks.add(problem.recipe.task)
            assert tasks == {"own_sums", "gcd"}
            assert env.categories == {"own_sums": "own_tasks", "gcd": "arithmetic"}
            env.save_checkpoint(3)
        groups = [
            g
            for path in stored_files([bench.folder / "dumps"])
            for g in read_groups(path)[0]
        ]
        [digest] = {group.library_versions["own_tasks"] for group in groups}
        assert digest.startswith("sha256:")
        module.write_text(f"{module.read_text()}\n# another version\n")
        resumed = registration(tmp_path, name="env_x", step=3)
        async with bench.environment(server.url, **settings) as env:
            with pytest.raises(
                FixableError, match=f"module own_tasks has changed, from {digest} to"
            ):
                await env.run.begin(resumed)
        settings["accept_changed_modules"] = True
        async with bench.environment(server.url, **settings) as env:
            await env.run.begin(resumed)
