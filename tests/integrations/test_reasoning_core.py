"""reasoning-core: each task is proved or refused by name, and a run has them with the library's."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from atroposlib.envs.base import APIServerConfig
from page_blocks import ROOT

from reasoning_gym_environment import ReasoningGymEnvConfig, read_results
from reasoning_gym_environment.demo.policy import SimulatedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.session import DemoEnv
from reasoning_gym_environment.storage.dumps import read_dump

reasoning_core = pytest.importorskip("reasoning_core")

MODULE = str(ROOT / "examples" / "reasoning_core_tasks.py")
CANNOT_RUN = {
    "game_best_move",
    "game_forced_win",
    "metamath_core_select",
    "metamath_entailment",
}
"""They need a package that is not on PyPI, or files that they download."""

pytestmark = [pytest.mark.integration, pytest.mark.processes]


@pytest.fixture(scope="module")
def usable(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The tasks without a failed check. It prints why the others are refused."""
    file = tmp_path_factory.mktemp("proof") / "proof.json"
    prove = [
        "prove",
        "--all",
        "--task-modules",
        MODULE,
        "--items",
        "20",
        "--seconds",
        "15",
    ]
    command = [
        sys.executable,
        "-m",
        "reasoning_gym_environment",
        *prove,
        "-o",
        str(file),
    ]
    subprocess.run(command, check=False)
    tasks = json.loads(file.read_bytes())["tasks"]
    assert tasks.keys() == {*reasoning_core.list_tasks()}
    for name, task in tasks.items():
        failed = [c for c in task["checks"].values() if c["verdict"] == "failed"]
        assert all(check["reason"] for check in failed)
        assert bool(failed) == (task["verdict"] == "failed")
        assert name not in CANNOT_RUN or failed
    return [name for name, task in tasks.items() if task["verdict"] != "failed"]


async def test_a_run_trains_and_evaluates_on_them_beside_the_library(
    usable: list[str], tokenizer_folder: str, tokenizer: object, tmp_path: Path
) -> None:
    assert len(usable) > 10
    policy = SimulatedPolicy(0)
    config = ReasoningGymEnvConfig(
        tokenizer_name=tokenizer_folder,
        task_modules=[MODULE],
        include_tasks=[*usable, "chain_sum", "gcd"],
        complexity_mode="curriculum",
        group_size=4,
        num_eval_samples_per_task=1,
        use_wandb=False,
        dump_all_rollouts=True,
        data_dumps_dir=str(tmp_path / "dumps"),
        data_dir_to_save_evals=str(tmp_path / "evals"),
    )
    async with PolicyServer(policy, tokenizer) as server:
        to_server = APIServerConfig(
            server_type="openai",
            base_url=f"{server.url}/v1",
            model_name="demo",
            api_key="x",
        )
        env = DemoEnv(config, [to_server], policy)
        try:
            await env.setup()
            for _ in range(4 * len(usable)):
                await env.collect_trajectories(await env.get_next_item())
            levels = env.get_curriculum_stats()["task_details"]
            await env.evaluate()
        finally:
            await env.close()
    rows = [
        row
        for dump in (tmp_path / "dumps").glob("*.jsonl")
        for row in read_dump(dump).rows
    ]
    drawn = Counter(row["recipe"]["task"] in usable for row in rows)
    assert drawn[True] > drawn[False] > 0
    assert any(levels[task]["adjustments"] for task in usable)
    evaluated = {
        sample.recipe.task for sample in read_results(tmp_path / "evals").samples
    }
    assert {*usable} <= evaluated
