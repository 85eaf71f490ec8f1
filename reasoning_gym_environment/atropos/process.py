"""`process`: groups without a trainer, as Atropos collects them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import wandb


async def process(env: Any) -> None:
    """Set an environment up and collect as many groups as it was told to; a lost one is no step.

    Args:
        env: has `n_groups_to_process` and `group_size_to_process`.
    """
    await env.setup()
    if env.config.use_wandb:
        today = datetime.now(timezone.utc).date()
        wandb.init(name=f"{env.name}-{today}-{env.run_id[:6]}", config=env.config.model_dump())
    env.config.group_size = env.group_size_to_process
    env.curr_step = 0
    while env.curr_step < env.n_groups_to_process:
        item = await env.get_next_item()
        group, _ = await env.collect_trajectories(item)
        if group:
            await env.handle_send_to_api(
                await env.postprocess_histories(group),
                item,
                do_send_to_api=False,
                abort_on_any_max_length_exceeded=False,
            )
            await env.wandb_log()
            env.curr_step += 1
