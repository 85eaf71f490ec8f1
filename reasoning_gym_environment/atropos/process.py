"""`process`: groups without a trainer, as Atropos collects them."""

from __future__ import annotations

import atexit
import shlex
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import wandb


async def process(env: Any) -> None:
    """Set an environment up and collect as many groups as it was told to; a lost one is no step.

    Args:
        env: has `n_groups_to_process` and `group_size_to_process`.
    """
    warnings.filterwarnings("ignore", "Trainer requested to ignore max length")  # there is none
    await env.setup()
    if env.config.use_wandb:
        today = datetime.now(timezone.utc).date()
        wandb.init(name=f"{env.name}-{today}-{env.run_id[:6]}", config=env.config.model_dump())
        finish_at_exit()
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


def finish_at_exit() -> None:
    """Have wandb's run written whole before the process ends.

    wandb itself leaves this to the process that began its service: to a trainer that has a run of
    its own and launched this one.
    """
    atexit.register(wandb.finish)


def what_was_written(config: Any, run_id: str) -> str:
    """Say which files hold the run's groups, and what to do with them next."""
    folder = Path(config.data_dumps_dir)
    dumps = sorted(folder.glob(f"reasoning_gym_environment_*rollouts_{run_id}_*.jsonl"))
    atropos = config.data_path_to_save_groups
    others = [f"{atropos} (Atropos's own form)"] if atropos and Path(atropos).exists() else []
    if not dumps:
        return f"Wrote {others[0]}" if others else "Wrote nothing: set --env.dump_all_rollouts"
    files = " ".join(shlex.quote(str(path)) for path in dumps)
    return "\n".join(
        [
            "Wrote",
            *(f"  {path}" for path in [*dumps, *others]),
            "Look at the groups:",
            f"  reasoning-gym-environment report {files} -o report.html",
        ]
    )
