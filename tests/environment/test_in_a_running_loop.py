"""As in a notebook: the caller's event loop runs already."""

from typing import Any

import pytest

from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer


async def test_the_environment_works_step_by_step_in_the_callers_loop(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        PolicyServer(ScriptedPolicy(["<answer>nope</answer>"]), tokenizer) as server,
        bench.unprepared(server.url) as env,
    ):
        await env.setup()
        assert env.categories == {"gcd": "arithmetic"}
        item = await env.get_next_item()
        group, backlog = await env.collect_trajectories(item)
        await env.close()
        await env.close()
    assert item.recipe.task == "gcd"
    assert group is not None
    assert group["scores"] == [0.0] * 4
    assert backlog == []
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == []
