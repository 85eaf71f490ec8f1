"""What `evaluate` writes can be scored again."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.settings import pool_settings, scoring_settings
from reasoning_gym_environment.storage.dumps import read_groups
from reasoning_gym_environment.storage.rescoring import rescore


async def test_samples_of_an_evaluation_come_out_the_same(bench: Any) -> None:
    settings = {"include_tasks": "coin_flip,gcd", "num_eval_samples_per_task": 3}
    async with bench.playing(ScriptedPolicy(["<answer>1</answer>"]), **settings) as env:
        await env.evaluate()
        config = env.config
    [samples] = bench.folder.glob("dumps/evaluation_*/samples.jsonl")
    groups, _ = read_groups(samples)
    async with TaskPool(pool_settings(config), Counter()) as pool:
        results = await rescore(groups, pool, scoring_settings(config), concurrency=2)
    assert len(groups) == 6
    assert [result.kept for result in results] == [""] * 6
    assert [change.reason for result in results for change in result.changes] == [
        None
    ] * 6
    for group, result in zip(groups, results, strict=True):
        assert replace(result.after, rollouts=[]) == replace(group, rollouts=[])
